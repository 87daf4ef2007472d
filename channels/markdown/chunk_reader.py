"""Reader of the Markdown of one platform message (chunk), which finds its end."""

import re
from bisect import bisect_left
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace

from channels.markdown.blocks import (
    LINE_END,
    BlockContext,
    BlockParser,
    LineKind,
    missing_indent,
    split_quote,
    starts_block,
)
from channels.markdown.dialect import MessageLimits
from channels.markdown.renderer import (
    TABLE_MARKS,
    TABLE_SEPARATION_SIZE,
    ChunkWriter,
    SourceLine,
    TextEnding,
    closing_size,
    group_lines,
    make_text_table,
    opening_size,
    remove_deep_indent,
)
from channels.markdown.split_points import find_split
from channels.markdown.spoilers import SPOILER
from channels.markdown.tables import TextTable

#: Incomplete lines that may become another kind of block when they are complete.
_UNDECIDED = re.compile(r"[ \t]*+(?:(?:\||`{3}|~{3}).*|[-+*=_#>~` \t]*|\d{1,9}[.)][ \t]*)", re.DOTALL)
_UNDECIDED_CODE = re.compile(r"[ \t>]*[`~]+[ \t]*")
_UNDECIDED_DELIMITER = re.compile(r"[\s|:-]*")

#: Lines that may end with open emphasis.
_PROSE_KINDS = {LineKind.TEXT, LineKind.HEADING}

#: Complete blank lines.
_BLANKS = re.compile(r"(?:[ \t]*+(?:\r\n|\r(?!\n|\Z)|\n))++")

_FENCE_BEGUN = re.compile(r"`{3,}|~{3,}")
_VISIBLE = re.compile(r"\S")


@dataclass(frozen=True, slots=True)
class ChunkBreak:
    """End of a full chunk (the text of one platform message).

    Attributes:
        position: the index in the reader's `source` after the chunk.
        text: the rendered text of the chunk; empty if nothing is visible.
    """

    position: int
    text: str
    context: BlockContext


