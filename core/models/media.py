"""Files in model requests: their types, their text, and the ones that a model takes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from mimetypes import guess_type

from google.genai import types

from core.models.provider import NOTHING, Media, Message, Part, Takes, Text, ToolResult
from core.models.tool_calls import fenced

#: What has bytes that say what it is: where in a file, which ones, and what they stand for.
_MAGIC = (
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
    (4, b"ftyp", "video/mp4"),
    (0, b"\x1a\x45\xdf\xa3", "video/webm"),
)

#: Other names for the same.
_ALIASES = {
    "image/jpg": "image/jpeg",
    "application/x-pdf": "application/pdf",
    "audio/mp3": "audio/mpeg",
    "audio/x-wav": "audio/wav",
    "audio/vnd.wave": "audio/wav",
    "audio/x-m4a": "audio/mp4",
    "audio/m4a": "audio/mp4",
    "audio/x-flac": "audio/flac",
}

#: Kinds that are text, beside `text/...` and what ends in `+json` or `+xml`.
_TEXTS = frozenset(
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

#: Source code that is often taken for something else: TypeScript has the ending of a film.
_CODE = (".ts", ".mts", ".cts")

#: What says of a file nothing but that it has bytes.
_ANY = {"", "application/octet-stream", "binary/octet-stream"}

#: How a text may be written, beside UTF-8 and UTF-16 with its mark: as in Korea, and as in the west.
_OLDER = ("euc_kr", "cp1252")

#: What no text has in it, but files of bytes have soon.
_CONTROLS = re.compile(r"[\x00-\x06\x0e-\x1a]")

#: How many bytes of a text a token is taken for: seldom more than it is, even in tables and code.
_BYTES_OF_TOKEN = 3


def kind_of(name: str, told: str | None) -> str | None:
    """What a file is before it is read, as a MIME type; none if nothing tells.

    Args:
        told: what the platform takes it for.
    """
    if name.lower().endswith(_CODE):
        return "text/plain"
    kind = (told or "").partition(";")[0].strip().lower()
    if kind in _ANY:
        kind = guess_type(name)[0] or ""
    return _ALIASES.get(kind, kind) or None


def is_text(kind: str) -> bool:
    return kind.startswith("text/") or kind in _TEXTS or kind.endswith(("+json", "+xml"))


def kind_in(data: bytes, kind: str | None) -> str | None:
    """What a file is by what is in it; none if it is not what it was taken for, or cannot be told."""
    found = next((what for at, magic, what in _MAGIC if data[at : at + len(magic)] == magic), None)
    if found is not None:  # a film and a sound may be in the same wrapping
        is_sound = kind is not None and kind.startswith("audio/") and found.startswith(("video/", "audio/"))
        return kind if is_sound else found
    if kind is None or is_text(kind):
        return "text/plain" if decoded(data, is_known=kind is not None) is not None else None
    return kind if kind.startswith(("audio/", "video/")) else None


def decoded(data: bytes, *, is_known: bool = True) -> str | None:
    """The text of a file; none if it is none.

    Args:
        is_known: whether it is known to be a text, so that it may be written in an older way.
    """
    encodings = ("utf-16",) if data.startswith((b"\xff\xfe", b"\xfe\xff")) else ("utf-8-sig",)
    for encoding in (*encodings, *(_OLDER if is_known else ())):
        try:
            text = data.decode(encoding)
        except UnicodeDecodeError:
            continue
        return None if _CONTROLS.search(text) else text.replace("\r\n", "\n")
    return None


def shortened(text: str, tokens: int) -> str:
    """As much of the beginning of a text as so many tokens hold, in whole lines if it has some."""
    data = text.encode("utf-8", "replace")
    most = max(0, tokens) * _BYTES_OF_TOKEN
    if len(data) <= most:
        return text
    head = data[:most].decode("utf-8", "ignore")
    return head[: head.rfind("\n") + 1] or head


def tokens_of(text: str) -> int:
    """What `shortened` counts a text as."""
    return -(-len(text.encode("utf-8", "replace")) // _BYTES_OF_TOKEN)


def fence(text: str, name: str) -> str:
    """Return a file's text in a code fence."""
    language = re.sub(r"\W", "", name.rpartition(".")[2], flags=re.ASCII) if "." in name else ""
    return fenced(text, language).strip("\n")


def part(kind: str, data: bytes) -> types.Part:
    """A file as ADK has it in a message."""
    return types.Part(inline_data=types.Blob(mime_type=kind, data=data))


def size(count: int) -> str:
    """A number of bytes in words."""
    if count < 1024:
        return f"{count} bytes"
    return f"{count / 1024:.0f} kB" if count < 2**20 else f"{count / 2**20:.1f} MB"


def fitted(messages: Sequence[Message], takes: Takes) -> list[Message]:
    """The messages with such files alone as the model takes, and no more of them than it takes at once.

    A conversation may have been with another model before, and files that came one by one may be too much together.
    """
    room = _Room(takes)
    return [_fitted(message, room) for message in reversed(messages)][::-1]


def without_files(messages: Sequence[Message]) -> list[Message]:
    """The messages with words in the place of files."""
    return fitted(messages, NOTHING)


def shorten_history(messages: Sequence[Message]) -> list[Message] | None:
    """The messages from about the middle on, behind the system's, beginning with what a person said; None if there is
    only one such that they could begin with.
    """
    head = [message for message in messages[:1] if message.role == "system"]
    talk = messages[len(head) :]
    starts = [nth for nth, message in enumerate(talk) if message.role == "user" and nth]
    later = [nth for nth in starts if nth >= len(talk) // 2]
    start = later[0] if later else starts[-1] if starts else None
    return None if start is None else [*head, *talk[start:]]


class _Room:
    """What a request has room for yet."""

    def __init__(self, takes: Takes) -> None:
        self._takes = takes
        self._left = takes.total

    def takes(self, media: Media) -> bool:
        if media.data is None or media.mime_type.startswith("text/"):
            return True
        if not self._takes.has(media.mime_type, len(media.data)) or len(media.data) > self._left:
            return False
        self._left -= len(media.data)
        return True


def _fitted(message: Message, room: _Room) -> Message:
    return replace(message, parts=tuple(_part(part, room) for part in reversed(message.parts))[::-1])


def _part(part: Part, room: _Room) -> Part:
    if isinstance(part, Media) and not room.takes(part):
        return Text(_told(part))
    if isinstance(part, ToolResult) and part.media:
        kept = [media for media in part.media if room.takes(media)]
        if lost := [_told(media) for media in part.media if media not in kept]:
            return replace(part, media=tuple(kept), result={**part.result, "left_out": lost})
    return part


def _told(media: Media) -> str:
    return f"[a file that is not shown to you: {media.mime_type}, {size(len(media.data or b''))}]"
