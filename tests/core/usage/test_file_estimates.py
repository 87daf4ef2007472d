"""Estimates of files: each kind of file, with true and false headers."""

import asyncio
import io
import os
import struct
import wave
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.models.provider import PDF_TYPE, Media, ModelMessage, Text, ToolResult, ToolSpec
from core.models.tokens import estimate_media_tokens, estimate_text_tokens
from core.usage.file_estimates import (
    ADDRESS_TOKENS,
    AUDIO_SECOND_TOKENS,
    MAX_IMAGE_TOKENS,
    MAX_TOKENS,
    MIN_IMAGE_TOKENS,
    PDF_PAGE_TOKENS,
    VIDEO_SECOND_TOKENS,
    estimate_file_tokens,
)
from tests.fixtures.files import create_pdf


def create_png(width: int, height: int) -> bytes:
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sII", 13, b"IHDR", width, height) + bytes(9)


def create_wav(seconds: float, rate: int, *, claimed_bytes: int | None = None) -> bytes:
    file = io.BytesIO()
    with wave.open(file, "wb") as writer:
        writer.setnchannels(1)
        writer.setsampwidth(2)
        writer.setframerate(rate)
        writer.writeframes(bytes(int(seconds * rate) * 2))
    data = file.getvalue()
    return data if claimed_bytes is None else data[:40] + struct.pack("<I", claimed_bytes) + data[44:]


def create_mp4(seconds: int, content: bytes = b"") -> bytes:
    header = struct.pack(">4B4I", 0, 0, 0, 0, 0, 0, 1_000, seconds * 1_000) + bytes(80)
    mdhd = struct.pack(">I4s", len(header) + 8, b"mdhd") + header
    mdia = struct.pack(">I4s", len(mdhd) + 8, b"mdia") + mdhd
    trak = struct.pack(">I4s", len(mdia) + 8, b"trak") + mdia
    mvhd = struct.pack(">I4s", len(header) + 8, b"mvhd") + header
    moov = struct.pack(">I4s", len(mvhd) + len(trak) + 8, b"moov") + mvhd + trak
    return b"\0\0\0\x10ftypmp42\0\0\0\0" + moov + struct.pack(">I4s", len(content) + 8, b"mdat") + content


def estimate(mime_type: str, data: bytes | None) -> int:
    return estimate_file_tokens(mime_type, data)


@pytest.mark.parametrize(
    "data",
    [
        create_pdf(40),
        create_pdf(40, claimed=1),
        create_pdf(40, claimed=1, is_compressed=True),
        create_pdf(1, claimed=40),
        b"%PDF-1.7 /Count 1 /Kids [" + b"3 0 R " * 40 + b"]",
        b"%PDF-1.7 /Count 1 " + b"<</T#79pe /P#61ge>> " * 40,
        b"%PDF-1.7 /Count 1 " + b"<</Type %x\n/Page>> " * 40,
        b"x" * 70_000 + create_pdf(40),
    ],
    ids=["true", "claims one", "compressed", "claims more", "one page again", "escaped", "comments", "shifted"],
)
def test_a_pdf_file_counts_all_pages_that_it_names(data: bytes) -> None:
    assert 40 * PDF_PAGE_TOKENS <= estimate(PDF_TYPE, data) <= 41 * PDF_PAGE_TOKENS


def test_a_pdf_file_counts_by_its_bytes_if_its_pages_cannot_be_read() -> None:
    assert estimate(PDF_TYPE, b"%PDF-1.7" + os.urandom(200_000)) >= 90 * PDF_PAGE_TOKENS
    locked = b"%PDF-1.7 /Count 1 <</Type/ObjStm>>stream\n" + os.urandom(50_000) + b"\nendstream"
    assert estimate(PDF_TYPE, locked) >= 20 * PDF_PAGE_TOKENS
    assert estimate(PDF_TYPE, create_pdf(1) + bytes(10 * 2**20)) >= 10 * 2**20 // 64  # one page of many texts


@pytest.mark.parametrize(
    ("size", "expected"),
    [((10, 10), MIN_IMAGE_TOKENS), ((1_500, 1_000), 2_000), ((30_000, 30_000), MAX_IMAGE_TOKENS)],
)
def test_an_image_counts_by_its_pixels(size: tuple[int, int], expected: int) -> None:
    assert estimate("image/png", create_png(*size)) == expected
    assert estimate("image/png", b"broken") == MAX_IMAGE_TOKENS


