"""Files in model requests: their MIME types, their text, and limits of models."""

from __future__ import annotations

import html
import io
import re
import wave
from collections.abc import Sequence
from dataclasses import replace
from mimetypes import guess_extension, guess_type

import regex  # type: ignore[import-untyped]  # it comes without types
from google.genai import types

from core.models.provider import NO_SUPPORTED_FILES, Media, ModelMessage, Part, SupportedFiles, Text, ToolResult
from core.models.tool_calls import fence_code
from core.observability.messages import format_count

#: File signatures: offset, bytes, MIME type.
_MAGIC_BYTES = (
    (0, b"\x89PNG\r\n\x1a\n", "image/png"),
    (0, b"\xff\xd8\xff", "image/jpeg"),
    (0, b"GIF87a", "image/gif"),
    (0, b"GIF89a", "image/gif"),
    (8, b"WEBP", "image/webp"),
    (0, b"%PDF-", "application/pdf"),
    (8, b"WAVE", "audio/wav"),
    (0, b"ID3", "audio/mpeg"),
    (0, b"\xff\xfb", "audio/mpeg"),
    (0, b"\xff\xf3", "audio/mpeg"),
    (0, b"OggS", "audio/ogg"),
    (0, b"fLaC", "audio/flac"),
    (4, b"ftypM4A", "audio/mp4"),
    (4, b"ftypqt", "video/quicktime"),
    (4, b"ftypavif", "image/avif"),
    (4, b"ftyphei", "image/heic"),
    (4, b"ftypmif1", "image/heif"),
    (4, b"ftyp", "video/mp4"),
    (0, b"\x1a\x45\xdf\xa3", "video/webm"),
)

#: MIME types of which every file begins with one of these signatures.
_SIGNED_TYPES = frozenset(
    mime_type for _, _, mime_type in _MAGIC_BYTES if mime_type.startswith("image/") or mime_type == "application/pdf"
)

#: Signatures of programs and archives, which are no picture, sound or film; many types of documents are ZIP archives.
_OTHER_MAGIC_BYTES = (b"MZ", b"\x7fELF", b"PK\x03\x04", b"\x1f\x8b", b"Rar!", b"7z\xbc\xaf", b"\xca\xfe\xba\xbe")

#: MIME type of SVG, which is text, and an image if it has no active content.
_SVG = "image/svg+xml"

#: Beginning of an SVG file: declaration, comments and document type, and the first tag.
_SVG_START = regex.compile(
    r"\ufeff?\s*+(?>(?:<\?xml\s[^<>]*+>|<!--(?:(?!-->).)*+-->|<!doctype\s[^<>\[]*+>)\s*+)*+<(?:[\w.-]++:)?svg[\s/>]",
    regex.IGNORECASE | regex.DOTALL,
)

#: Parts of an SVG file that run scripts, or that could hide one: elements, handlers, addresses, entities, XSLT,
#: and control characters.
_ACTIVE_SVG = regex.compile(
    r"<(?:[\w.-]++:)?(?:script|foreignobject|iframe|object|embed|handler|listener|set)\b"
    r"|[\s\"'/]on[a-z]++\s*+=|j\s*+a\s*+v\s*+a\s*+s\s*+c\s*+r\s*+i\s*+p\s*+t\s*+:"
    r"|data:\s*+(?:text/(?:html|xml)|application/\w*+xml|application/xhtml|image/svg)"
    r"|<!entity|<!doctype[^<>\[]*+\[|<\?xml-stylesheet|[\x00-\x08\x0b\x0c\x0e-\x1f]",
    regex.IGNORECASE,
)

#: XML declaration with another encoding than that of the bytes, in which a script reads differently.
_OTHER_ENCODING = re.compile(r"\ufeff?<\?xml\s[^<>]*?encoding\s*+=\s*+[\"'](?!utf-8|us-ascii)", re.IGNORECASE)

