"""Benchmark of the token estimates of files: `make bench-estimates`.

Parley estimates the files of a request before each model call. Each row is one file of 10 MB: the milliseconds of the
first estimate and of the next one, and the longest pause of the event loop meanwhile. The last rows are files that
somebody made to be slow.
"""

import asyncio
import io
import os
import time
import wave
import zlib
from collections.abc import Callable

from core.models.provider import PDF_TYPE, Media, ModelMessage, Text
from core.models.tokens import estimate_media_tokens, estimate_text_tokens

FILE_BYTES = 10 * 2**20

#: Characters of a history of about 32,000 tokens.
HISTORY_CHARACTERS = 128_000


def create_pdf() -> bytes:
    """Return a PDF file of 100 pages, each with a scanned image."""
    page = b"%d 0 obj<</Type/Page/Parent 2 0 R>>endobj 9 0 obj<<>>stream\n%s\nendstream endobj\n"
    pages = (page % (number, os.urandom(FILE_BYTES // 100)) for number in range(100))
    return b"%PDF-1.7\n2 0 obj<</Type/Pages/Count 100>>endobj\n" + b"".join(pages)


def create_wav() -> bytes:
    file = io.BytesIO()
    with wave.open(file, "wb") as writer:
        writer.setnchannels(2)
        writer.setsampwidth(2)
        writer.setframerate(44_100)
        writer.writeframes(bytes(FILE_BYTES))
    return file.getvalue()


def create_bombs() -> bytes:
    """Return object streams that are a thousand times as large when they are decompressed."""
    stream = b"<</Type/ObjStm>>stream\n" + zlib.compress(b"/Count 1 " * 10**6) + b"\nendstream "
    return b"%PDF-1.7 " + stream * (FILE_BYTES // len(stream))


FILES: dict[str, tuple[str, Callable[[], bytes]]] = {
    "PDF of 100 pages": (PDF_TYPE, create_pdf),
    "JPEG": ("image/jpeg", lambda: b"\xff\xd8\xff\xe0" + os.urandom(FILE_BYTES)),
    "WAV": ("audio/wav", create_wav),
    "MP3": ("audio/mpeg", lambda: (b"\xff\xfb\x90\x00" + os.urandom(414)) * (FILE_BYTES // 418)),
    "MP4": ("video/mp4", lambda: b"\0\0\0\x10ftypmp42\0\0\0\0" + os.urandom(FILE_BYTES)),
    "PDF of slashes": (PDF_TYPE, lambda: b"%PDF-1.7" + b"/" * FILE_BYTES),
    "PDF of bombs": (PDF_TYPE, create_bombs),
    "MP3 of frames": ("audio/mpeg", lambda: b"\xff" * FILE_BYTES),
}


async def measure(message: ModelMessage) -> tuple[float, float]:
    """Estimate the files of a message; return the milliseconds, and those of the longest pause of the event loop."""
    start = last = time.perf_counter()
    estimating, pause = asyncio.create_task(estimate_media_tokens([message])), 0.0
    while not estimating.done():
        await asyncio.sleep(0.001)
        now = time.perf_counter()
        pause, last = max(pause, now - last - 0.001), now
    return (time.perf_counter() - start) * 1_000, pause * 1_000


async def main() -> None:
    print(f"{'file of 10 MB':<20} {'tokens':>10} {'first, ms':>10} {'again, ms':>10} {'pause, ms':>10}")
    for name, (mime_type, create) in FILES.items():
        message = ModelMessage("user", (Media(mime_type, create()),))
        first, pause = await measure(message)
        again, _ = await measure(message)
        tokens = await estimate_media_tokens([message])
        print(f"{name:<20} {tokens:>10,} {first:>10.1f} {again:>10.1f} {pause:>10.1f}")
    history = [ModelMessage("user", (Text("x" * (HISTORY_CHARACTERS // 40)),))] * 40
    start = time.perf_counter()
    estimate_text_tokens(history)
    print(f"text of 32,000 tokens: {(time.perf_counter() - start) * 1_000:.2f} ms")


if __name__ == "__main__":
    asyncio.run(main())
