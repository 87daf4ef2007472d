"""Markdown dialect and message limits of a platform."""

from collections.abc import Callable
from dataclasses import dataclass

from channels.markdown.links import Link


class Dialect:
    """Markdown dialect of a platform; this one renders standard Markdown unchanged.

    A rendered text is longer than its source by at most `max_growth`.

    Attributes:
        has_tables: whether the platform renders tables; if not, they become code with aligned columns.
        nests_code: whether a code block may be part of a list; if not, it starts in the first column.
        empty_code_line: the line that an empty code block needs; empty for none.
        link_openers: the characters that may follow a bracketed label in a link or a link definition. Text that looks
            like a link and is not parsed as one gets a backslash before them.
    """

    has_tables = True
    nests_code = True
    empty_code_line = ""
    link_openers = ""

    def max_growth(self, source: str) -> int:
        """Return the most by which `source` grows when rendered, in units of `measure`."""
        del source
        return 0

    def render_prose(self, text: str) -> str:
        """Render prose (a text without code), with inert mentions."""
        return text

    def render_code(self, text: str) -> str:
        """Render inline code with its backticks, with inert mentions."""
        return text

    def render_code_line(self, line: str) -> str:
        """Render a line of a code block."""
        return self.render_code(line)

    def render_fence(self, marks: str, info: str) -> tuple[str, str]:
        """Return the opening and the closing fence of a code block.

        Args:
            marks: the backticks or tildes of the source.
            info: the info string, such as the language.
        """
        space = " " if info.startswith("~") else ""  # without it, `~~~ ~` would be four marks
        return f"{marks}{space}{self.render_code(info)}", marks

    def render_heading(self, marks: str, text: str) -> str:
        """Render a heading.

        Args:
            marks: the number signs with the space after them.
            text: the rendered inline content.
        """
        return marks + text

    def render_line(self, line: str) -> str:
        """Render the markers at the start of a line of a paragraph, list or block quote.

        The rest of the line is still Markdown.
        """
        return line

    def render_rule(self, line: str) -> str:
        """Render a thematic break (horizontal rule)."""
        return line

    def render_link(self, link: Link) -> tuple[str, str]:
        """Return the texts before and after the rendered label of a link."""
        start = link.source.index("[") + 1
        return link.source[:start], link.source[start + len(link.label) :]


#: Standard Markdown, unchanged.
MARKDOWN = Dialect()


@dataclass(frozen=True, slots=True)
class MessageLimits:
    """Limits of a platform's messages.

    Attributes:
        chunk_size: the most that one message of a reply may hold, in units of `measure`.
        measure: returns the size of a text in the platform's unit (bytes, UTF-16 units, ...).
        status_reserve: the part of `chunk_size` that stays free for a status line under the text.
        dialect: the Markdown dialect of the platform.
    """

    chunk_size: int
    measure: Callable[[str], int]
    status_reserve: int = 0
    dialect: Dialect = MARKDOWN