#: Character references, which are read before the active parts are searched.
_REFERENCE = regex.compile(r"&[#\w]{1,32};?")

#: A larger SVG file is not searched for active parts: this takes up to a second per MB, in a thread.
_MAX_SVG_BYTES = 5 * 2**20

#: Bytes at the beginning of a file by which text is told from other files.
_SAMPLE_BYTES = 65_536

#: Non-standard names of MIME types.
_ALIASES = {
    "image/jpg": "image/jpeg",
    "application/x-pdf": "application/pdf",
    "audio/mp3": "audio/mpeg",
    "audio/x-wav": "audio/wav",
    "audio/vnd.wave": "audio/wav",
    "audio/wave": "audio/wav",
    "audio/x-m4a": "audio/mp4",
    "audio/m4a": "audio/mp4",
    "audio/x-flac": "audio/flac",
}

#: Suffixes that `mimetypes` does not know in each version of Python, or for which it has an unusual one.
_SUFFIXES = {
    "application/xml": ".xml",
    "audio/aiff": ".aiff",
    "audio/ogg": ".ogg",
    "audio/wav": ".wav",
    "audio/webm": ".webm",
    "image/jpeg": ".jpg",
    "image/webp": ".webp",
    "text/markdown": ".md",
}

#: MIME types of text, besides `text/...`, `...+json` and `...+xml`.
_TEXT_TYPES = frozenset(
    f"application/{name}"
    for name in (
        "csv",
        "ecmascript",
        "graphql",
        "javascript",
        "json",
        "json5",
        "ndjson",
        "sql",
        "toml",
        "typescript",
        "x-httpd-php",
        "x-javascript",
        "x-ndjson",
        "x-perl",
        "x-python",
        "x-python-code",
        "x-ruby",
        "x-sh",
        "x-subrip",
        "x-tex",
        "x-toml",
        "x-typescript",
        "x-yaml",
        "xml",
        "yaml",
    )
)

#: Suffixes of TypeScript files, which `mimetypes` takes for MPEG video.
_CODE_SUFFIXES = (".ts", ".mts", ".cts")

#: MIME type of bytes of an unknown type.
UNKNOWN_TYPE = "application/octet-stream"

#: MIME types of files whose type is unknown.
_UNKNOWN_TYPES = {"", UNKNOWN_TYPE, "binary/octet-stream"}

#: Samples of sound without a header: Gemini's `audio/L16;codec=pcm;rate=24000`, OpenAI's `pcm16`.
_RAW_SOUND = re.compile(r"audio/(?:l16|pcm)\b.*?(?:rate=(\d+)|$)", re.IGNORECASE)
_DEFAULT_SAMPLE_RATE = 24_000

#: Encodings of older texts, besides UTF-8 and UTF-16 with a byte order mark: Korean, western, and any other.
_LEGACY_ENCODINGS = ("euc_kr", "cp1252", "latin_1")

#: Control characters that text never has and binary files usually have.
_CONTROL_CHARACTERS = re.compile(r"[\x00-\x06\x0e-\x1a]")

#: UTF-8 bytes per token. It is low, so that estimates are high enough for tables and code too.
_BYTES_PER_TOKEN = 3


def guess_mime_type(name: str, claimed_type: str | None) -> str | None:
    """Return a file's MIME type (lower case, no parameters) by the platform's claim, or else by its suffix."""
    if name.lower().endswith(_CODE_SUFFIXES):
        return "text/plain"
    mime_type = (claimed_type or "").partition(";")[0].strip().lower()
    if mime_type in _UNKNOWN_TYPES:
        mime_type = guess_type(name)[0] or ""
    return _ALIASES.get(mime_type, mime_type) or None


def guess_suffix(mime_type: str) -> str:
    """Return the usual file suffix of a MIME type, such as `.png`; `.bin` if unknown."""
    kind = mime_type.partition(";")[0].strip().lower()
    kind = _ALIASES.get(kind, kind)
    return _SUFFIXES.get(kind) or guess_extension(kind) or ".bin"


