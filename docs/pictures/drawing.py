"""SVG nodes, arrows and labels of the diagrams, in light and dark colours."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape

INK, GREY, PALE, BACKGROUND = "#222", "#666", "#d6dbe3", "white"
BLUE, RED, GREEN = "#0b6bcb", "#c4320a", "#0f7b4f"

#: Colours on a dark page, by the colour on a light one.
_DARK_COLOURS = {
    BACKGROUND: "#0d1117",
    INK: "#e6edf3",
    GREY: "#9da7b3",
    "#555": "#9da7b3",
    PALE: "#3d444d",
    "#ddd": "#3d444d",
    BLUE: "#58a6ff",
    RED: "#ff8a70",
    GREEN: "#3fb950",
    "#8a4fbe": "#bc8cff",
    "#a16207": "#d9a441",
    "#b0276e": "#f778ba",
    "#eef3fb": "#16243a",
    "#fbfcfe": "#161b22",
}

#: Style element that changes the colours of a picture's attributes on a dark page.
DARK_STYLE = "\n".join(
    [
        "<style>@media (prefers-color-scheme: dark) {",
        *(
            f'[fill="{light}"] {{ fill: {dark} }} [stroke="{light}"] {{ stroke: {dark} }}'
            for light, dark in _DARK_COLOURS.items()
        ),
        "}</style>",
    ]
)

#: Approximate width of a label's character, and height of a line, in pixels.
_CHARACTER_WIDTH, LINE_HEIGHT = 6.6, 17

_ARROW_MARKER = (
    '<marker id="arrow" viewBox="0 0 8 8" refX="7.5" refY="4" markerWidth="7" markerHeight="7" '
    f'orient="auto"><path d="M0 0L8 4L0 8z" fill="{GREY}"/></marker>'
)


@dataclass(frozen=True, slots=True)
class Node:
    """Node that arrows connect.

    Attributes:
        x, y: its centre, in pixels.
        label: the text; "" for the dot at which a diagram begins.
        is_end: whether it is a final state.
    """

    x: float
    y: float
    label: str = ""
    is_end: bool = False

    @property
    def width(self) -> float:
        return 12 if not self.label else 26 + _CHARACTER_WIDTH * 1.1 * max(map(len, self.label.split("\n")))

    @property
    def height(self) -> float:
        return 12 if not self.label else 20 + LINE_HEIGHT * len(self.label.split("\n"))

    def find_border_point(self, x: float, y: float) -> tuple[float, float]:
        """Return the point at which a line from the centre to (x, y) leaves the node."""
        dx, dy = x - self.x, y - self.y
        fraction = min(
            (self.width / 2 + 2) / abs(dx) if dx else math.inf,
            (self.height / 2 + 2) / abs(dy) if dy else math.inf,
        )
        return self.x + dx * fraction, self.y + dy * fraction

    def to_svg(self) -> list[str]:
        if not self.label:
            return [f'<circle cx="{self.x:g}" cy="{self.y:g}" r="6" fill="{INK}"/>']
        lines = self.label.split("\n")
        top = self.y - LINE_HEIGHT * (len(lines) - 1) / 2 + 4.5
        words = [
            text(self.x, top + LINE_HEIGHT * row, line, anchor="middle", size=13) for row, line in enumerate(lines)
        ]
        left, box_top = self.x - self.width / 2, self.y - self.height / 2
        boxes = [box(left, box_top, self.width, self.height, fill="#eef3fb", stroke=BLUE)]
        if self.is_end:
            boxes.append(box(left + 3, box_top + 3, self.width - 6, self.height - 6, fill="none", stroke=BLUE))
        return [*boxes, *words]


@dataclass(frozen=True, slots=True)
class Arrow:
    """Arrow from one node to another, by name.

    Attributes:
        bend: its distance from the straight line, in pixels to the left of its direction.
    """

    source: str
    target: str
    label: str = ""
    bend: float = 0

    def to_svg(self, nodes: Mapping[str, Node]) -> list[str]:
        start, end = nodes[self.source], nodes[self.target]
        dx, dy = end.x - start.x, end.y - start.y
        length = math.hypot(dx, dy)
        control_x = (start.x + end.x) / 2 + 2 * self.bend * dy / length
        control_y = (start.y + end.y) / 2 - 2 * self.bend * dx / length
        (x, y), (to_x, to_y) = (node.find_border_point(control_x, control_y) for node in (start, end))
        path = f"M{x:.1f} {y:.1f}Q{control_x:.1f} {control_y:.1f} {to_x:.1f} {to_y:.1f}"
        label_x, label_y = (x + 2 * control_x + to_x) / 4, (y + 2 * control_y + to_y) / 4
        lines = self.label.split("\n")
        if abs(y - to_y) < 1 and not self.bend:  # above the line, which may be short
            label_y -= LINE_HEIGHT * len(lines) / 2 + 1
        words = [
            part
            for row, line in enumerate(lines)
            for part in _draw_label(label_x, label_y + 4 + LINE_HEIGHT * (row - (len(lines) - 1) / 2), line)
        ]
        return [f'<path d="{path}" fill="none" stroke="{GREY}" marker-end="url(#arrow)"/>', *words]


def _draw_label(x: float, y: float, words: str) -> list[str]:
    """Return the SVG elements of an arrow's label, centred at x."""
    width = _CHARACTER_WIDTH * len(words)
    ground = box(x - width / 2, y - 12, width, LINE_HEIGHT, fill=BACKGROUND)
    return [ground, text(x, y, words, anchor="middle", colour=GREY)] if words else []


def diagram(width: float, height: float, nodes: Mapping[str, Node], arrows: Iterable[Arrow]) -> str:
    paths = [part for arrow in arrows for part in arrow.to_svg(nodes)]
    return svg(width, height, [*paths, *(part for node in nodes.values() for part in node.to_svg())])


def svg(width: float, height: float, parts: Sequence[str]) -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}"'
    ground = f'<rect width="{width:g}" height="{height:g}" fill="{BACKGROUND}"/>'
    begin = f'{head} font-family="system-ui, sans-serif">'
    return "\n".join([begin, DARK_STYLE, f"<defs>{_ARROW_MARKER}</defs>", ground, *parts, "</svg>", ""])


def box(x: float, y: float, width: float, height: float, *, fill: str, stroke: str = "none") -> str:
    attributes = f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"'
    return f'<rect {attributes} rx="5" fill="{fill}" stroke="{stroke}"/>'


def line(
    x: float, y: float, to_x: float, to_y: float, *, colour: str = PALE, width: float = 1, dashes: str = ""
) -> str:
    dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
    return f'<path d="M{x:.1f} {y:.1f}L{to_x:.1f} {to_y:.1f}" stroke="{colour}" stroke-width="{width:g}"{dashed}/>'


def text(
    x: float,
    y: float,
    words: str,
    *,
    anchor: str = "start",
    size: float = 12,
    colour: str = INK,
    weight: str = "normal",
    font: str = "",
) -> str:
    style = f'text-anchor="{anchor}" font-size="{size:g}" font-weight="{weight}" fill="{colour}"'
    family = f' font-family="{font}"' if font else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" {style}{family} xml:space="preserve">{escape(words)}</text>'
