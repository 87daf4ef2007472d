"""SVG plot of the age and the end of replies, by the number of concurrent replies."""

import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape

from benchmarks.replies.cell import Cell
from docs.pictures.drawing import DARK_STYLE

_WIDTH, _HEIGHT = 430, 300
_LEFT, _TOP, _BOTTOM, _RIGHT = 62, 44, 40, 16
_COLOURS = ("#0b6bcb", "#c4320a", "#0f7b4f", "#8a4fbe", "#a16207", "#b0276e")
#: Legend: the height of a line in pixels, and the number of names in it.
_LINE_HEIGHT, _LEGEND_COLUMNS = 24, 3
_FLOOR = "least possible"
_GREY = "#555"

#: Seconds by the number of replies; None without a value.
Series = Mapping[int, float | None]


def plot(cells: Iterable[Cell], ending: str) -> str:
    """Return an SVG with two panels per platform: mean age and mean end of replies.

    Both are plotted in platform seconds (logarithmic) against the number of concurrent replies, with a line per
    contender and one for the least possible value. The age is the time since the model emitted the newest visible word.
    The end is the time from the model's last word to the final text; a cell with a wrong reply has none.

    Args:
        ending: the `Ending` of the plotted cells; cells with one reply are always plotted.
    """
    selected = [cell for cell in cells if cell.ending == ending or cell.replies == 1]
    panels, top = [], 0
    for platform in sorted({cell.platform for cell in selected}, reverse=True):
        platform_cells = [cell for cell in selected if cell.platform == platform]
        names = list(dict.fromkeys(cell.contender for cell in platform_cells))
        ages = {name: {cell.replies: cell.age for cell in platform_cells if cell.contender == name} for name in names}
        ends = {name: {cell.replies: _end(cell) for cell in platform_cells if cell.contender == name} for name in names}
        ages[_FLOOR] = {cell.replies: cell.age_floor for cell in platform_cells}
        ends[_FLOOR] = {cell.replies: cell.end_mean_floor for cell in platform_cells}
        panels += _panel(0, top, f"{platform.title()}: mean age of the shown text", ages)
        panels += _panel(_WIDTH, top, f"{platform.title()}: last word to final text, mean", ends)
        panels += _legend(top + _HEIGHT, names)
        top += _HEIGHT + _LINE_HEIGHT * math.ceil((len(names) + 1) / _LEGEND_COLUMNS) + _LINE_HEIGHT
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {2 * _WIDTH} {top}" '
            'font-family="system-ui, sans-serif" font-size="12">',
            DARK_STYLE,
            f'<rect width="{2 * _WIDTH}" height="{top}" fill="white"/>',
            *panels,
            "</svg>",
            "",
        ]
    )


def _end(cell: Cell) -> float | None:
    """Return the mean end of a cell's replies in seconds; None if a reply is wrong.

    A mean would hide the lost replies.
    """
    return None if cell.wrong else cell.end_mean


def _panel(left: float, top: float, title: str, series_by_name: Mapping[str, Series]) -> list[str]:
    values = [value for series in series_by_name.values() for value in series.values() if value]
    loads = sorted({replies for series in series_by_name.values() for replies in series})
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))

    def x(replies: int) -> float:
        return left + _LEFT + (_WIDTH - _LEFT - _RIGHT) * (loads.index(replies) + 0.5) / len(loads)

    def y(seconds: float) -> float:
        fraction = (math.log10(seconds) - low) / max(1, high - low)
        return top + _HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * fraction

    parts = [_text(left + _LEFT, top + 24, title, size=14, weight="bold")]
    for power in range(low, high + 1):
        at = y(10**power)
        parts.append(f'<path d="M{left + _LEFT} {at:.1f}H{left + _WIDTH - _RIGHT}" stroke="#ddd"/>')
        parts.append(_text(left + _LEFT - 8, at + 4, f"{10.0**power:g} s", anchor="end"))
    parts += [
        _text(x(load), top + _HEIGHT - _BOTTOM + 18, f"{load} {'reply' if load == 1 else 'replies'}", anchor="middle")
        for load in loads
    ]
    for number, (name, series) in enumerate(series_by_name.items()):
        parts += _line(
            [(x(load), y(value)) for load in loads if (value := series.get(load))], _colour(name, number), name
        )
    return parts


def _line(points: Sequence[tuple[float, float]], colour: str, name: str) -> list[str]:
    path = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    if not path:
        return []
    dashes = ' stroke-dasharray="5 4"' if name == _FLOOR else ""
    dots = [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{colour}"/>' for x, y in points if name != _FLOOR]
    return [f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="2"{dashes}/>', *dots]


def _legend(top: float, names: Sequence[str]) -> list[str]:
    parts = []
    for number, name in enumerate([*names, _FLOOR]):
        left, at = _LEFT + number % _LEGEND_COLUMNS * 270, top + _LINE_HEIGHT * (number // _LEGEND_COLUMNS)
        parts += _line([(left, at), (left + 24, at)], _colour(name, number), name)
        parts.append(_text(left + 34, at + 4, name))
    return parts


def _colour(name: str, number: int) -> str:
    return _GREY if name == _FLOOR else _COLOURS[number % len(_COLOURS)]


def _text(
    x: float,
    y: float,
    text: str,
    *,
    anchor: str = "start",
    size: int = 12,
    weight: str = "normal",
    colour: str = "#222",
) -> str:
    style = f'text-anchor="{anchor}" font-size="{size}" font-weight="{weight}" fill="{colour}"'
    return f'<text x="{x:.1f}" y="{y:.1f}" {style}>{escape(text)}</text>'
