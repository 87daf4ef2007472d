"""Markdown by the line: what each line is, and what is open behind it.

CommonMark (spec.commonmark.org) and GitHub's tables, as far as it takes to cut a text between messages.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum, auto

from channels.markdown.tables import is_delimiter, may_be_row

#: The longest run of marks that opens a fence here.
_MOST_MARKS = 16

#: The deepest nesting of lists that is followed.
_MOST_NESTED = 8

#: CommonMark: a carriage return ends a line, with or without a line feed.
LINE_END = re.compile(r"\r\n?|\n")

_QUOTE = re.compile(r"(?: {0,3}> ?){0,8}")
_INDENT = re.compile(r"[ \t]*")
_ITEM = re.compile(r"(?P<marker>(?:[-*+]|\d{1,9}[.)]))(?P<space>[ \t]{1,4})(?=\S)")
_FENCE = re.compile(rf"(?P<marks>`{{3,{_MOST_MARKS}}}(?!`)|~{{3,{_MOST_MARKS}}}(?!~))(?P<info>.*)")
_HEADING = re.compile(r" {0,3}#{1,6}(?:[ \t]+|$)")
_RULE = re.compile(r" {0,3}(?:(?:-[ \t]*+){3,}|(?:\*[ \t]*+){3,}|(?:_[ \t]*+){3,})")


class Kind(Enum):
    BLANK = auto()
    TEXT = auto()
    HEADING = auto()
    RULE = auto()
    FENCE = auto()
    CODE = auto()
    FENCE_END = auto()
    TABLE_HEAD = auto()
    DELIMITER = auto()
    ROW = auto()


@dataclass(frozen=True, slots=True)
class Fence:
    """A block of code that is open.

    Attributes:
        quote: the marks of a quotation that each of its lines begins with.
        indent: spaces before its marks.
        margin: where the list item begins that it is in.
    """

    marks: str
    info: str
    quote: str = ""
    indent: int = 0
    margin: int = 0

    def is_closed_by(self, line: str) -> bool:
        found = _FENCE.fullmatch(line.lstrip(" \t"))
        return (
            found is not None
            and _width(line) <= self.margin + 3
            and not found["info"].strip()
            and found["marks"].startswith(self.marks)
        )


@dataclass(frozen=True, slots=True)
class Table:
    """A table that is open: the two lines that it begins with."""

    head: str
    delimiter: str


@dataclass(frozen=True, slots=True)
class Place:
    """What is open at some point of a text.

    Attributes:
        margins: where the list items begin that are open, the outermost first.
        quote: the marks of the quotation that the line belongs to, in the middle of a line.
        marks: the marks of emphasis and code that are open in the paragraph, the outermost first.
    """

    fence: Fence | None = None
    table: Table | None = None
    margins: tuple[int, ...] = ()
    quote: str = ""
    marks: tuple[str, ...] = ()


#: Whether a table fits into a message: its head, the line under it, and one row if there is one yet.
Fits = Callable[[str, str, str], bool]


class Reader:
    """Reads a text line by line.

    Attributes:
        place: what is open behind the last line.
        in_paragraph: whether the last line was a paragraph's, so that the next one may go on with it.
    """

    def __init__(self, place: Place, fits: Fits) -> None:
        self.place = replace(place, quote="", marks=())
        self.in_paragraph = False
        self._fits = fits
        self._last = ""

    @property
    def awaits_delimiter(self) -> bool:
        """Whether the last line is a table's head if the next one is its delimiter."""
        return self.in_paragraph and self._last.lstrip().startswith("|")

    def read(self, line: str) -> Kind:
        """What `line` is, which comes without its end. `Kind.DELIMITER` makes the line before it a `TABLE_HEAD`."""
        kind = self._in_fence(line) if self.place.fence else None
        kind = kind or self._outside(line)
        self.in_paragraph = kind is Kind.TEXT
        self._last = line
        return kind

    def _in_fence(self, line: str) -> Kind | None:
        fence = self.place.fence
        assert fence is not None
        if fence.quote:
            quote = _QUOTE.match(line)
            if not quote or quote[0].count(">") < fence.quote.count(">"):  # the quotation is over, and the code with it
                self.place = replace(self.place, fence=None)
                return None
            line = line[quote.end() :]
        if fence.is_closed_by(line):
            self.place = replace(self.place, fence=None)
            return Kind.FENCE_END
        return Kind.CODE

    def _outside(self, line: str) -> Kind:
        if not line.strip():
            self.place = replace(self.place, table=None)
            return Kind.BLANK
        if (kind := self._in_table(line)) is not None:
            return kind
        quote, rest = split_quote(line)
        margins, rest, indent, is_item = self._items(rest)
        self.place = replace(self.place, margins=margins, table=None)
        if fence := _opens(rest, quote, indent, margins):
            self.place = replace(self.place, fence=fence)
            return Kind.FENCE
        if is_item or quote:
            return Kind.TEXT
        if _HEADING.match(line):
            return Kind.HEADING
        return Kind.RULE if _RULE.fullmatch(line) else Kind.TEXT

    def _in_table(self, line: str) -> Kind | None:
        table = self.place.table
        if table and may_be_row(line) and not _ends_table(line) and self._fits(table.head, table.delimiter, line):
            return Kind.ROW
        if self.in_paragraph and is_delimiter(line, self._last) and self._fits(self._last, line, ""):
            self.place = replace(self.place, table=Table(self._last, line))
            return Kind.DELIMITER
        return None

    def _items(self, line: str) -> tuple[tuple[int, ...], str, int, bool]:
        """The list items that are open in `line`, what stands behind their marks, and its indentation."""
        indent, is_item = _width(line), False
        margins = tuple(margin for margin in self.place.margins if margin <= indent)
        rest = line.lstrip(" \t")
        while len(margins) < _MOST_NESTED and not _RULE.fullmatch(rest) and (item := _ITEM.match(rest)):
            if indent - (margins[-1] if margins else 0) > 3:
                break
            is_item = True
            indent += len((" " * indent + item[0]).expandtabs(4)) - indent
            margins += (indent,)
            rest = rest[item.end() :]
        return margins, rest, indent, is_item


