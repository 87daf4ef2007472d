"""Status lines of running tools, shown in a reply until new text arrives."""

import asyncio
import logging
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from channels.base import ShownToolCall, ToolCallState
from channels.i18n.messages import MessageCatalog
from core.agents.events import StreamEvent
from core.observability.secret_redaction import redact_secrets

log = logging.getLogger(__name__)

#: Largest size of a status line with its arguments, in UTF-16 code units.
LINE_SIZE = 150

#: Largest size of an argument and of a tool's name in a status line, in UTF-16 code units.
_ARGUMENT_SIZE, _NAME_SIZE = 60, 60

#: Seconds that a shutdown waits for running tools.
TOOL_TIMEOUT_SECONDS = 3.0

_FIELD = re.compile(r"\{(\w+)\}")

#: Markup, mentions, and the schemes of links.
_MARKUP = re.compile(r"[*_~`|\\<>\[\]{}\x00-\x1f\x7f\u2028-\u202e\u2066-\u2069]+")
_SCHEME = re.compile(r"(?<![a-z0-9+.-])[a-z0-9+.-]++://", re.IGNORECASE)

_STATES = {
    "tool_start": ToolCallState.RUNNING,
    "tool_wait": ToolCallState.WAITING,
    "tool_end": ToolCallState.DONE,
    "error": ToolCallState.FAILED,
}

_CAMEL_CASE = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


class ToolStatus:
    """Tool calls of one turn, with the status lines and states that the reply shows."""

    def __init__(self) -> None:
        self._calls: dict[str, ShownToolCall] = {}  # in the order of their starts
        self._is_idle = asyncio.Event()
        self._is_idle.set()

    @property
    def calls(self) -> tuple[ShownToolCall, ...]:
        return tuple(self._calls.values())

    @property
    def line(self) -> str:
        """Status line of the newest running call, in Markdown; empty if none runs."""
        running = (call.line for call in reversed(self._calls.values()) if call.state is ToolCallState.RUNNING)
        return next(running, "")

    def update(self, event: StreamEvent, say: MessageCatalog) -> None:
        """Set the state of an event's tool call.

        A call that ends without a start, because a person has denied it, is added as a failed one.
        """
        id_ = event.call_id or event.tool
        state = _STATES[event.type]
        call = self._calls.get(id_)
        if call is None and state is not ToolCallState.DONE:
            self._calls[id_] = ShownToolCall(render_call(event, say), state)
        elif call is not None and (call.state is ToolCallState.RUNNING or state is ToolCallState.RUNNING):
            self._calls[id_] = replace(call, state=state)
        if any(call.state is ToolCallState.RUNNING for call in self._calls.values()):
            self._is_idle.clear()
        else:
            self._is_idle.set()

    async def wait_until_idle(self) -> None:
        """Wait until no tool call runs; after `TOOL_TIMEOUT_SECONDS`, log a warning and return."""
        try:
            async with asyncio.timeout(TOOL_TIMEOUT_SECONDS):
                await self._is_idle.wait()
        except TimeoutError:
            log.warning("a tool still runs, and the shutdown does not wait for it")


def render_call(event: StreamEvent, say: MessageCatalog) -> str:
    """Return the status line of a tool call, in Markdown italics.

    The line is the tool's own status text (the event's `text`), with the call's arguments in place of the names in
    braces. Secrets in them are redacted. Without such a text, or if an argument in it is missing, or is a mapping, a
    boolean or bytes, the line shows the tool's name.
    """
    line = say(event.text) if event.text else ""
    arguments = {name: _argument_text(event.data.get(name)) for name in _FIELD.findall(line)}
    if line and all(arguments.values()):
        filled = _FIELD.sub(lambda field: arguments[field[1]], line)
        return f"_{_truncate(filled.rstrip('.… '), LINE_SIZE)}…_"
    name = _CAMEL_CASE.sub(" ", event.tool).replace("-", " ")
    return say.format_tool(shorten_plain(name, _NAME_SIZE) or "…")


def shorten_plain(text: str, max_size: int) -> str:
    """Return a text on one line of at most `max_size` UTF-16 code units, without markup and URL schemes."""
    return _truncate(" ".join(_MARKUP.sub(" ", _SCHEME.sub("", text)).split()), max_size)


def _argument_text(value: Any) -> str:
    if isinstance(value, list | tuple):
        return _truncate(", ".join(filter(None, map(_argument_text, value[:5]))), _ARGUMENT_SIZE)
    if value is None or isinstance(value, Mapping | bool | bytes):
        return ""
    return shorten_plain(redact_secrets(str(value)[: 10 * _ARGUMENT_SIZE]), _ARGUMENT_SIZE)


def _truncate(text: str, max_size: int) -> str:
    units = text.encode("utf-16-le", "surrogatepass")
    return (
        text if len(units) <= 2 * max_size else f"{units[: 2 * max_size - 2].decode('utf-16-le', 'ignore').rstrip()}…"
    )
