"""Writes a stretch of Markdown as one message of its own, in a platform's dialect."""

import re
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from enum import Enum, auto

from channels.markdown import inline
from channels.markdown.blocks import Fence, Kind, Place, begins_block, dedented, lacking, split_quote
from channels.markdown.dialect import Dialect
from channels.markdown.tables import BAR, Columns

#: The most indentation that is kept at the head of a message, in characters.
MOST_INDENT = 80

#: The longest info string that is said again behind a cut.
_MOST_INFO = 40

_HEADING_MARKS = re.compile(r"[ \t]*#+[ \t]*")
_TABLE = {Kind.TABLE_HEAD, Kind.DELIMITER, Kind.ROW}

#: A table and a paragraph with no line between them, which not every reader of Markdown takes for two blocks.
_RUN_TOGETHER = {(Kind.TEXT, Kind.TABLE_HEAD), (Kind.DELIMITER, Kind.TEXT), (Kind.ROW, Kind.TEXT)}

#: What it costs, at the most, to part them, before the table and behind it.
ROUND_TABLE = 4

#: What a table is wrapped in where there are none.
TABLE_MARKS = "```"


class Ending(Enum):
    """How a stretch of text ends: whole, at a cut within a paragraph, or for the moment."""

    WHOLE = auto()
    CUT = auto()
    GROWING = auto()


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the text.

    Attributes:
        start: where it begins in the source of its message.
        text: without its end.
        end: what ends it; empty for the last one.
        place: what is open behind it.
    """

    kind: Kind
    start: int
    text: str
    end: str
    place: Place

    @property
    def stop(self) -> int:
        return self.start + len(self.text) + len(self.end)


def blocks(lines: Sequence[Line]) -> list[Sequence[Line]]:
    """The lines that belong together: paragraphs, items of lists, tables; all else line by line."""
    groups, at = list[Sequence[Line]](), 0
    while at < len(lines):
        stop = at + 1
        if lines[at].kind is Kind.TEXT:
            while stop < len(lines) and lines[stop].kind is Kind.TEXT and not begins_block(lines[stop].text):
                stop += 1
        elif lines[at].kind in _TABLE:
            while stop < len(lines) and lines[stop].kind in (Kind.DELIMITER, Kind.ROW):
                stop += 1
        groups.append(lines[at:stop])
        at = stop
    return groups


class Writer:
    """Writes lines into a text.

    Args:
        place: what is open where they begin.
        measure: the size of a text in the platform's own unit.

    Attributes:
        marks: the emphasis and the code that were open at a cut, and are closed.
    """

    def __init__(self, place: Place, dialect: Dialect, measure: Callable[[str], int]) -> None:
        self.marks: tuple[str, ...] = ()
        self._place = place
        self._dialect = dialect
        self._measure = measure
        self._out: list[str] = []
        self._is_blank = True
        self._dedent = 0
        self._fence: Fence | None = None
        self._closing = ""
        self._has_code = False
        self._last = Kind.BLANK
        self._loose = 0  # how much of the end may be written otherwise when more has come

    @property
    def settled(self) -> int:
        """How much of the text, from its start, stays as it is when more has come."""
        text = "".join(self._out)
        return min(len(text) - self._loose, len(text.rstrip()))

    @property
    def text(self) -> str:
        """All that is written, with what is open closed; nothing if there is nothing to read in it."""
        text = "".join(self._out).rstrip()
        if self._fence:
            text += f"\n{self._end_of_code()}"
        return text if text.strip() else ""

    def fork(self) -> "Writer":
        """Another one that goes on from here."""
        self._out = ["".join(self._out)]
        fork = copy(self)
        fork._out = [*self._out]
        return fork

    def write(self, lines: Sequence[Line], ending: Ending = Ending.WHOLE) -> None:
        """Write lines behind those that are written. `ending` is that of the last of their blocks."""
        groups = blocks(lines)
        for number, group in enumerate(groups, 1):
            is_first = self._is_blank
            if is_first and not group[0].text.strip():  # nothing is shown of what is blank at the head
                continue
            if is_first:
                self._is_blank = False
                self._begin(group[0])
            self._write(group, ending if number == len(groups) else Ending.WHOLE, is_first=is_first)

    def _begin(self, first: Line) -> None:
        fence = self._place.fence
        indent = len(first.text) - len(first.text.lstrip(" "))
        if fence and first.kind in (Kind.CODE, Kind.FENCE_END):
            self._dedent = fence.indent
            self._open(fence, fence.quote, info_again(fence))
            self._out.append("\n")
        elif self._place.margins:
            self._dedent = indent

    def _write(self, lines: Sequence[Line], ending: Ending, *, is_first: bool) -> None:
        """Write lines that belong together."""
        line = lines[0]
        if self._dialect.tables and (self._last, line.kind) in _RUN_TOGETHER:
            self._out.append("\n\n" if self._out[-1].endswith("\r") else "\n")
        self._last = lines[-1].kind
        if self._fence and line.kind not in (Kind.CODE, Kind.FENCE_END):  # the quotation that it was in is over
            self._out.append(f"{self._end_of_code()}\n")
            self._fence = None
        match line.kind:
            case Kind.TEXT:
                self._paragraph(lines, ending, is_first=is_first)
            case Kind.HEADING:
                self._heading(line, ending)
            case Kind.RULE:
                self._out += [self._dialect.rule(self._dedented(line.text)), line.end]
            case Kind.FENCE:
                assert line.place.fence is not None
                text, marks = dedented(line.text, self._indent_of(line.place.fence)), line.place.fence.marks
                self._open(line.place.fence, text[: text.index(marks)], line.place.fence.info)
                self._out.append(line.end)
            case Kind.CODE:
                self._has_code |= bool(line.text.strip())
                text = dedented(line.text, self._indent_of(self._fence))
                self._out += [self._dialect.code_line(self._in_item(text)), line.end]
            case Kind.FENCE_END:
                self._out += [self._end_of_code(), line.end]
                self._fence = None
            case _ if line.kind in _TABLE:
                self._table(lines)
            case _:
                self._out += [line.text, line.end]

    def _paragraph(self, lines: Sequence[Line], ending: Ending, *, is_first: bool) -> None:
        text = "".join(self._dialect.line(self._dedented(line.text)) + line.end for line in lines)
        if is_first:
            text = without_deep_indent(text)
        marks: tuple[str, ...] = ()
        if is_first and not begins_block(lines[0].text):
            marks = self._place.marks
            self._out.append(self._place.quote)
        self._inline(text, marks, ending)

    def _dedented(self, line: str) -> str:
        """`line` as far to the left as the list item that the message begins in; it may be one further out."""
        self._dedent = min(self._dedent, len(line) - len(line.lstrip(" ")))
        return line[self._dedent :]

    def _heading(self, line: Line, ending: Ending) -> None:
        found = _HEADING_MARKS.match(line.text)
        marks = found[0] if found else ""
        before = len(self._out)
        self._inline(line.text[len(marks) :], (), ending)
        text = "".join(self._out[before:])
        shown = self._dialect.heading(marks.lstrip(), text) if text.strip() else ""
        self._out[before:] = [inline.open_links(shown, self._dialect), line.end]

    def _inline(self, text: str, marks: tuple[str, ...], ending: Ending) -> None:
        source, grows = text, ending is Ending.GROWING
        if grows:
            text = inline.presentable(source, marks)
        shown = inline.show(text, self._dialect, marks, is_cut=ending is not Ending.WHOLE)
        if grows:
            sure = inline.show(inline.decided(source, marks), self._dialect, marks, is_cut=True)
            self._loose = len(shown.text) - len(sure.text.rstrip()) + sum(map(len, sure.marks))
        if ending is Ending.CUT:
            self.marks = shown.marks
        self._out.append(shown.text)

    def _table(self, lines: Sequence[Line]) -> None:
        repeated = self._place.table if lines[0].kind is Kind.ROW else None
        if self._dialect.tables:
            if repeated:
                self._out += [f"{self._cells(repeated.head)}\n", f"{repeated.delimiter}\n"]
            for line in lines:
                self._out += [self._cells(line.text), line.end]
            return
        head, delimiter = (repeated.head, repeated.delimiter) if repeated else (lines[0].text, lines[1].text)
        columns = Columns(head, delimiter, show=inline.plain, measure=self._measure)
        for line in lines if repeated else lines[2:]:
            columns.add(line.text)
        body = "\n".join(map(self._dialect.code_line, columns.lines()))
        self._out += [f"{TABLE_MARKS}\n{body}\n{TABLE_MARKS}", lines[-1].end]

    def _cells(self, line: str) -> str:
        """A row of a table; no code goes on from one cell to the next."""
        return "|".join(inline.show(cell, self._dialect).text or cell for cell in BAR.split(line))

    def _open(self, fence: Fence, before: str, info: str) -> None:
        opening, self._closing = self._dialect.fence(fence.marks, info)
        self._fence, self._has_code = fence, False
        self._out.append(before + opening)

    def _end_of_code(self) -> str:
        fence = self._fence
        assert fence is not None
        before = fence.quote + " " * (fence.indent - self._indent_of(fence))
        empty = "" if self._has_code or not self._dialect.empty_code else f"{self._dialect.empty_code}\n"
        return f"{empty}{before}{self._closing}"

    def _in_item(self, line: str) -> str:
        """A line of code, no further out than the item of a list that the code is in: it would end that."""
        assert self._fence is not None
        if not self._dialect.nests or not (lack := lacking(self._fence, line) - self._dedent) > 0:
            return line
        quote, rest = split_quote(line) if self._fence.quote else ("", line)
        return quote + " " * lack + rest

    def _indent_of(self, fence: Fence | None) -> int:
        """How much of the indentation of a block of code goes."""
        return self._dedent if self._dialect.nests or fence is None else max(self._dedent, fence.indent)


def without_deep_indent(text: str) -> str:
    """`text`, which a message begins with, without indentation that would push it out of sight."""
    return text.lstrip(" \t") if len(text) - len(text.lstrip(" \t")) > MOST_INDENT else text


def info_again(fence: Fence) -> str:
    """The info string, where a block of code goes on in another message."""
    return fence.info if len(fence.info) <= _MOST_INFO else ""


def opening_size(place: Place, dialect: Dialect, measure: Callable[[str], int]) -> int:
    """What a message costs, at the most, for what is open where it begins."""
    size = measure(place.quote) + 2 * measure("".join(place.marks))
    if place.fence:
        size += closing_size(place.fence, dialect, measure) + measure(f"{place.fence.quote}{place.fence.marks}\n")
        info = info_again(place.fence)
        size += measure(info) + dialect.growth(info)
    return size


def closing_size(fence: Fence, dialect: Dialect, measure: Callable[[str], int]) -> int:
    """What it costs, at the most, to close a block of code."""
    return measure(f"\n{fence.quote}{fence.marks}{dialect.empty_code}\n") + fence.indent