class ChunkReader:
    """Reads growing Markdown, and finds the end of a chunk (the text of one message).

    The end of the chunk does not depend on the pieces in which the text comes: each decision depends only on the text
    before it, as if the text came character by character.

    Args:
        hidden_size: the number of characters between the last chunk and `source`, which rendered to nothing visible.
            The reader does not use it: the caller adds it to the next chunk's size in the reply's text.
    """

    def __init__(self, limits: MessageLimits, context: BlockContext, source: str = "", hidden_size: int = 0) -> None:
        self.source = source
        self.hidden_size = hidden_size
        self._limits = limits
        self._capacity = limits.chunk_size - limits.status_reserve
        self._reset(context)

    def feed(self, text: str) -> None:
        self.source += text

    def _reset(self, context: BlockContext) -> None:
        self.context = context
        self._parser = BlockParser(context, self._table_fits)
        self._lines: list[SourceLine] = []
        self._position = 0
        self._writer = self._new_writer()
        self._written_lines = 0  # number of lines that the writer has
        self._is_blank = True
        self._size_before_line = (0, 0)
        self._size = opening_size(context, self._limits.dialect, self._limits.measure)
        self._gap_size = 0
        self._text_table: TextTable | None = None
        self._row_count = 0
        self._may_hide = SPOILER in context.marks
        if context.table:
            self._open_table(context.table.head, context.table.delimiter)

    def find_break(self, *, is_final: bool = False) -> ChunkBreak | None:
        """Parse the new lines of `source`; return the end of the chunk if it is full.

        A new reader is needed for the text after it. If the source `is_final`, its last line needs no line end.
        """
        while self._position < len(self.source):
            line, end = self._next_line(is_final=is_final)
            stop = self._overflow_position(line)
            if stop is not None and self._is_blank and self.context.table:  # too long for a row
                self._reset(replace(self.context, table=None))
                continue
            if stop is not None:
                kind = self._kind_of_partial_line(line[:stop])
                return self._make_break(SourceLine(kind, self._position, line[:stop], "", self._parser.context))
            if end is None:
                return None
            complete = SourceLine(self._parser.parse_line(line), self._position, line, end, self._parser.context)
            if not self._append_line(complete):
                return self._make_break(complete)
        return None

    def render(self, *, is_final: bool = False) -> ChunkWriter:
        """Render the text so far; call it only if `find_break` has returned None.

        Unless the text `is_final`, a line that may become another kind of block is left out.
        """
        *settled, lines = group_lines(self._lines[self._written_lines :]) or [[]]
        for block in settled:
            self._writer.write(block)
            self._written_lines += len(block)
        rest = self.source[self._position :]
        if not is_final and self._parser.may_be_table_head and _UNDECIDED_DELIMITER.fullmatch(rest):
            lines = lines[:-1]
        elif rest and (is_final or not self._is_undecided(rest)):
            lines = [*lines, SourceLine(self._growing_line_kind(rest), self._position, rest, "", self._parser.context)]
        writer = self._writer.fork()
        writer.write(lines, TextEnding.WHOLE if is_final else TextEnding.GROWING)
        return writer

    def _next_line(self, *, is_final: bool) -> tuple[str, str | None]:
        """Return the next line of `source` and its line end, which is None if the line may be incomplete.

        Consecutive blank lines outside of code are returned as one.
        """
        found = LINE_END.search(self.source, self._position)
        if found is None:
            return self.source[self._position :], "" if is_final else None
        is_open = found[0] == "\r" and found.end() == len(self.source) and not is_final  # a line feed may follow
        line = self.source[self._position : found.start()]
        end = None if is_open else found[0]
        if (
            end
            and not line.strip()
            and not self._parser.context.fence
            and (more := _BLANKS.match(self.source, found.end()))
        ):
            end += more[0]
        return line, end

    def _overflow_position(self, line: str) -> int | None:
        """Return the length of the shortest start of a line that overflows the chunk, if any does."""
        room = self._capacity - self._size - self._gap_size
        min_size = max(room, 0) + (len(line) - len(line.lstrip()) if self._is_blank else 0)
        ink = _VISIBLE.search(line, min_size)  # every platform counts at least one unit per character
        head = line[: ink.end()] if ink else line.rstrip()
        if not head or self._max_size(head) <= room:
            return None
        stop = bisect_left(range(len(head)), room + 1, key=lambda stop: self._max_size(head[:stop].rstrip()))
        return max(stop, len(head) - len(head.lstrip()) + 1)

    def _max_size(self, line: str, kind: LineKind | None = None) -> int:
        """Return the most that a line can measure when rendered; the kind of an incomplete line is None."""
        if self._is_blank:
            line = remove_deep_indent(line)
        size = self._limits.measure(line) + self._limits.dialect.max_growth(line)
        if self._limits.dialect.has_spoilers and (self._may_hide or SPOILER in line):
            # The line's spoiler may be closed and reopened, and pipes in code are separated.
            size += 2 * self._limits.measure(SPOILER) + line.count("|")
        place = self._parser.context
        if kind in _PROSE_KINDS or (kind is None and not place.fence and not place.table):
            size += sum(map(line.count, "*_~`"))  # each open mark is closed with as many
        if place.fence and self._limits.dialect.nests_code:
            size += missing_indent(place.fence, line)
        if kind is None and not place.fence and (fence := _FENCE_BEGUN.search(line)):
            empty = split_quote(line)[0] + self._limits.dialect.empty_code_line
            size += fence.end() + 1 + self._limits.measure(empty)
        return size

    def _append_line(self, line: SourceLine) -> bool:
        """Append a complete line to the chunk if it fits; return whether it does."""
        size = self._size
        gap = self._gap_size
        is_blank = self._is_blank
        match line.kind:
            case LineKind.BLANK:
                pass
            case LineKind.DELIMITER:
                self._lines[-1] = replace(self._lines[-1], kind=LineKind.TABLE_HEAD)
                self._size, self._gap_size = self._size_before_line
                self._open_table(self._lines[-1].text, line.text)
            case LineKind.ROW if not self._text_table and self._row_count >= self._limits.dialect.max_table_rows:
                return False
            case LineKind.ROW if self._text_table:
                old_size = self._text_table.size
                self._text_table.add_row(line.text)
                self._size += self._text_table.size - old_size
            case _:
                self._size += self._gap_size + self._max_size(line.text.rstrip(), line.kind)
        if line.kind is LineKind.FENCE and line.context.fence:
            self._size += closing_size(line.context.fence, self._limits.dialect, self._limits.measure)
        if line.text.strip():
            if self._size > self._capacity:
                return False
            self._size_before_line = (size, gap)
            self._gap_size = 0
            self._is_blank = False
        if not is_blank or line.text.strip():  # a message starts with its first visible line
            self._gap_size += self._limits.measure(line.text[len(line.text.rstrip()) :] + line.end)
        self._row_count += line.kind is LineKind.ROW
        self._may_hide |= SPOILER in line.text
        self._lines.append(line)
        self._position = line.stop
        return True

    def _kind_of_partial_line(self, line: str) -> LineKind:
        """Return the kind to assume for an incomplete line: the one that measures most when rendered."""
        place = self._parser.context
        if place.fence:
            return LineKind.CODE
        if self._parser.may_be_table_head and _UNDECIDED_DELIMITER.fullmatch(line):
            return LineKind.DELIMITER
        return LineKind.ROW if place.table and "|" in line else LineKind.TEXT

    def _make_break(self, last: SourceLine) -> ChunkBreak:
        """Split the chunk at the best point, and render the part before it."""
        known = self.source[: last.start + len(last.text)]
        has_spoilers = self._limits.dialect.has_spoilers
        at = find_split([*self._lines, last], known, self.context.marks, has_spoilers=has_spoilers)
        lines = [line for line in self._lines if line.stop <= at]
        place = lines[-1].context if lines else replace(self.context, quote="", marks=())
        rest = ""
        line = next((line for line in [*self._lines, last] if line.start < at < line.start + len(line.text)), None)
        if line:
            reader = BlockParser(place, self._table_fits)
            kind = reader.parse_line(line.text[: at - line.start])
            text = line.text[: at - line.start]
            place = reader.context
            if kind is LineKind.ROW:  # the columns of a partial row may not fit
                kind = LineKind.TEXT
                place = replace(place, table=None)
            lines.append(SourceLine(kind, line.start, text, "", place))
            rest = split_quote(text)[0] if kind is LineKind.TEXT else ""
        continues = bool(line) or _continues_paragraph(lines, known[at:])
        writer = self._new_writer()
        writer.write(lines, TextEnding.CUT if continues else TextEnding.WHOLE)
        return ChunkBreak(at, writer.text, replace(place, quote=rest, marks=writer.marks))

    def _new_writer(self) -> ChunkWriter:
        return ChunkWriter(self.context, self._limits.dialect, self._limits.measure)

    def _is_undecided(self, rest: str) -> bool:
        """Return whether more text may make an incomplete line another kind of block."""
        place = self._parser.context
        if place.fence:
            return bool(_UNDECIDED_CODE.fullmatch(rest))
        return bool(_UNDECIDED.fullmatch(rest)) or bool(place.table and not place.table.head.lstrip().startswith("|"))

    def _growing_line_kind(self, rest: str) -> LineKind:
        """Return the kind as which to render an incomplete line."""
        kind = copy(self._parser).parse_line(rest)
        return kind if kind in (LineKind.CODE, LineKind.HEADING, LineKind.COMMENT) else LineKind.TEXT

    def _open_table(self, head: str, delimiter: str) -> None:
        self._size += self._gap_size + self._table_size(head, delimiter)
        self._gap_size = 0
        is_text = not self._limits.dialect.renders_table(delimiter)
        self._text_table = self._make_text_table(head, delimiter) if is_text else None
        self._row_count = 1

    def _make_text_table(self, head: str, delimiter: str) -> TextTable:
        return make_text_table(head, delimiter, self._limits.dialect, self._limits.measure)

    def _table_size(self, head: str, delimiter: str, row: str = "") -> int:
        """Return the most that a table can measure when rendered."""
        measure = self._limits.measure
        growth = self._limits.dialect.max_growth
        if self._limits.dialect.renders_table(delimiter):
            lines = [line for line in (head, delimiter, row) if line]
            return TABLE_SEPARATION_SIZE + sum(measure(f"{line}\n") + growth(line) for line in lines)
        columns = self._make_text_table(head, delimiter)
        plain = columns.size
        if row:
            columns.add_row(row)
        return 2 * measure(f"{TABLE_MARKS}{SPOILER}\n") + max(columns.size, plain + measure(row) + growth(row))

    def _table_fits(self, head: str, delimiter: str, row: str) -> bool:
        return self._table_size(head, delimiter, row) <= self._capacity


def _continues_paragraph(lines: Sequence[SourceLine], rest: str) -> bool:
    """Return whether a text continues the paragraph at the end of some lines."""
    line = LINE_END.split(rest, maxsplit=1)[0]
    return bool(lines) and lines[-1].kind is LineKind.TEXT and bool(line.strip()) and not starts_block(line)
