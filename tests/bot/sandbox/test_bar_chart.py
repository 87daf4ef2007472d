"""Tests of the bar chart of the tour's agent."""

import struct
import zlib

import pytest

from bot.sandbox.bar_chart import HEIGHT, WIDTH, draw_bar_chart

#: Number of the bars' colour in the palette.
BAR = 2


def read_pixels(picture: bytes) -> list[bytes]:
    """Return the rows of a picture, and check its header and checksums."""
    assert picture.startswith(b"\x89PNG\r\n\x1a\n")
    chunks, at = dict[bytes, bytes](), 8
    while at < len(picture):
        (length,) = struct.unpack(">I", picture[at : at + 4])
        kind, data = picture[at + 4 : at + 8], picture[at + 8 : at + 8 + length]
        assert struct.unpack(">I", picture[at + 8 + length : at + 12 + length]) == (zlib.crc32(kind + data),)
        chunks[kind], at = data, at + 12 + length
    assert list(chunks) == [b"IHDR", b"PLTE", b"IDAT", b"IEND"]
    assert struct.unpack(">II", chunks[b"IHDR"][:8]) == (WIDTH, HEIGHT)
    data = zlib.decompress(chunks[b"IDAT"])
    return [data[start + 1 : start + 1 + WIDTH] for start in range(0, len(data), WIDTH + 1)]


def test_the_height_of_a_bar_is_its_share_of_the_largest_value() -> None:
    rows = read_pixels(draw_bar_chart(["a", "b"], [50, 100]))
    left, right = (sum(row[x] == BAR for row in rows) for x in (WIDTH // 4, WIDTH * 3 // 4))
    assert (len(rows), left * 2) == (HEIGHT, right)


@pytest.mark.parametrize("values", [[0.0], [-1.0, 0.0], [1e-12], [5.0] * 40])
def test_values_without_room_or_size_are_drawn(values: list[float]) -> None:
    read_pixels(draw_bar_chart(["ß long label"] * len(values), values))