def is_text_type(mime_type: str) -> bool:
    """Return whether a MIME type, as from `guess_mime_type`, is one of text, such as source code, JSON or XML."""
    return mime_type.startswith("text/") or mime_type in _TEXT_TYPES or mime_type.endswith(("+json", "+xml"))


def detect_mime_type(data: bytes, expected_type: str | None) -> str | None:
    """Return the MIME type of a file from its bytes; None if it is unknown.

    A known beginning of the bytes decides, even against `expected_type`, the result of `guess_mime_type`. Only an
    expected audio type stays for any audio or video file, since both share containers. Without a known beginning, an
    expected audio or video type is returned. If a text or nothing is expected, it is `text/plain` for every text, even
    an empty one.
    """
    found = _find_signature(data)
    is_media = expected_type is not None and expected_type.startswith(("audio/", "video/"))
    if found is not None:  # audio and video share containers
        is_audio = is_media and str(expected_type).startswith("audio/") and found.startswith(("video/", "audio/"))
        return expected_type if is_audio else found
    if expected_type is None or is_text_type(expected_type):
        return "text/plain" if decode_text(data, allow_legacy=expected_type is not None) is not None else None
    return expected_type if is_media else None


def identify_file(data: bytes, declared_type: str) -> str:
    """Return the MIME type of a file that a model or a tool made, by its bytes.

    The declared type is returned unless the bytes contradict it:

    - The signature of another type gives that type. Audio and video share containers, so either may be declared.
    - Text is no image, audio, video or PDF: it is `text/plain`. SVG is text, and an image only if it was declared as
      one, has no scripts, and at most 5 MB.
    - A program or archive is no image, audio, video or PDF, and an image or PDF that has a signature needs it. Other
      bytes are `application/octet-stream`.

    Without a declared type, it is that of the signature, `text/plain` or `application/octet-stream`.
    """
    expected = guess_mime_type("", declared_type) or ""
    sample = data[:_SAMPLE_BYTES]
    text = _decode_sample(sample, is_cut=len(data) > len(sample))
    if text is not None and (is_text_type(expected) or not sample.startswith(b"%PDF-")):
        is_fit = _is_passive_svg(data) if expected == _SVG else expected and not _is_displayed(expected)
        return declared_type if is_fit else "text/plain"
    if is_text_type(expected) and decode_text(sample) is not None:  # in an older encoding
        return declared_type if expected != _SVG else "text/plain"
    found = _find_signature(sample)
    if found is not None:
        is_same = found == expected or {found[:6], expected[:6]} <= {"audio/", "video/"}
        return declared_type if is_same else found
    is_other = _is_displayed(expected) and sample.startswith(_OTHER_MAGIC_BYTES)
    return declared_type if expected and not is_other and expected not in {_SVG, *_SIGNED_TYPES} else UNKNOWN_TYPE


def fit_file_name(name: str, mime_type: str) -> str:
    """Return a file's name, with the suffix of its type in place of one that stands for another type.

    Platforms and people take the suffix for the type of a file. It stays if it is unknown, or that of a document or
    program; if both types are text or both audio or video; and if both are pictures, of which one has no signature.
    """
    kind = guess_mime_type("", mime_type) or UNKNOWN_TYPE
    expected = guess_mime_type(name, None)
    if expected is None or kind == expected:
        return name
    if is_text_type(expected):
        is_fit = is_text_type(kind) and expected != _SVG
    elif {kind[:6], expected[:6]} <= {"audio/", "video/"}:
        is_fit = True
    else:
        is_fit = not _is_displayed(expected) or (kind[:6] == expected[:6] == "image/" and expected not in _SIGNED_TYPES)
    return name if is_fit else f"{name.rpartition('.')[0]}{guess_suffix(kind)}"