def split_quote(line: str) -> tuple[str, str]:
    """The marks of a quotation at the head of `line`, and what follows."""
    found = _QUOTE.match(line)
    end = found.end() if found else 0
    return line[:end], line[end:]


def begins_block(line: str) -> bool:
    """Whether `line`, which is `Kind.TEXT`, does not go on with the paragraph before it."""
    return bool(_ITEM.match(line.lstrip(" \t"))) or line.lstrip(" ").startswith(">")


def _ends_table(line: str) -> bool:
    """Whether `line` begins another block (GitHub's Markdown, section 4.10)."""
    return begins_block(line) or bool(_HEADING.match(line)) or bool(_FENCE.fullmatch(line.lstrip(" ")))


def dedented(line: str, most: int) -> str:
    """`line` without up to `most` spaces at its head."""
    return line[min(most, len(line) - len(line.lstrip(" "))) :]


def lacking(fence: Fence, line: str) -> int:
    """By how many columns a line of a block of code is further out than the item of a list that the block is in.

    CommonMark takes such a line for the end of the list, and what follows in the block for prose.
    """
    rest = split_quote(line)[1] if fence.quote else line
    return max(0, fence.margin - _width(rest)) if rest.strip() else 0


def _opens(rest: str, quote: str, indent: int, margins: tuple[int, ...]) -> Fence | None:
    margin = margins[-1] if margins else 0
    found = _FENCE.fullmatch(rest)
    if not found or indent - margin > 3 or (found["marks"][0] == "`" and "`" in found["info"]):
        return None
    return Fence(found["marks"], found["info"].strip(), quote, indent, margin)


def _width(line: str) -> int:
    """The indentation of `line`, in columns."""
    found = _INDENT.match(line)
    return len(found[0].expandtabs(4)) if found else 0
