"""Renders lines of Markdown as one message in a platform's dialect."""

import re
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, replace
from enum import Enum, auto

from channels.markdown import inline_renderer
from channels.markdown.blocks import (
    COMMENT_END,
    BlockContext,
    CodeFence,
    LineKind,
    dedent,
    missing_indent,
    split_quote,
    starts_block,
)
from channels.markdown.dialect import Dialect
from channels.markdown.inline import InlineParser
from channels.markdown.spoilers import SPOILER, break_spoilers, hide_lines
from channels.markdown.tables import CELL_SEPARATOR, TextTable

#: Most characters of indent at the start of a message.
MAX_INDENT = 80

#: Longest info string that a continued code block repeats.
_MAX_REPEATED_INFO = 40

#: Line break in a table cell, which only HTML can make.
_LINE_BREAK = re.compile(r"\n *")

#: Markers before the text of a rendered line, such as those of a list item.
_LINE_MARKERS = re.compile(r"[ \t]*+(?:(?:>|(?:[-*+]|\d{1,9}[.)]|-#|☐|☑)(?=[ \t]))[ \t]*+)*+")

_HEADING_MARKS = re.compile(r"[ \t]*#+[ \t]*")
TABLE_KINDS = {LineKind.TABLE_HEAD, LineKind.DELIMITER, LineKind.ROW}

#: Pairs of lines without a blank line between them that some Markdown parsers take for one block.
_NEEDS_BLANK_LINE = {
    (LineKind.TEXT, LineKind.TABLE_HEAD),
    (LineKind.DELIMITER, LineKind.TEXT),
    (LineKind.ROW, LineKind.TEXT),
}

#: The most that the blank lines before and after a table measure, in the platform's unit.
TABLE_SEPARATION_SIZE = 4

#: Fence around a table on a platform without tables.
TABLE_MARKS = "```"


class TextEnding(Enum):
    """End of the lines of a message.

    Attributes:
        WHOLE: the end of a block; no block or mark is open.
        CUT: within a paragraph, which the next message continues.
        GROWING: the end of a growing text, which more text may follow.
    """

    WHOLE = auto()
    CUT = auto()
    GROWING = auto()


@dataclass(frozen=True, slots=True)
class SourceLine:
    """Line of a message's Markdown, with its kind, its line end and the blocks open after it."""

    kind: LineKind
    start: int
    text: str
    end: str
    context: BlockContext

    @property
    def stop(self) -> int:
        """The index in the message's source after the line and its line end."""
        return self.start + len(self.text) + len(self.end)


def group_lines(lines: Sequence[SourceLine]) -> list[Sequence[SourceLine]]:
    """Return the lines in groups, in order: one per paragraph, list item or table, and one per other line."""
    groups = list[Sequence[SourceLine]]()
    at = 0
    while at < len(lines):
        stop = at + 1
        if lines[at].kind is LineKind.TEXT:
            while stop < len(lines) and lines[stop].kind is LineKind.TEXT and not starts_block(lines[stop].text):
                stop += 1
        elif lines[at].kind in TABLE_KINDS:
            while stop < len(lines) and lines[stop].kind in (LineKind.DELIMITER, LineKind.ROW):
                stop += 1
        groups.append(lines[at:stop])
        at = stop
    return groups


