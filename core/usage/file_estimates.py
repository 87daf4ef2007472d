"""Estimates of the tokens that files take in a model request.

They count before a call, and for an answer whose tokens the vendor did not send. A file comes from anybody, so that its
headers may be false. An estimate is therefore high: it is the largest count that any vendor documents for the pages,
pixels or seconds of the file, and at least that for its bytes. Files are read in two threads, in bounded steps.
"""

from __future__ import annotations

import asyncio
import hashlib
import io
import re
import wave
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import islice
from math import ceil

import imagesize
from cachetools import LRUCache
from tinytag import TinyTag

#: Most tokens of a file, and of the files of a request. Gemini: the longest context of a model.
MAX_TOKENS = 1_000_000

#: Tokens of a page. Anthropic: 1,500 to 3,000 for the text, and the image of the page
#: (https://platform.claude.com/docs/en/build-with-claude/pdf-support).
PDF_PAGE_TOKENS = 3_000

#: Most pages that are counted.
_MAX_PAGES = ceil(MAX_TOKENS / PDF_PAGE_TOKENS)

#: Bytes of a PDF file that count as one page if no pages are found in it, and bytes that count as one token at least.
_PDF_BYTES_PER_PAGE, _PDF_BYTES_PER_TOKEN = 2_048, 64

#: Least and most tokens of an image. Gemini 3: 1,120 for any size. Anthropic: one for 750 pixels, at most 4,784
#: (https://platform.claude.com/docs/en/build-with-claude/vision).
MIN_IMAGE_TOKENS, MAX_IMAGE_TOKENS = 1_200, 5_000
_PIXELS_PER_TOKEN = 750

#: Tokens of a second. Gemini: 32 for sound, and 258 more for a frame of a video
#: (https://ai.google.dev/gemini-api/docs/tokens).
AUDIO_SECOND_TOKENS, VIDEO_SECOND_TOKENS = 32, 300

#: Least bytes of a second: 8 kbit/s is poor speech, 100 kbit/s a small video.
_AUDIO_BYTES_PER_SECOND, _VIDEO_BYTES_PER_SECOND = 1_000, 12_500

#: MPEG audio, such as MP3: the longest frame, with 1,152 samples at 8 kHz. Each frame begins with 11 bits that are set.
_MP3_FRAME_SECONDS = 0.144
_MP3_FRAME = re.compile(rb"\xff[\xe0-\xff]")

#: Bytes of a PCM sample of all channels: 8 channels of 32 bits.
_MAX_SAMPLE_BYTES = 32

#: Tokens of a file that is no image, and of which only the address is known.
ADDRESS_TOKENS = 100_000


def _pdf_name(name: str) -> str:
    """Return the pattern of a name in a PDF file, in which each character may be escaped as `#` and two digits."""
    return "".join(f"(?:{letter}|#(?i:{ord(letter):02x}))" for letter in name)


#: What tells the pages of a PDF file: page objects, counts of pages, references to pages or to groups of them, and
#: streams that contain such objects.
_PDF_MARK = re.compile(
    rf"/(?:(?P<page>{_pdf_name('Page')}(?![^\s()<>\[\]{{}}/%]))"
    rf"|{_pdf_name('Count')}\s{{0,9}}(?P<count>\d{{1,7}})"
    rf"|{_pdf_name('Kids')}\s{{0,9}}\[(?P<kids>[\d\sR]{{0,16384}})"
    rf"|(?P<objects>{_pdf_name('ObjStm')}))".encode()
)

#: Most marks of a PDF file that are read, and most object streams that may be unreadable.
_MAX_MARKS, _MAX_UNREADABLE_STREAMS = 100_000, 20

#: Most bytes of an object stream, and of all of a file when they are decompressed.
_MAX_STREAM_BYTES, _MAX_PLAIN_BYTES = 2**20, 16 * 2**20

#: A regular expression holds the interpreter's lock, so it searches one window at a time. Windows overlap.
_WINDOW_BYTES, _OVERLAP_BYTES = 2**16, 2**14

#: Bytes at the beginning of an image that may contain its size, and the most reads of a file's headers.
_IMAGE_HEADER_BYTES, _MAX_READS = 2**19, 20_000

_threads = ThreadPoolExecutor(2, thread_name_prefix="file estimates")

#: Tokens of files by their type and content; a run sends the same files again with each step.
_known = LRUCache[tuple[str, bytes], int](1_000)


async def estimate_files(files: Sequence[tuple[str, bytes | None]]) -> int:
    """Return an estimate of the tokens of a request's files, at most `MAX_TOKENS`.

    Args:
        files: the MIME type and the bytes of each file; None for a file of which only the address is known.
    """
    return await asyncio.get_running_loop().run_in_executor(_threads, _sum_tokens, files) if files else 0


def _sum_tokens(files: Sequence[tuple[str, bytes | None]]) -> int:
    return min(sum(estimate_file_tokens(mime_type, data) for mime_type, data in files), MAX_TOKENS)


