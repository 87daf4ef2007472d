"""Parts of a paragraph of Markdown that stay whole when it is split or its emphasis is moved."""

from dataclasses import dataclass

from channels.markdown.links import Link


@dataclass(frozen=True, slots=True)
class InlineSpan:
    """Part of a paragraph that no split may cut, such as code or a link.

    The others are URLs, references (`[label][name]`), tokens (such as `<@U1>`), backslash escapes and literal
    backticks.

    Attributes:
        ticks: the opening backticks of code; empty for others.
        is_closed: whether the code has closing backticks; True for others.
    """

    start: int
    end: int
    ticks: str = ""
    link: Link | None = None
    is_closed: bool = True