class ChunkWriter:
    """Renders the Markdown lines of one platform message (chunk) in a dialect.

    Blocks and emphasis that a split cuts are closed at the end of the message, and reopened at the start of the next.

    Attributes:
        marks: the emphasis and code marks that were open at the end of a cut paragraph, the outermost first. They
            include the mark of an open spoiler, also between paragraphs.
        spoiler_start: the index in the source of the message of the mark that opened the last spoiler; None before the
            first one.
    """

    def __init__(self, context: BlockContext, dialect: Dialect, measure: Callable[[str], int]) -> None:
        self.marks: tuple[str, ...] = tuple(mark for mark in context.marks if mark == SPOILER)
        self.spoiler_start: int | None = None
        self._context = context
        self._dialect = dialect
        self._measure = measure
        self._out: list[str] = []
        self._is_blank = True
        self._dedent = 0
        self._fence: CodeFence | None = None
        self._closing_marks = ""
        self._fence_spoiler = ""  # mark around the open code block
        self._has_code = False
        self._last_kind = LineKind.BLANK
        self._skips_blank = False
        self._unsettled_size = 0  # size of the end that more text may change

    @property
    def settled_size(self) -> int:
        """The number of characters of `text` that later text is not expected to change.

        White space and the closing fence at the end do not count. Of a growing paragraph or heading, only the part up
        to its `inline_renderer.stable_part` counts.
        """
        text = "".join(self._out)
        return min(len(text) - self._unsettled_size, len(text.rstrip()))

    @property
    def text(self) -> str:
        """The rendered text with all blocks closed; empty if nothing is visible."""
        text = "".join(self._out).rstrip()
        if self._fence:
            text += f"\n{self._closing_line()}"
        return text if text.strip() else ""

    def fork(self) -> "ChunkWriter":
        """Return a copy of this writer; lines written to the copy do not change this one."""
        self._out = ["".join(self._out)]
        fork = copy(self)
        fork._out = [*self._out]
        return fork

    def write(self, lines: Sequence[SourceLine], ending: TextEnding = TextEnding.WHOLE) -> None:
        """Render lines, and append them; `ending` is the end of their last group (see `group_lines`)."""
        groups = group_lines(lines)
        for number, group in enumerate(groups, 1):
            if group[0].kind is LineKind.COMMENT:
                text = _visible_text(group[0])
                if not text.strip():
                    self._skips_blank |= self._last_kind is LineKind.BLANK
                    continue
                group = [replace(group[0], kind=LineKind.TEXT, text=text.lstrip())]  # noqa: PLW2901  # as shown
            if self._skips_blank and group[0].kind is LineKind.BLANK:  # the blank line before the comment is enough
                continue
            self._skips_blank = False
            is_first = self._is_blank
            if is_first and not group[0].text.strip():  # a message starts with its first visible line
                continue
            if is_first:
                self._is_blank = False
                self._open_chunk(group[0])
            before = self._last_kind
            size = len(self._out)
            self._write_group(group, ending if number == len(groups) else TextEnding.WHOLE, is_first=is_first)
            if group[0].kind is LineKind.TEXT and not "".join(self._out[size:]).strip():  # it had only tags
                del self._out[size:]
                self._skips_blank = before is LineKind.BLANK
                self._last_kind = before

    def _open_chunk(self, first: SourceLine) -> None:
        """Reopen the code block in which the message starts, or store the indent of its list item."""
        fence = self._context.fence
        indent = len(first.text) - len(first.text.lstrip(" "))
        if fence and first.kind in (LineKind.CODE, LineKind.FENCE_END):
            self._dedent = fence.indent
            self._open_fence(fence, fence.quote, repeated_info(fence))
            self._out.append("\n")
        elif self._context.item_indents:
            self._dedent = indent

    def _write_group(self, lines: Sequence[SourceLine], ending: TextEnding, *, is_first: bool) -> None:
        line = lines[0]
        if self._dialect.max_table_columns and (self._last_kind, line.kind) in _NEEDS_BLANK_LINE:
            self._out.append("\n\n" if self._out[-1].endswith("\r") else "\n")
        self._last_kind = lines[-1].kind
        if self._fence and line.kind not in (LineKind.CODE, LineKind.FENCE_END):  # its block quote ended
            self._out.append(f"{self._closing_line()}\n")
            self._fence = None
        match line.kind:
            case LineKind.TEXT:
                self._write_paragraph(lines, ending, is_first=is_first)
            case LineKind.HEADING:
                self._write_heading(line, ending)
            case LineKind.RULE:
                self._out += [self._dialect.render_rule(self._dedent_line(line.text)), line.end]
            case LineKind.FENCE:
                assert line.context.fence is not None
                text = dedent(line.text, self._removed_indent(line.context.fence))
                marks = line.context.fence.marks
                self._open_fence(line.context.fence, text[: text.index(marks)], line.context.fence.info)
                self._out.append(line.end)
            case LineKind.CODE:
                self._has_code |= bool(line.text.strip())
                text = dedent(line.text, self._removed_indent(self._fence))
                text = self._dialect.render_code_line(self._indent_in_item(text))
                self._out += [break_spoilers(text) if self._fence_spoiler else text, line.end]
            case LineKind.FENCE_END:
                self._out += [self._closing_line(), line.end]
                self._fence = None
            case _ if line.kind in TABLE_KINDS:
                self._write_table(lines)
            case _:
                self._out += [line.text, line.end]

    def _write_paragraph(self, lines: Sequence[SourceLine], ending: TextEnding, *, is_first: bool) -> None:
        text = "".join(self._dialect.render_line(self._dedent_line(line.text)) + line.end for line in lines)
        if is_first:
            text = remove_deep_indent(text)
        marks = self.marks
        if is_first and not starts_block(lines[0].text):
            marks = self._context.marks
            self._out.append(self._context.quote)
        elif marks and (markers := _LINE_MARKERS.match(text)):
            self._out.append(markers[0])
            text = text[markers.end() :]
        before = len(self._out)
        self._write_inline(text, marks, ending)
        self._find_spoiler_start(lines, text)
        if self._dialect.has_spoilers and starts_block(lines[0].text):
            self._out[before:] = [hide_lines("".join(self._out[before:]))]

    def _dedent_line(self, line: str) -> str:
        """Return a line without the indent of the list item in which the message starts.

        A line with less indent reduces the removed indent for all later lines.
        """
        self._dedent = min(self._dedent, len(line) - len(line.lstrip(" ")))
        return line[self._dedent :]

    def _write_heading(self, line: SourceLine, ending: TextEnding) -> None:
        found = _HEADING_MARKS.match(line.text)
        marks = found[0] if found else ""
        before = len(self._out)
        self._write_inline(line.text[len(marks) :], self.marks, ending)
        self._find_spoiler_start([line], line.text[len(marks) :])
        text = "".join(self._out[before:])
        if self._dialect.has_spoilers:
            text = hide_lines(text)
        rendered = self._dialect.render_heading(marks.lstrip(), text) if text.strip() else ""
        self._out[before:] = [inline_renderer.break_unknown_links(rendered, self._dialect), line.end]

    def _write_inline(self, text: str, marks: tuple[str, ...], ending: TextEnding) -> None:
        source = text
        grows = ending is TextEnding.GROWING
        if grows:
            text = inline_renderer.remove_unfinished(source, marks, has_spoilers=self._dialect.has_spoilers)
        rendered = inline_renderer.render_inline(text, self._dialect, marks, is_cut=ending is not TextEnding.WHOLE)
        if grows:
            stable = inline_renderer.render_inline(
                inline_renderer.stable_part(source, self._dialect, marks), self._dialect, marks, is_cut=True
            )
            self._unsettled_size = len(rendered.text) - len(stable.text.rstrip()) + sum(map(len, stable.marks))
        self.marks = tuple(mark for mark in rendered.marks if ending is TextEnding.CUT or mark == SPOILER)
        self._out.append(rendered.text)

    def _find_spoiler_start(self, lines: Sequence[SourceLine], text: str) -> None:
        """Set `spoiler_start` to the last spoiler mark of a paragraph, if that opens a spoiler."""
        if self.marks and (spoilers := InlineParser(text, has_spoilers=True).spoilers):
            source = "".join(line.text + line.end for line in lines)
            pipes = [found.start() for found in re.finditer(r"\|", source)]
            self.spoiler_start = lines[0].start + pipes[-text.count("|", spoilers[-1])]

    def _write_table(self, lines: Sequence[SourceLine]) -> None:
        repeated = self._context.table if lines[0].kind is LineKind.ROW else None
        head, delimiter = (repeated.head, repeated.delimiter) if repeated else (lines[0].text, lines[1].text)
        if self._dialect.renders_table(delimiter):
            if repeated:
                self._out += [f"{self._render_row(repeated.head)}\n", f"{repeated.delimiter}\n"]
            for line in lines:
                self._out += [self._render_row(line.text), line.end]
            return
        columns = make_text_table(head, delimiter, self._dialect, self._measure)
        for line in lines if repeated else lines[2:]:
            columns.add_row(line.text)
        body = "\n".join(map(self._dialect.render_code_line, columns.render_lines()))
        spoiler = SPOILER if self.marks or columns.has_spoiler else ""
        body = break_spoilers(body) if spoiler else body
        self._out += [f"{spoiler}{TABLE_MARKS}\n{body}\n{TABLE_MARKS}{spoiler}", lines[-1].end]

    def _render_row(self, line: str) -> str:
        """Return a table row rendered cell by cell, so that no code continues into the next cell."""
        cells = (inline_renderer.render_inline(cell, self._dialect).text or cell for cell in CELL_SEPARATOR.split(line))
        row = "|".join(cells)
        return _LINE_BREAK.sub(" ", row) if "\n" in row else row

    def _open_fence(self, fence: CodeFence, before: str, info: str) -> None:
        opening, self._closing_marks = self._dialect.render_fence(fence.marks, info)
        self._fence = fence
        self._has_code = False
        self._fence_spoiler = SPOILER if self.marks else ""
        self._out.append(before + self._fence_spoiler + opening)

    def _closing_line(self) -> str:
        """Return the closing fence of the open code block, after the line that an empty block may need."""
        fence = self._fence
        assert fence is not None
        before = fence.quote + " " * (fence.indent - self._removed_indent(fence))
        line = self._dialect.empty_code_line
        empty = "" if self._has_code or not line else f"{fence.quote}{line}\n"
        return f"{empty}{before}{self._closing_marks}{self._fence_spoiler}"

    def _indent_in_item(self, line: str) -> str:
        """Return a line of code with enough indent to stay in its list item."""
        assert self._fence is not None
        if not self._dialect.nests_code or not (missing := missing_indent(self._fence, line) - self._dedent) > 0:
            return line
        quote, rest = split_quote(line) if self._fence.quote else ("", line)
        return quote + " " * missing + rest

    def _removed_indent(self, fence: CodeFence | None) -> int:
        """Return the columns of indent to remove from the lines of a code block."""
        return self._dedent if self._dialect.nests_code or fence is None else max(self._dedent, fence.indent)


