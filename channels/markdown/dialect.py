"""Markdown dialect and message limits of a platform."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import inf

from channels.markdown.links import Link
from channels.markdown.tables import split_cells


class Dialect:
    """Markdown dialect of a platform; this base class renders Markdown unchanged.

    Attributes:
        max_table_columns: the most columns of a table that the platform renders, 0 for no tables. Other tables become
            code with aligned columns.
        max_table_rows: the most rows of such a table, with its header row. The next message continues a longer table.
        has_spoilers: whether the platform hides text between two `||`.
        moves_marks: whether emphasis marks are moved that CommonMark refuses beside Chinese, Japanese and Korean
            punctuation.
        nests_code: whether a code block may be part of a list; if not, its lines start in the first column.
        empty_code_line: a line to put into an empty code block; empty if the platform needs none.
        link_openers: the characters that may follow a bracketed label in a link (`(`) or in its definition (`:`). Text
            that looks like a link and is not parsed as one gets a backslash before them. Empty if none is needed.
        html_marks: the mark on each side of text in HTML tags, by the tag's name; other tags are removed.
        entity_signs: the characters that the platform escapes as entities; they need no backslash.
    """

    max_table_columns: float = inf
    max_table_rows: float = inf
    has_spoilers = False
    moves_marks = False
    nests_code = True
    empty_code_line = ""
    link_openers = ""
    html_marks: Mapping[str, str] = {"b": "**", "i": "*", "s": "~~", "code": "`"}
    entity_signs = ""

    def renders_table(self, delimiter: str) -> bool:
        """Return whether the platform renders a table, by its delimiter row."""
        return _count_columns(delimiter) <= self.max_table_columns

    def max_growth(self, source: str) -> int:
        """Return the most by which a text grows when rendered, in units of `MessageLimits.measure`.

        By default, it is the size of the closing tag for each HTML tag that a split leaves open.
        """
        return len("</code>") * source.count("<")

    def render_prose(self, text: str) -> str:
        """Return Markdown without code in this dialect; subclasses disable mentions in it."""
        return text

    def render_autolink(self, token: str, *, is_last: bool) -> str:
        """Return an address in angle brackets (`<https://a.b>` or `<a@b.c>`) in this dialect.

        Args:
            is_last: whether white space or the end of the text follows.
        """
        return token

    def escape_sign(self, sign: str) -> str:
        """Return a character of Markdown as text."""
        return f"\\{sign}"

    def render_code(self, text: str) -> str:
        """Return inline code with its backticks; subclasses must disable mentions in it."""
        return text

    def render_code_line(self, line: str) -> str:
        """Return a line of a code block; subclasses must disable mentions in it."""
        return self.render_code(line)

    def render_fence(self, marks: str, info: str) -> tuple[str, str]:
        """Return the line before a code block and the line after it, such as "```python" and "```"."""
        space = " " if info.startswith("~") else ""  # without it, `~~~ ~` would be four marks
        return f"{marks}{space}{self.render_code(info)}", marks

    def render_heading(self, marks: str, text: str) -> str:
        """Return a heading from its number signs with the space after them, and its rendered content."""
        return marks + text

    def render_line(self, line: str) -> str:
        """Return a line of a paragraph, list or quote with its markers rendered; its text stays Markdown."""
        return line

    def render_rule(self, line: str) -> str:
        """Return a thematic break (horizontal rule) in this dialect."""
        return line

    def render_link(self, link: Link) -> tuple[str, str]:
        """Return the texts to put before and after the rendered label of a link.

        By default, these are the link's source before and after the label, such as `[` and `](https://a.b)`.
        """
        start = link.source.index("[") + 1
        return link.source[:start], link.source[start + len(link.label) :]


@lru_cache(maxsize=256)
def _count_columns(delimiter: str) -> int:
    return len(split_cells(delimiter))


#: Standard Markdown, unchanged.
MARKDOWN = Dialect()


@dataclass(frozen=True, slots=True)
class MessageLimits:
    """Limits of a platform's messages.

    Attributes:
        chunk_size: the most that the text of one message of a reply may measure, in units of `measure`.
        measure: returns the size of a text in the platform's unit (bytes, UTF-16 units, ...).
        status_reserve: the part of `chunk_size` that stays free for a status line under the text.
    """

    chunk_size: int
    measure: Callable[[str], int]
    status_reserve: int = 0
    dialect: Dialect = MARKDOWN
