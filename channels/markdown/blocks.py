"""Block structure of Markdown: the kind of each line, and the open blocks.

The parser covers the part of CommonMark (spec.commonmark.org) and of GitHub's tables that is needed to split a text
into messages.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum, auto

from channels.markdown.spoilers import SPOILER
from channels.markdown.tables import has_cell_separator, is_delimiter

#: Longest run of marks that opens a fence.
_MAX_FENCE_MARKS = 16

#: Start and end of an HTML comment. CommonMark: `<!-->` is a whole comment.
COMMENT_START, COMMENT_END = "<!--", "-->"

#: Deepest nesting of list items.
_MAX_NESTED_ITEMS = 8

#: CommonMark: a carriage return ends a line, with or without a line feed.
LINE_END = re.compile(r"\r\n?|\n")

_QUOTE = re.compile(r"(?: {0,3}> ?){0,8}")
_LAST_SEPARATOR = re.compile(r"(?<![|\\])\|\s*+\Z")
_INDENT = re.compile(r"[ \t]*")
_ITEM = re.compile(r"(?P<marker>(?:[-*+]|\d{1,9}[.)]))(?P<space>[ \t]{1,4})(?=\S)")
_FENCE = re.compile(rf"(?P<marks>`{{3,{_MAX_FENCE_MARKS}}}(?!`)|~{{3,{_MAX_FENCE_MARKS}}}(?!~))(?P<info>.*)")
_HEADING = re.compile(r" {0,3}#{1,6}(?:[ \t]+|$)")
_RULE = re.compile(r" {0,3}(?:(?:-[ \t]*+){3,}|(?:\*[ \t]*+){3,}|(?:_[ \t]*+){3,})")


class LineKind(Enum):
    """Kind of a Markdown line, by the block that it belongs to.

    Attributes:
        BLANK: white space only, outside of code.
        TEXT: a line of a paragraph, list item or block quote.
        COMMENT: a line of an HTML comment that begins a line; text after the comment's end is shown.
    """

    BLANK = auto()
    TEXT = auto()
    HEADING = auto()
    RULE = auto()
    FENCE = auto()
    CODE = auto()
    FENCE_END = auto()
    COMMENT = auto()
    TABLE_HEAD = auto()
    DELIMITER = auto()
    ROW = auto()


@dataclass(frozen=True, slots=True)
class CodeFence:
    """Opening fence of a code block.

    Attributes:
        quote: the block quote markers at the start of each line of the block.
        indent: the column in which the fence starts, counted after the quote markers.
        content_indent: the column in which the content of the enclosing list item starts; 0 outside lists.
    """

    marks: str
    info: str
    quote: str = ""
    indent: int = 0
    content_indent: int = 0

    def is_closed_by(self, line: str) -> bool:
        """Return whether a line (without quote markers) is the closing fence of this code block."""
        found = _FENCE.fullmatch(line.lstrip(" \t"))
        return (
            found is not None
            and _indent_columns(line) <= self.content_indent + 3
            and not found["info"].strip()
            and found["marks"].startswith(self.marks)
        )


@dataclass(frozen=True, slots=True)
class TableBlock:
    """Header row and delimiter row (`|---|`) of a table, in Markdown."""

    head: str
    delimiter: str


@dataclass(frozen=True, slots=True)
class BlockContext:
    """Blocks and emphasis that are open at a position of a Markdown text.

    Attributes:
        item_indents: the columns in which the contents of the open list items start, the outermost first.
        quote: the block quote markers (`> `) of a line that the position splits; else empty.
        marks: the open emphasis and code marks of the paragraph (such as `**`), the outermost first. They include the
            mark of an open spoiler, also between paragraphs.
        comment: the number of block quotes around the open HTML comment; None outside of comments.
    """

    fence: CodeFence | None = None
    table: TableBlock | None = None
    item_indents: tuple[int, ...] = ()
    quote: str = ""
    marks: tuple[str, ...] = ()
    comment: int | None = None


#: Returns whether a table fits into a message: its header row, its delimiter row, and a row or an empty string.
TableFits = Callable[[str, str, str], bool]


class BlockParser:
    """Parses the block structure of Markdown line by line; `context` has the open blocks.

    A table or row that does not fit into a message (see `TableFits`) is parsed as text.
    """

    def __init__(self, context: BlockContext, fits: TableFits) -> None:
        self.context = replace(context, quote="", marks=())
        self.is_in_paragraph = False
        self._fits = fits
        self._last_line = ""
        self._is_hidden = SPOILER in context.marks  # whether the number of spoiler marks is odd

    @property
    def may_be_table_head(self) -> bool:
        """True if the last line starts with `|`, and can be the header row of a table."""
        return self.is_in_paragraph and self._last_line.lstrip().startswith("|")

    def parse_line(self, line: str) -> LineKind:
        """Parse the next line (without its line end), update `context`, and return the line's kind.

        If the result is `DELIMITER`, the previous line was a `TABLE_HEAD`, and not the returned `TEXT`.
        """
        kind = self._parse_in_fence(line) if self.context.fence else self._parse_comment(line)
        kind = kind or self._parse_outside_fence(line)
        self.is_in_paragraph = kind is LineKind.TEXT
        self._last_line = line
        if kind in (LineKind.TEXT, LineKind.HEADING):
            self._is_hidden ^= line.count(SPOILER) % 2 == 1
        return kind

    def _parse_in_fence(self, line: str) -> LineKind | None:
        fence = self.context.fence
        assert fence is not None
        if fence.quote:
            quote = _QUOTE.match(line)
            if not quote or quote[0].count(">") < fence.quote.count(">"):  # the block quote ends, and with it the code
                self.context = replace(self.context, fence=None)
                return None
            line = line[quote.end() :]
        if fence.is_closed_by(line):
            self.context = replace(self.context, fence=None)
            return LineKind.FENCE_END
        return LineKind.CODE

    def _parse_comment(self, line: str) -> LineKind | None:
        """Parse a line of an HTML comment that begins in it or is open (CommonMark, section 4.6); None for others.

        A comment that ends in the line in which it begins is a block only without other text in the line.
        """
        comment = self.context.comment
        if COMMENT_START not in line and comment is None:
            return None
        quote, text = split_quote(line)
        is_closed = COMMENT_END in line
        quotes = quote.count(">")
        if comment is not None and quotes < comment:  # the block quote ends, and with it the comment
            comment = None
        if comment is None:
            self.context = replace(self.context, comment=None)
            text = text.strip()
            at = 0
            while item := _ITEM.match(text, at):
                at = item.end()
            if not text.startswith(COMMENT_START, at):
                return None
            if is_closed and (at or text.find(COMMENT_END, 2) != len(text) - len(COMMENT_END)):
                return None
            comment = quotes
        self.context = replace(self.context, comment=None if is_closed else comment, table=None)
        return LineKind.COMMENT

    def _parse_outside_fence(self, line: str) -> LineKind:
        if not line.strip():
            self.context = replace(self.context, table=None)
            return LineKind.BLANK
        if (kind := self._parse_table_line(line)) is not None:
            return kind
        quote, rest = split_quote(line)
        item_indents, rest, indent, is_item = self._parse_list_markers(rest)
        self.context = replace(self.context, item_indents=item_indents, table=None)
        if fence := _parse_fence(rest, quote, indent, item_indents):
            self.context = replace(self.context, fence=fence)
            return LineKind.FENCE
        if is_item or quote:
            return LineKind.TEXT
        if _HEADING.match(line):
            return LineKind.HEADING
        return LineKind.RULE if _RULE.fullmatch(line) else LineKind.TEXT

    def _parse_table_line(self, line: str) -> LineKind | None:
        table = self.context.table
        if (
            table
            and has_cell_separator(line)
            and not _ends_table(line)
            and not (self._is_hidden and line.startswith(SPOILER))
            and self._fits(table.head, table.delimiter, line)
        ):
            return LineKind.ROW
        if self.is_in_paragraph and is_delimiter(line, self._last_line) and self._fits(self._last_line, line, ""):
            self.context = replace(self.context, table=TableBlock(self._last_line, line))
            return LineKind.DELIMITER
        return None

    def _parse_list_markers(self, line: str) -> tuple[tuple[int, ...], str, int, bool]:
        """Return the `item_indents` after a line's markers, the text, its column, and whether it is an item."""
        indent = _indent_columns(line)
        is_item = False
        item_indents = tuple(content_indent for content_indent in self.context.item_indents if content_indent <= indent)
        rest = line.lstrip(" \t")
        while len(item_indents) < _MAX_NESTED_ITEMS and not _RULE.fullmatch(rest) and (item := _ITEM.match(rest)):
            if indent - (item_indents[-1] if item_indents else 0) > 3:
                break
            is_item = True
            indent += len((" " * indent + item[0]).expandtabs(4)) - indent
            item_indents += (indent,)
            rest = rest[item.end() :]
        return item_indents, rest, indent, is_item