def estimate_file_tokens(mime_type: str, data: bytes | None) -> int:
    """Return an estimate of the tokens of a file, from 1 to `MAX_TOKENS`.

    It reads the whole file; the estimate is remembered by the file's content.
    """
    kind = mime_type.partition("/")[0]
    if data is None:
        return MAX_IMAGE_TOKENS if kind == "image" else ADDRESS_TOKENS
    key = (mime_type, hashlib.sha256(data).digest())
    if (known := _known.get(key)) is not None:
        return known
    match kind:
        case "image":
            tokens = _estimate_image(data)
        case "audio":
            tokens = ceil(_estimate_seconds(data, _AUDIO_BYTES_PER_SECOND) * AUDIO_SECOND_TOKENS)
        case "video":
            tokens = ceil(_estimate_seconds(data, _VIDEO_BYTES_PER_SECOND) * VIDEO_SECOND_TOKENS)
        case _ if mime_type == "application/pdf":
            tokens = max(_PageCount().read(data) * PDF_PAGE_TOKENS, len(data) // _PDF_BYTES_PER_TOKEN)
        case _:
            tokens = len(data) // 4
    _known[key] = tokens = min(max(1, tokens), MAX_TOKENS)
    return tokens


class _Header(io.BytesIO):
    """A file whose reads are limited, so that a parser that loops ends with an error."""

    _reads = 0

    def read(self, size: int | None = -1, /) -> bytes:
        self._reads += 1
        if self._reads > _MAX_READS:
            raise OSError("the headers of the file are too long")
        return super().read(size)


def _estimate_image(data: bytes) -> int:
    width, height = imagesize.get(_Header(data[:_IMAGE_HEADER_BYTES]))  # -1 if it is not found
    pixels = int(width) * int(height) if width > 0 and height > 0 else MAX_IMAGE_TOKENS * _PIXELS_PER_TOKEN
    return min(max(ceil(pixels / _PIXELS_PER_TOKEN), MIN_IMAGE_TOKENS), MAX_IMAGE_TOKENS)


def _estimate_seconds(data: bytes, bytes_per_second: int) -> float:
    """Return the most seconds that a file of sound or a video probably lasts.

    The duration in the file's headers counts only if it is longer than that of the bytes. PCM samples last as long as
    their bytes, and MP3 files at most as long as their frames.
    """
    seconds = len(data) / bytes_per_second
    if data.startswith((b"ID3", b"\xff")):
        frames = islice(_find(_MP3_FRAME, data), ceil(seconds / _MP3_FRAME_SECONDS))
        seconds = min(seconds, sum(1 for _ in frames) * _MP3_FRAME_SECONDS)
    with suppress(Exception):  # any error of a parser: the file is of another format, or damaged
        with wave.open(_Header(data)) as sound:
            sample_bytes = sound.getnchannels() * sound.getsampwidth()
            rate = sound.getframerate()
        if sample_bytes <= _MAX_SAMPLE_BYTES:
            return float(len(data) / (rate * sample_bytes))
    with suppress(Exception):
        seconds = max(seconds, TinyTag.get(file_obj=_Header(data), tags=False).duration or 0.0)
    return min(seconds, float(MAX_TOKENS))


class _PageCount:
    """Count of the pages that a PDF file names: the most of its page objects, counts and references.

    The files' own count may be false. If an object stream cannot be read, or no page is found, the bytes decide.
    """

    def __init__(self) -> None:
        self._objects = 0
        self._count = 0
        self._references = 0
        self._marks = 0
        self._plain_bytes = 0

    def read(self, data: bytes) -> int:
        unreadable = 0
        for found in self._search(data):
            unreadable += not self._read_objects(data, found.end())
            if unreadable == _MAX_UNREADABLE_STREAMS:
                break
        is_readable = self._pages and not unreadable and self._marks < _MAX_MARKS
        return self._pages if is_readable else max(self._pages, ceil(len(data) / _PDF_BYTES_PER_PAGE))

    @property
    def _pages(self) -> int:
        return max(self._objects, self._count, self._references)

    def _search(self, data: bytes) -> Iterator[re.Match[bytes]]:
        for found in _find(_PDF_MARK, data):
            match found.lastgroup:
                case "page":
                    self._objects += 1
                case "count":
                    self._count = max(self._count, int(found["count"]))
                case "kids":
                    self._references += found["kids"].count(b"R")
                case _:
                    yield found
            self._marks += 1
            if self._pages >= _MAX_PAGES or self._marks >= _MAX_MARKS:
                return

    def _read_objects(self, data: bytes, at: int) -> bool:
        """Count the pages in the object stream whose dictionary is at `at`; return False if it cannot be read."""
        if (free_bytes := _MAX_PLAIN_BYTES - self._plain_bytes) <= 0:
            return False
        begin = data.find(b"stream", at, at + 1_024)
        begin = data.find(b"\n", begin, begin + 9) + 1 if begin >= 0 else 0
        end = data.find(b"endstream", begin, begin + _MAX_STREAM_BYTES) if begin else -1
        try:
            plain = zlib.decompressobj().decompress(data[begin : max(end, begin)], free_bytes)
        except zlib.error:
            return False
        self._plain_bytes += len(plain)
        for _ in self._search(plain):
            pass  # object streams contain no others
        return bool(plain)


def _find(pattern: re.Pattern[bytes], data: bytes) -> Iterator[re.Match[bytes]]:
    for start in range(0, len(data), _WINDOW_BYTES):
        end = start + _WINDOW_BYTES
        for found in pattern.finditer(data, start, end + _OVERLAP_BYTES):
            if found.start() < end:
                yield found
