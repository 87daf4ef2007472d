"""Control characters in what people and bots write: they must not control the terminal."""

import re

from rich.segment import Segment
from textual.color import Color
from textual.filter import LineFilter

#: Controls except line feed and tab, line separators, marks of the direction of text, and half characters.
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def escape_controls(text: str) -> str:
    """Return a text with escapes, as in JSON, in place of characters that control a terminal."""
    return _CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


class ControlFilter(LineFilter):
    """Filter of Textual that removes control characters from each line of the screen.

    Textual 8.2 writes the text of a widget as it is. The characters have no width, so no cell of the line moves.
    """

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        del background
        return [Segment(_CONTROLS.sub("", text), style, control) for text, style, control in segments]