def split_quote(line: str) -> tuple[str, str]:
    """Return the block quote markers (`> `) at the start of a line, and its rest."""
    found = _QUOTE.match(line)
    end = found.end() if found else 0
    return line[:end], line[end:]


def starts_block(line: str) -> bool:
    """Return whether a line starts a list item, a block quote or Discord's small text (`-# `)."""
    return bool(_ITEM.match(line.lstrip(" \t"))) or line.lstrip(" ").startswith((">", "-# "))


def _ends_table(line: str) -> bool:
    """Return whether a line starts a list, quote, heading or code, which ends a table.

    GitHub Flavored Markdown, section 4.10. A line that starts with Discord's spoiler mark (`||`) ends it too, unless it
    ends like a row.
    """
    is_spoiler = line.startswith(SPOILER) and not _LAST_SEPARATOR.search(line)
    return is_spoiler or starts_block(line) or bool(_HEADING.match(line)) or bool(_FENCE.fullmatch(line.lstrip(" ")))


def dedent(line: str, max_spaces: int) -> str:
    """Return a line without up to `max_spaces` spaces at its start."""
    return line[min(max_spaces, len(line) - len(line.lstrip(" "))) :]


def missing_indent(fence: CodeFence, line: str) -> int:
    """Return the number of columns by which a line of code must be indented further.

    In CommonMark, a line with less indent than its list item ends the list, and the rest of the code block becomes
    text.
    """
    rest = split_quote(line)[1] if fence.quote else line
    return max(0, fence.content_indent - _indent_columns(rest)) if rest.strip() else 0


def _parse_fence(rest: str, quote: str, indent: int, item_indents: tuple[int, ...]) -> CodeFence | None:
    """Parse a line as an opening fence; `rest` is its text without markers, from the column `indent` on."""
    content_indent = item_indents[-1] if item_indents else 0
    found = _FENCE.fullmatch(rest)
    if not found or indent - content_indent > 3 or (found["marks"][0] == "`" and "`" in found["info"]):
        return None
    return CodeFence(found["marks"], found["info"].strip(), quote, indent, content_indent)


def _indent_columns(line: str) -> int:
    """Return the indent of a line in columns, with tab stops of 4."""
    found = _INDENT.match(line)
    return len(found[0].expandtabs(4)) if found else 0
