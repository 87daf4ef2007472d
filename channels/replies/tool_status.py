"""The tools that are at work while a turn runs, and what is shown of them."""

import asyncio
import logging
import re
from collections.abc import Mapping
from typing import Any

from channels.i18n.messages import MessageCatalog
from core.agents.events import StreamEvent
from core.secret_redaction import redact

log = logging.getLogger(__name__)

#: How much is shown of a line with all of its arguments, in UTF-16 units, of which no text has fewer than characters.
LINE_SIZE = 150

#: How much of an argument, and of a tool's name.
_ARGUMENT_SIZE, _NAME_SIZE = 60, 60

#: Seconds that a turn which is handed back waits for tools.
TOOL_TIMEOUT = 3.0

_FIELD = re.compile(r"\{(\w+)\}")

#: What would be more than words: markup, mentions, the beginnings of links.
_MARKUP = re.compile(r"[*_~`|\\<>\[\]{}\x00-\x1f\x7f\u2028-\u202e\u2066-\u2069]+")
_SCHEME = re.compile(r"(?<![a-z0-9+.-])[a-z0-9+.-]++://", re.IGNORECASE)

_CAMEL_CASE = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


class ToolStatus:
    """The tools that are at work."""

    def __init__(self) -> None:
        self._lines: dict[str, str] = {}  # what is shown of each, the newest last
        self._is_idle = asyncio.Event()
        self._is_idle.set()

    def start(self, event: StreamEvent, say: MessageCatalog) -> str:
        """What is to be shown now that a call begins."""
        self._is_idle.clear()
        self._lines[event.call_id] = render_call(event, say)
        return self._lines[event.call_id]

    def end(self, event: StreamEvent) -> str:
        """What is to be shown now that a call has ended: of what is at work still, the newest; empty if nothing is."""
        self._lines.pop(event.call_id, None)
        if not self._lines:
            self._is_idle.set()
        return next(reversed(self._lines.values()), "")

    async def wait_until_idle(self) -> None:
        """Wait until none is, but not for long."""
        try:
            async with asyncio.timeout(TOOL_TIMEOUT):
                await self._is_idle.wait()
        except TimeoutError:
            log.warning("a tool is at work still, and is not waited for")


def render_call(event: StreamEvent, say: MessageCatalog) -> str:
    """What is shown of a call while it is at work: the line of its tool with the arguments in it, as words and no more;
    if it has none, or lacks an argument of it, the tool's name made readable.
    """
    line = say(event.text) if event.text else ""
    arguments = {name: _argument_text(event.data.get(name)) for name in _FIELD.findall(line)}
    if line and all(arguments.values()):
        filled = _FIELD.sub(lambda field: arguments[field[1]], line)
        return f"_{_truncate(filled.rstrip('.… '), LINE_SIZE)}…_"
    name = _CAMEL_CASE.sub(" ", event.tool).replace("-", " ")
    return say.format_tool(plain_text(name, _NAME_SIZE) or "…")


def plain_text(text: str, max_size: int) -> str:
    """A text as words on one line and no more, so many UTF-16 units at the most."""
    return _truncate(" ".join(_MARKUP.sub(" ", _SCHEME.sub("", text)).split()), max_size)


def _argument_text(value: Any) -> str:
    """An argument, on one line; empty if it is nothing that can be read in passing."""
    if isinstance(value, list | tuple):
        return _truncate(", ".join(filter(None, map(_argument_text, value[:5]))), _ARGUMENT_SIZE)
    if value is None or isinstance(value, Mapping | bool | bytes):
        return ""
    return plain_text(redact(str(value)[: 10 * _ARGUMENT_SIZE]), _ARGUMENT_SIZE)


def _truncate(text: str, max_size: int) -> str:
    units = text.encode("utf-16-le", "surrogatepass")
    return (
        text if len(units) <= 2 * max_size else f"{units[: 2 * max_size - 2].decode('utf-16-le', 'ignore').rstrip()}…"
    )
