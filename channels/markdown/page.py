"""One message in the making: reads the text that it is to show, and says where it is full."""

import re
from bisect import bisect_left
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace

from channels.markdown import inline
from channels.markdown.blocks import LINE_END, Kind, Place, Reader, begins_block, lacking, split_quote
from channels.markdown.dialect import Limits
from channels.markdown.renderer import (
    ROUND_TABLE,
    TABLE_MARKS,
    Ending,
    Line,
    Writer,
    blocks,
    closing_size,
    opening_size,
    without_deep_indent,
)
from channels.markdown.split_points import seam
from channels.markdown.tables import Columns

#: A line that is not complete and may become something else than it looks like.
_UNDECIDED = re.compile(r"[ \t]*+(?:(?:\||`{3}|~{3}).*|[-+*=_#>~` \t]*|\d{1,9}[.)][ \t]*)", re.DOTALL)
_UNDECIDED_CODE = re.compile(r"[ \t>]*[`~]+[ \t]*")
_UNDECIDED_DELIMITER = re.compile(r"[\s|:-]*")

#: Where emphasis may be open at the end.
_PROSE = {Kind.TEXT, Kind.HEADING}

#: Blank lines, of which the last one is complete.
_BLANKS = re.compile(r"(?:[ \t]*+(?:\r\n|\r(?!\n|\Z)|\n))++")

_FENCE_BEGUN = re.compile(r"`{3,}|~{3,}")
_INK = re.compile(r"\S")


@dataclass(frozen=True, slots=True)
class Cut:
    """The end of a message: where it is in the source, the text that is shown, and what is open there."""

    at: int
    text: str
    place: Place