def test_sound_and_videos_count_by_the_longer_of_claim_and_bytes() -> None:
    assert estimate("audio/wav", create_wav(60, 16_000)) == pytest.approx(60 * AUDIO_SECOND_TOKENS, rel=0.01)
    assert estimate("audio/wav", create_wav(60, 16_000, claimed_bytes=2)) == pytest.approx(1_920, rel=0.01)
    assert estimate("audio/wav", create_wav(5_000, 1)) >= 5_000 * AUDIO_SECOND_TOKENS  # two bytes for each second
    assert estimate("video/mp4", create_mp4(3_000)) == 3_000 * VIDEO_SECOND_TOKENS  # one picture for a long time
    assert estimate("video/mp4", create_mp4(1, bytes(2**20))) >= 80 * VIDEO_SECOND_TOKENS
    frame = b"\xff\xfb\x90\x00" + bytes(414)  # 26 ms, 128 kbit/s
    assert 104 * AUDIO_SECOND_TOKENS <= estimate("audio/mpeg", frame * 4_000) <= 600 * AUDIO_SECOND_TOKENS
    assert estimate("audio/ogg", b"OggS" + bytes(60_000)) >= 60 * AUDIO_SECOND_TOKENS


def test_a_file_of_which_only_the_address_is_known_counts_as_a_large_one() -> None:
    assert estimate("image/png", None) == MAX_IMAGE_TOKENS
    assert estimate("video/mp4", None) == ADDRESS_TOKENS


FILE_TYPES = (
    "image/png",
    "image/jpeg",
    "image/heic",
    "audio/wav",
    "audio/mpeg",
    "audio/ogg",
    "video/mp4",
    PDF_TYPE,
    "x/y",
)
BEGINNINGS = (b"%PDF-1.7", b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff\xe0", b"RIFF\0\0\0\0WAVEfmt ", b"OggS", b"fLaC", b"ID3",
              b"\xff\xfb\x90\x00", b"\0\0\0\x10ftypmp42", b"\x1aE\xdf\xa3", b"FORM\0\0\0\0AIFF", b"")  # fmt: skip


@given(st.sampled_from(FILE_TYPES), st.sampled_from(BEGINNINGS), st.binary(max_size=300), st.integers(1, 300))
def test_no_file_breaks_the_estimate(kind: str, begin: bytes, data: bytes, times: int) -> None:
    assert 1 <= estimate(kind, begin + data * times) <= MAX_TOKENS


HOSTILE = {
    "slashes": b"/" * 2**20,
    "counts": b"/Count 1 " * 2**17,
    "object streams": b"/ObjStm stream\n" * 2**16,
    "a bomb": (b"<</Type/ObjStm>>stream\n" + zlib.compress(bytes(64 * 2**20)) + b"endstream ") * 4,
}


@pytest.mark.parametrize("name", HOSTILE)
async def test_the_event_loop_runs_on_beside_a_hostile_file(name: str) -> None:
    message = ModelMessage("user", (Media(PDF_TYPE, b"%PDF-1.7" + HOSTILE[name]),))
    estimating, rounds = asyncio.create_task(estimate_media_tokens([message])), 0
    while not estimating.done():
        await asyncio.sleep(0)
        rounds += 1
    assert 1 <= await estimating <= MAX_TOKENS
    assert rounds > 2


async def test_all_files_of_a_request_count_also_those_of_tools() -> None:
    picture = Media("image/png", create_png(1_500, 1_000))
    result = ToolResult("c", "look", {"ok": True}, (picture, picture))
    messages = [ModelMessage("user", (Text("Look"), picture)), ModelMessage("tool", (result,))]
    assert await estimate_media_tokens(messages) == 3 * 2_000
    assert estimate_text_tokens(messages) < 20
    video = Media("video/mp4", create_mp4(10_000))
    assert await estimate_media_tokens([ModelMessage("user", (video, video))]) == MAX_TOKENS


def test_tools_count_as_text() -> None:
    schema: dict[str, Any] = {"type": "object", "properties": {f"field{n}": {"type": "string"} for n in range(100)}}
    assert estimate_text_tokens([], [ToolSpec("fill", "Fills a form.", schema)]) > 500