def _find_signature(data: bytes) -> str | None:
    return next((mime_type for at, magic, mime_type in _MAGIC_BYTES if data[at : at + len(magic)] == magic), None)


def _is_displayed(mime_type: str) -> bool:
    """Return whether platforms show or play files of a type."""
    return mime_type.startswith(("image/", "audio/", "video/")) or mime_type in _SIGNED_TYPES


def _decode_sample(sample: bytes, *, is_cut: bool) -> str | None:
    ends = range(4 if is_cut else 1)  # bytes of a character that is cut
    texts = (decode_text(sample[: len(sample) - end], allow_legacy=False) for end in ends)
    return next((text for text in texts if text is not None), None)


def _is_passive_svg(data: bytes) -> bool:
    """Return whether a file is an SVG image in UTF-8 without scripts, also without XML's character references."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return False
    if len(data) > _MAX_SVG_BYTES or _OTHER_ENCODING.match(text) or _SVG_START.match(text, concurrent=True) is None:
        return False
    read = _REFERENCE.sub(lambda found: html.unescape(found[0]), text, concurrent=True)
    return not any(_ACTIVE_SVG.search(each, concurrent=True) for each in (text, read))


def decode_text(data: bytes, *, allow_legacy: bool = True) -> str | None:
    """Return the text in a file's bytes, with LF for CRLF; None if the file is binary.

    Bytes with NUL and other control characters that text never has are binary. `allow_legacy` reads older encodings as
    Korean or western: `channels.intake.encodings` reads them for the model.
    """
    encodings = ("utf-16",) if data.startswith((b"\xff\xfe", b"\xfe\xff")) else ("utf-8-sig",)
    for encoding in (*encodings, *(_LEGACY_ENCODINGS if allow_legacy else ())):
        try:
            text = data.decode(encoding)
        except UnicodeDecodeError:
            continue
        return None if _CONTROL_CHARACTERS.search(text) else text.replace("\r\n", "\n")
    return None


def truncate_text(text: str, max_tokens: int) -> str:
    """Return the beginning of a text, if possible whole lines, with at most `max_tokens` estimated tokens."""
    data = text.encode("utf-8", "replace")
    max_bytes = max(0, max_tokens) * _BYTES_PER_TOKEN
    if len(data) <= max_bytes:
        return text
    head = data[:max_bytes].decode("utf-8", "ignore")
    return head[: head.rfind("\n") + 1] or head


def count_tokens(text: str) -> int:
    """Return a high estimate of a text's tokens: at least the true count for most texts."""
    return -(-len(text.encode("utf-8", "replace")) // _BYTES_PER_TOKEN)


def format_file(text: str, name: str) -> str:
    """Return a text file as a Markdown code block; the suffix of its name is the language of the block."""
    language = re.sub(r"\W", "", name.rpartition(".")[2], flags=re.ASCII) if "." in name else ""
    return fence_code(text, language).strip("\n")


def make_part(mime_type: str, data: bytes) -> types.Part:
    return types.Part(inline_data=types.Blob(mime_type=mime_type, data=data))


def add_wav_header(file: Media) -> Media:
    """Return a file that players can open: raw samples (16 bits, one channel) get a WAV header, other files stay."""
    if file.data is None or (match := _RAW_SOUND.match(file.mime_type)) is None:
        return file
    sound = io.BytesIO()
    with wave.open(sound, "wb") as writer:
        writer.setnchannels(1)
        writer.setsampwidth(2)
        writer.setframerate(int(match[1] or _DEFAULT_SAMPLE_RATE))
        writer.writeframes(file.data)
    return replace(file, mime_type="audio/wav", data=sound.getvalue())


def format_size(byte_count: int) -> str:
    """Return a size for people: `812 bytes`, `3 kB` (of 1024 bytes) or `1.5 MB`."""
    if byte_count < 1024:
        return format_count(byte_count, "byte")
    return f"{byte_count / 1024:.0f} kB" if byte_count < 2**20 else f"{byte_count / 2**20:.1f} MB"


def drop_unsupported_files(messages: Sequence[ModelMessage], supported: SupportedFiles) -> list[ModelMessage]:
    """Return messages with a description in place of each file that the model rejects.

    If all files together have more than `max_total_bytes`, the newest files stay. Older ones may come from a
    conversation with another model. Text files and addresses of files always stay.
    """
    budget = _FileBudget(supported)
    return [_fit_message(message, budget) for message in reversed(messages)][::-1]


def drop_files(messages: Sequence[ModelMessage]) -> list[ModelMessage]:
    """Return messages with a description in place of each file, except for text files and addresses."""
    return drop_unsupported_files(messages, NO_SUPPORTED_FILES)


def shorten_history(messages: Sequence[ModelMessage]) -> list[ModelMessage] | None:
    """Return the system message and the newer half of a conversation's messages.

    The half begins with its first user message; without one, with the last user message before the half. None without a
    user message after the first message.
    """
    system = [message for message in messages[:1] if message.role == "system"]
    history = messages[len(system) :]
    starts = [index for index, message in enumerate(history) if message.role == "user" and index]
    newer = [index for index in starts if index >= len(history) // 2]
    start = newer[0] if newer else starts[-1] if starts else None
    return None if start is None else [*system, *history[start:]]


class _FileBudget:
    """Bytes left for files in a request, and the files that the model accepts."""

    def __init__(self, supported: SupportedFiles) -> None:
        self._supported = supported
        self._free_bytes = supported.max_total_bytes

    def accept(self, file: Media) -> bool:
        """Reserve a file's bytes if the request can include it; text files and addresses need none."""
        if file.data is None or file.mime_type.startswith("text/"):
            return True
        size = len(file.data)
        if not self._supported.supports(file.mime_type, size) or size > self._free_bytes:
            return False
        self._free_bytes -= size
        return True


def _fit_message(message: ModelMessage, budget: _FileBudget) -> ModelMessage:
    return replace(message, parts=tuple(_fit_part(part, budget) for part in reversed(message.parts))[::-1])


def _fit_part(part: Part, budget: _FileBudget) -> Part:
    if isinstance(part, Media) and not budget.accept(part):
        return Text(_describe(part))
    if isinstance(part, ToolResult) and part.media:
        accepted = [file for file in part.media if budget.accept(file)]
        if dropped := [_describe(file) for file in part.media if file not in accepted]:
            return replace(part, media=tuple(accepted), result={**part.result, "left_out": dropped})
    return part


def _describe(file: Media) -> str:
    name = f"{file.name}, " if file.name else ""
    return f"[a file that is not shown to you: {name}{file.mime_type}, {format_size(len(file.data or b''))}]"


def move_files_to_user(messages: Sequence[ModelMessage]) -> list[ModelMessage]:
    """Return messages with the model's own files moved to the next user message.

    Anthropic and OpenAI accept files only from users. A text with the file's name replaces each moved file. A file
    without a later user message is not sent, only its name is.
    """
    moved = list[ModelMessage]()
    pending = list[Part]()
    for message in messages:
        if message.role == "assistant" and any(isinstance(part, Media) for part in message.parts):
            pending += [part for part in message.parts if isinstance(part, Media)]
            parts = (Text(f"[my file: {_name(part)}]") if isinstance(part, Media) else part for part in message.parts)
            moved.append(replace(message, parts=tuple(parts)))
        elif message.role == "user" and pending:
            names = ", ".join(_name(file) for file in pending if isinstance(file, Media))
            moved.append(replace(message, parts=(Text(f"[your files: {names}]"), *pending, *message.parts)))
            pending = []
        else:
            moved.append(message)
    return moved


def _name(file: Media) -> str:
    return file.name or file.uri or file.mime_type
