"""Markdown dialect and message limits of a platform."""

from collections.abc import Callable
from dataclasses import dataclass

from channels.markdown.links import Link


class Dialect:
    """How a platform wants Markdown written; this one takes it as it comes.

    What a method returns must not be longer than what it was given by more than `growth` tells.

    Attributes:
        tables: whether tables are shown as tables; else they become code with aligned columns.
        nests: whether a block of code may be part of a list; else it stands at the margin.
        empty_code: a line that a block of code needs when it has no other.
        leads: the signs that, behind brackets, make a link of these or say where others lead. What has them and is not
            read as a link here is broken.
    """

    tables = True
    nests = True
    empty_code = ""
    leads = ""

    def growth(self, source: str) -> int:
        """The most by which `source` may be longer when it is shown, in the platform's unit of size."""
        del source
        return 0

    def prose(self, text: str) -> str:
        """`text`, which is no code, so that nothing in it calls anybody."""
        return text

    def code(self, text: str) -> str:
        """`text`, from within code, so that nothing in it calls anybody."""
        return text

    def code_line(self, line: str) -> str:
        """A line of a block of code."""
        return self.code(line)

    def fence(self, marks: str, info: str) -> tuple[str, str]:
        """What opens and what closes a block of code."""
        return f"{marks}{self.code(info)}", marks

    def heading(self, marks: str, text: str) -> str:
        """A heading; `marks` with the space behind them."""
        return marks + text

    def line(self, line: str) -> str:
        """A line of a paragraph, a list or a quotation, before what is in it is looked at."""
        return line

    def rule(self, line: str) -> str:
        """What parts two sections."""
        return line

    def link(self, link: Link) -> tuple[str, str]:
        """What stands before and behind the label."""
        start = link.source.index("[") + 1
        return link.source[:start], link.source[start + len(link.label) :]


#: Standard Markdown, as it comes.
MARKDOWN = Dialect()


@dataclass(frozen=True, slots=True)
class Limits:
    """What a platform lets a message be.

    Attributes:
        chunk_size: the most that one message of a reply may hold, in units of `measure`.
        measure: the size of a text in the platform's own unit (bytes, UTF-16 units, ...).
        reserve: what of `chunk_size` is kept free for a line under the text that says what is going on.
        dialect: how the platform wants Markdown written.
    """

    chunk_size: int
    measure: Callable[[str], int]
    reserve: int = 0
    dialect: Dialect = MARKDOWN
