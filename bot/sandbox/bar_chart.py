"""Bar charts as PNG pictures, without a drawing library."""

import struct
import zlib
from collections.abc import Sequence

#: Size of the picture, and of a pixel of a letter.
WIDTH, HEIGHT, LETTER_PIXEL = 640, 360, 5

#: Colours by number: background, lines, bars, letters.
_COLORS = ("ffffff", "d5d9e2", "3256c8", "1b1f27")
_BACKGROUND, _LINE, _BAR, _INK = range(len(_COLORS))

#: Space around the bars, and the number of lines behind them.
_MARGIN, _BOTTOM, _TOP, _LINES = 32, 56, 56, 4

#: Letters of three by five pixels: an octal digit for each row.
_LETTERS = dict(
    zip(
        "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ.-",
        (
            *("75557", "26227", "71747", "71717", "55711", "74717", "74757", "71111", "75757", "75717"),
            *("25755", "65656", "34443", "65556", "74647", "74644", "34553", "55755", "72227", "11153"),
            *("55655", "44447", "57755", "65555", "25552", "65644", "25573", "65655", "34216", "72222"),
            *("55557", "55552", "55775", "55255", "55222", "71247", "00002", "00700"),
        ),
        strict=True,
    )
)


def draw_bar_chart(labels: Sequence[str], values: Sequence[float]) -> bytes:
    """Return a PNG picture with a bar per value, its value above and its label below, both cut to the bar's width.

    Args:
        values: at least one; negative ones count as 0.
    """
    rows = [bytearray(WIDTH) for _ in range(HEIGHT)]
    floor, room = HEIGHT - _BOTTOM, HEIGHT - _BOTTOM - _TOP
    for number in range(_LINES + 1):
        _fill(rows, _MARGIN, floor - room * number // _LINES, WIDTH - 2 * _MARGIN, 2, color=_LINE)
    slot = (WIDTH - 2 * _MARGIN) // len(values)
    largest = max(*values, 1e-9)
    for number, (label, value) in enumerate(zip(labels, values, strict=True)):
        left, height = _MARGIN + number * slot + slot // 6, max(0, round(room * value / largest))
        _fill(rows, left, floor - height, slot * 2 // 3, height, color=_BAR)
        center = left + slot // 3
        _write(rows, center, floor - height - 6 * LETTER_PIXEL, f"{value:.0f}", slot)
        _write(rows, center, floor + 3 * LETTER_PIXEL, label, slot)
    return _encode(rows)


def _fill(rows: Sequence[bytearray], left: int, top: int, width: int, height: int, *, color: int) -> None:
    for row in rows[top : top + height]:
        row[left : left + width] = bytes([color]) * width


def _write(rows: Sequence[bytearray], center: int, top: int, text: str, width: int) -> None:
    """Write a text around `center`, without the letters that do not fit into the width."""
    text = text.upper()[: width // (4 * LETTER_PIXEL)]
    left = center - (4 * len(text) - 1) * LETTER_PIXEL // 2
    for position, letter in enumerate(text):
        for line, bits in enumerate(_LETTERS.get(letter, "00000")):
            for column in range(3):
                if int(bits) >> (2 - column) & 1:
                    at = left + (4 * position + column) * LETTER_PIXEL
                    _fill(rows, at, top + line * LETTER_PIXEL, LETTER_PIXEL, LETTER_PIXEL, color=_INK)


def _encode(rows: Sequence[bytearray]) -> bytes:
    """Return rows of colours as PNG (https://www.w3.org/TR/png: color type 3, an indexed colour per byte)."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", WIDTH, HEIGHT, 8, 3, 0, 0, 0)
    pixels = zlib.compress(b"".join(b"\0" + row for row in rows))
    parts = ((b"IHDR", header), (b"PLTE", bytes.fromhex("".join(_COLORS))), (b"IDAT", pixels), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(kind, data) for kind, data in parts)