def _visible_text(line: SourceLine) -> str:
    """Return the text after the end of an HTML comment in a line of the kind `COMMENT`."""
    return "" if line.context.comment is not None else line.text.partition(COMMENT_END)[2]


def make_text_table(head: str, delimiter: str, dialect: Dialect, measure: Callable[[str], int]) -> TextTable:
    """Return a table as text, for a platform or a number of columns without tables."""
    return TextTable(
        head,
        delimiter,
        render_cell=inline_renderer.plain_text,
        measure=lambda cell: measure(cell) + dialect.max_growth(cell),
        finds_spoilers=dialect.has_spoilers,
    )


def remove_deep_indent(text: str) -> str:
    """Return a text without its leading spaces and tabs if they exceed `MAX_INDENT`."""
    return text.lstrip(" \t") if len(text) - len(text.lstrip(" \t")) > MAX_INDENT else text


def repeated_info(fence: CodeFence) -> str:
    """Return the info string for a code block's rest in the next message; empty if it is long."""
    return fence.info if len(fence.info) <= _MAX_REPEATED_INFO else ""


def opening_size(context: BlockContext, dialect: Dialect, measure: Callable[[str], int]) -> int:
    """Return the most that a message needs to reopen and close a code block and marks (not a table)."""
    size = measure(context.quote) + measure("".join([*context.marks, *inline_renderer.closing_marks(context.marks)]))
    if context.fence:
        size += closing_size(context.fence, dialect, measure)
        size += measure(f"{context.fence.quote}{context.fence.marks} \n")
        info = repeated_info(context.fence)
        size += measure(info) + dialect.max_growth(info)
    return size


def closing_size(fence: CodeFence, dialect: Dialect, measure: Callable[[str], int]) -> int:
    """Return the most that the closing lines of a code block measure, by `measure`."""
    empty = fence.quote + dialect.empty_code_line if dialect.empty_code_line else ""
    return measure(f"\n{empty}\n{fence.quote}{fence.marks}") + fence.indent
