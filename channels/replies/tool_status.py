"""The tools that are at work while a turn runs, and what is shown of them."""

import asyncio
import logging
import re
from collections.abc import Mapping
from typing import Any

from channels.i18n.messages import Words
from core.agents.events import StreamEvent
from core.secret_redaction import redact

log = logging.getLogger(__name__)

#: How much is shown of a line with all of its arguments, in UTF-16 units, of which no text has fewer than characters.
LINE_SIZE = 150

#: How much of an argument, and of a tool's name.
_ARGUMENT, _NAME = 60, 60

#: Seconds that a turn which is handed back waits for tools.
REST_SECONDS = 3.0

_FIELD = re.compile(r"\{(\w+)\}")

#: What would be more than words: markup, mentions, the beginnings of links.
_MARKUP = re.compile(r"[*_~`|\\<>\[\]{}\x00-\x1f\x7f\u2028-\u202e\u2066-\u2069]+")
_SCHEME = re.compile(r"(?<![a-z0-9+.-])[a-z0-9+.-]++://", re.IGNORECASE)

_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


class Tools:
    """The tools that are at work."""

    def __init__(self) -> None:
        self._calls: dict[str, str] = {}  # what is shown of each, the newest last
        self._none = asyncio.Event()
        self._none.set()

    def began(self, event: StreamEvent, say: Words) -> str:
        """What is to be shown now that a call begins."""
        self._none.clear()
        self._calls[event.call_id] = doing(event, say)
        return self._calls[event.call_id]

    def ended(self, event: StreamEvent) -> str:
        """What is to be shown now that a call has ended: of what is at work still, the newest; empty if nothing is."""
        self._calls.pop(event.call_id, None)
        if not self._calls:
            self._none.set()
        return next(reversed(self._calls.values()), "")

    async def rest(self) -> None:
        """Wait until none is, but not for long."""
        try:
            async with asyncio.timeout(REST_SECONDS):
                await self._none.wait()
        except TimeoutError:
            log.warning("a tool is at work still, and is not waited for")


def doing(event: StreamEvent, say: Words) -> str:
    """What is shown of a call while it is at work: the line of its tool with the arguments in it, as words and no more;
    if it has none, or lacks an argument of it, the tool's name made readable.
    """
    line = say(event.text) if event.text else ""
    arguments = {name: _words(event.data.get(name)) for name in _FIELD.findall(line)}
    if line and all(arguments.values()):
        filled = _FIELD.sub(lambda field: arguments[field[1]], line)
        return f"_{_short(filled.rstrip('.… '), LINE_SIZE)}…_"
    name = _HUMP.sub(" ", event.tool).replace("-", " ")
    return say.using(plain(name, _NAME) or "…")


def plain(text: str, most: int) -> str:
    """A text as words on one line and no more, so many UTF-16 units at the most."""
    return _short(" ".join(_MARKUP.sub(" ", _SCHEME.sub("", text)).split()), most)


def _words(value: Any) -> str:
    """An argument, on one line; empty if it is nothing that can be read in passing."""
    if isinstance(value, list | tuple):
        return _short(", ".join(filter(None, map(_words, value[:5]))), _ARGUMENT)
    if value is None or isinstance(value, Mapping | bool | bytes):
        return ""
    return plain(redact(str(value)[: 10 * _ARGUMENT]), _ARGUMENT)


def _short(text: str, most: int) -> str:
    units = text.encode("utf-16-le", "surrogatepass")
    return text if len(units) <= 2 * most else f"{units[: 2 * most - 2].decode('utf-16-le', 'ignore').rstrip()}…"