class Page:
    """The text of one message, and what is known of the text behind it.

    It is read as if it came character by character: what is decided at some point depends on what stands before it
    and on nothing else, so that it does not matter in which pieces the text comes.

    Args:
        place: what is open where it begins.
        source: the text from there on, as far as it is known.
        unseen: how much text there is before it of which nothing is to be seen, and which is in no message yet.
    """

    def __init__(self, limits: Limits, place: Place, source: str = "", unseen: int = 0) -> None:
        self.source = source
        self.unseen = unseen
        self._limits = limits
        self._room = limits.chunk_size - limits.reserve
        self._begin(place)

    def feed(self, text: str) -> None:
        self.source += text

    def fork(self) -> "Page":
        """Another one that goes on from here."""
        fork = copy(self)
        fork._reader, fork._writer, fork._lines = copy(self._reader), self._writer.fork(), [*self._lines]
        fork._columns = self._columns and self._columns.fork()
        return fork

    def _begin(self, place: Place) -> None:
        self.place = place
        self._reader = Reader(place, self._fits)
        self._lines: list[Line] = []
        self._read = 0
        self._writer = self._new_writer()
        self._settled = 0  # how many of the lines are written for good
        self._is_blank = True
        self._before = (0, 0)
        self._size = opening_size(place, self._limits.dialect, self._limits.measure)
        self._gap = 0
        self._columns: Columns | None = None
        if place.table:
            self._open_table(place.table.head, place.table.delimiter)

    def cut(self, *, is_final: bool = False) -> Cut | None:
        """Where the message is full, if it is. A final text has no more to come."""
        while self._read < len(self.source):
            line, end = self._next_line(is_final=is_final)
            stop = self._crossing(line)
            if stop is not None and self._is_blank and self.place.table:  # too long for a row
                self._begin(replace(self.place, table=None))
                continue
            if stop is not None:
                line = line[:stop]
                return self._cut(Line(self._at_most(line), self._read, line, "", self._reader.place))
            if end is None:
                return None
            taken = Line(self._reader.read(line), self._read, line, end, self._reader.place)
            if not self._take(taken):
                return self._cut(taken)
        return None

    def written(self, *, is_final: bool = False) -> Writer:
        """What is shown of it so far; nothing if there is nothing to read yet."""
        *settled, lines = blocks(self._lines[self._settled :]) or [[]]
        for block in settled:
            self._writer.write(block)
            self._settled += len(block)
        rest = self.source[self._read :]
        if not is_final and self._reader.awaits_delimiter and _UNDECIDED_DELIMITER.fullmatch(rest):
            lines = lines[:-1]
        elif rest and (is_final or not self._is_undecided(rest)):
            lines = [*lines, Line(self._partial(rest), self._read, rest, "", self._reader.place)]
        writer = self._writer.fork()
        writer.write(lines, Ending.WHOLE if is_final else Ending.GROWING)
        return writer

    def _next_line(self, *, is_final: bool) -> tuple[str, str | None]:
        """The next line, or what there is of it, and what ends it: nothing if it is not complete. Blank ones come at
        once, however many.
        """
        found = LINE_END.search(self.source, self._read)
        if found is None:
            return self.source[self._read :], "" if is_final else None
        is_open = found[0] == "\r" and found.end() == len(self.source) and not is_final  # a line feed may follow
        line, end = self.source[self._read : found.start()], None if is_open else found[0]
        if (
            end
            and not line.strip()
            and not self._reader.place.fence
            and (more := _BLANKS.match(self.source, found.end()))
        ):
            end += more[0]
        return line, end

    def _crossing(self, line: str) -> int | None:
        """How much of `line` is more than the message holds, if it comes to that."""
        room = self._room - self._size - self._gap
        least = max(room, 0) + (len(line) - len(line.lstrip()) if self._is_blank else 0)
        ink = _INK.search(line, least)  # no platform counts less than one unit a character
        head = line[: ink.end()] if ink else line.rstrip()
        if not head or self._weigh(head) <= room:
            return None
        stop = bisect_left(range(len(head)), room + 1, key=lambda stop: self._weigh(head[:stop].rstrip()))
        return max(stop, len(head) - len(head.lstrip()) + 1)

    def _weigh(self, line: str, kind: Kind | None = None) -> int:
        """What a line costs at the most, without its end."""
        if self._is_blank:
            line = without_deep_indent(line)
        size = self._limits.measure(line) + self._limits.dialect.growth(line)
        place = self._reader.place
        if kind in _PROSE or (kind is None and not place.fence and not place.table):
            size += sum(map(line.count, "*_~`"))  # what is open is closed with as many marks
        if place.fence and self._limits.dialect.nests:
            size += lacking(place.fence, line)
        if kind is None and not place.fence and (fence := _FENCE_BEGUN.search(line)):
            size += fence.end() + 1 + self._limits.measure(self._limits.dialect.empty_code)
        return size

    def _take(self, line: Line) -> bool:
        """Count a complete line; whether it fits."""
        size, gap, is_blank = self._size, self._gap, self._is_blank
        match line.kind:
            case Kind.BLANK:
                pass
            case Kind.DELIMITER:
                self._lines[-1] = replace(self._lines[-1], kind=Kind.TABLE_HEAD)
                self._size, self._gap = self._before
                self._open_table(self._lines[-1].text, line.text)
            case Kind.ROW if self._columns:
                without = self._columns.size
                self._columns.add(line.text)
                self._size += self._columns.size - without
            case _:
                self._size += self._gap + self._weigh(line.text.rstrip(), line.kind)
        if line.kind is Kind.FENCE and line.place.fence:
            self._size += closing_size(line.place.fence, self._limits.dialect, self._limits.measure)
        if line.text.strip():
            if self._size > self._room:
                return False
            self._before, self._gap, self._is_blank = (size, gap), 0, False
        if not is_blank or line.text.strip():  # nothing is shown of what is blank at the head
            self._gap += self._limits.measure(line.text[len(line.text.rstrip()) :] + line.end)
        self._lines.append(line)
        self._read = line.stop
        return True

    def _at_most(self, line: str) -> Kind:
        """What the start of a line has to be taken for."""
        place = self._reader.place
        if place.fence:
            return Kind.CODE
        if self._reader.awaits_delimiter and _UNDECIDED_DELIMITER.fullmatch(line):
            return Kind.DELIMITER
        return Kind.ROW if place.table and "|" in line else Kind.TEXT

    def _cut(self, last: Line) -> Cut:
        """The cut, when the message is full within `last` or at its end."""
        known = self.source[: last.start + len(last.text)]
        at = seam([*self._lines, last], known, self.place.marks)
        lines = [line for line in self._lines if line.stop <= at]
        place, rest = (lines[-1].place if lines else replace(self.place, quote="", marks=())), ""
        line = next((line for line in [*self._lines, last] if line.start < at < line.start + len(line.text)), None)
        if line:
            reader = Reader(place, self._fits)
            kind, text = reader.read(line.text[: at - line.start]), line.text[: at - line.start]
            place = reader.place
            if kind is Kind.ROW:  # a part of one is none: its columns may need more room than there is
                kind, place = Kind.TEXT, replace(place, table=None)
            lines.append(Line(kind, line.start, text, "", place))
            rest = split_quote(text)[0] if kind is Kind.TEXT else ""
        goes_on = bool(line) or _goes_on(lines, known[at:])
        writer = self._new_writer()
        writer.write(lines, Ending.CUT if goes_on else Ending.WHOLE)
        return Cut(at, writer.text, replace(place, quote=rest, marks=writer.marks))

    def _new_writer(self) -> Writer:
        return Writer(self.place, self._limits.dialect, self._limits.measure)

    def _is_undecided(self, rest: str) -> bool:
        """Whether a line that is not complete had better wait."""
        place = self._reader.place
        if place.fence:
            return bool(_UNDECIDED_CODE.fullmatch(rest))
        return bool(_UNDECIDED.fullmatch(rest)) or bool(place.table and not place.table.head.lstrip().startswith("|"))

    def _partial(self, rest: str) -> Kind:
        """What a line that is not complete looks like."""
        kind = copy(self._reader).read(rest)
        return kind if kind in (Kind.CODE, Kind.HEADING) else Kind.TEXT

    def _open_table(self, head: str, delimiter: str) -> None:
        self._size += self._gap + self._table_size(head, delimiter)
        self._gap = 0
        self._columns = None if self._limits.dialect.tables else self._columns_of(head, delimiter)

    def _columns_of(self, head: str, delimiter: str) -> Columns:
        return Columns(head, delimiter, show=inline.plain, measure=self._limits.measure)

    def _table_size(self, head: str, delimiter: str, row: str = "") -> int:
        """What a table costs whose only row is `row`, if it has one."""
        measure, growth = self._limits.measure, self._limits.dialect.growth
        if self._limits.dialect.tables:
            lines = [line for line in (head, delimiter, row) if line]
            return ROUND_TABLE + sum(measure(f"{line}\n") + growth(line) for line in lines)
        columns = self._columns_of(head, delimiter)
        plain = columns.size
        if row:
            columns.add(row)
        return 2 * measure(f"{TABLE_MARKS}\n") + max(columns.size, plain + measure(row) + growth(row))

    def _fits(self, head: str, delimiter: str, row: str) -> bool:
        return self._table_size(head, delimiter, row) <= self._room


def _goes_on(lines: Sequence[Line], behind: str) -> bool:
    """Whether the paragraph that `lines` end with goes on in what stands `behind` them."""
    line = LINE_END.split(behind, maxsplit=1)[0]
    return bool(lines) and lines[-1].kind is Kind.TEXT and bool(line.strip()) and not begins_block(line)
