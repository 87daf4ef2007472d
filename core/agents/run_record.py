"""Receipts: what a turn was made of, as far as its run can tell.

A receipt is kept with the turn by the statement that keeps its answer or its end. What else there is to know of a turn
stands in other rows, and `core.conversations.turn_report` puts it together.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from time import monotonic
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

from core.agents.events import StreamEvent
from core.inbox_message import storable_text
from core.secret_redaction import mask_json, redact_secrets
from core.sessions.history import HistoryWindow

#: How many calls of tools and files a receipt tells of, and how much of each, in characters.
MOST_TOOLS, MOST_FILES = 50, 20
MOST_ARGUMENTS, MOST_ERROR, MOST_NAME = 600, 300, 120

#: How a call of a tool has ended: `asks` waits for a person's word; `open` had not ended when the turn did.
End = Literal["done", "failed", "asks", "open"]


@dataclass(frozen=True, slots=True)
class Others:
    """What of other people's words was sent to the model.

    Attributes:
        messages: how many of what they said.
        tokens: what these cost to send.
        left_out: how many were found, and not sent for want of room.
    """

    messages: int = 0
    tokens: int = 0
    left_out: int = 0


@dataclass(frozen=True, slots=True)
class FileUse:
    """A file that came with a message.

    Attributes:
        why: why the model did not get it; empty if it did.
    """

    name: str
    why: str = ""


@dataclass(frozen=True, slots=True)
class ToolUse:
    """One call of a tool.

    Attributes:
        arguments: as JSON, without secrets, and of long ones the beginning.
        hidden: how many characters of them are not kept.
        seconds: how long it took; None if that is not known.
        error: what the model was told of a call that has failed.
        is_earlier: whether an earlier attempt at the run has made it.
    """

    id: str
    tool: str
    arguments: str
    hidden: int = 0
    seconds: float | None = None
    ended: End = "open"
    error: str = ""
    is_earlier: bool = False


@dataclass(frozen=True, slots=True)
class Receipt:
    """What a turn was made of.

    Attributes:
        tools: the calls, in the order in which they began.
        tools_hidden: how many more there were.
        first_word: seconds from the beginning of the run to its first word; None if it has said nothing.
        seconds: how long the run took.
    """

    tools: tuple[ToolUse, ...] = ()
    tools_hidden: int = 0
    history: HistoryWindow | None = None
    others: Others = Others()
    files: tuple[FileUse, ...] = ()
    first_word: float | None = None
    seconds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: object) -> "Receipt | None":
        """What `to_json` made; None if it is something else, or there is none."""
        try:
            return None if data is None else _RECEIPT.validate_python(data)
        except ValidationError:
            return None


_RECEIPT = TypeAdapter(Receipt)


class Clerk:
    """Takes down what a turn is made of while it runs."""

    def __init__(self) -> None:
        self._began = monotonic()
        self._first_word: float | None = None
        self._tools: dict[str, ToolUse] = {}
        self._hidden = 0
        self._history: HistoryWindow | None = None
        self.others = Others()
        self._files: tuple[FileUse, ...] = ()

    def files(self, files: Sequence[FileUse]) -> None:
        """Take down what became of the files that came with the messages."""
        self._files = tuple(
            FileUse(_brief(file.name, MOST_NAME), _brief(file.why, MOST_ERROR)) for file in files[:MOST_FILES]
        )

    def take(self, event: StreamEvent) -> None:
        """Take down what a run tells."""
        match event.type:
            case "history":
                self._history = event.history
            case "text_delta" if self._first_word is None and event.text.strip():
                self._first_word = monotonic() - self._began
            case "tool_start":
                self._begin(event)
            case "tool_past":
                self._begin(event, is_earlier=True)
                self._end(event.call_id, "failed" if event.error else "done", event)
            case "error" if event.call_id:
                self._end(event.call_id, "failed", event)
            case "tool_end":
                self._end(event.call_id or event.tool, "done", event)
            case "done":
                for ask in event.asks:
                    self._end(ask.asks_for, "asks", event)

    @property
    def receipt(self) -> dict[str, Any]:
        """As it stands now, as JSON."""
        return Receipt(
            tools=tuple(self._tools.values()),
            tools_hidden=self._hidden,
            history=self._history,
            others=self.others,
            files=self._files,
            first_word=_rounded(self._first_word),
            seconds=round(monotonic() - self._began, 3),
        ).to_json()

    def _begin(self, event: StreamEvent, *, is_earlier: bool = False) -> None:
        id_ = event.call_id or event.tool
        if id_ not in self._tools and len(self._tools) == MOST_TOOLS:
            self._hidden += 1
            return
        shown, hidden = told(event.data)
        self._tools[id_] = ToolUse(id_, _brief(event.tool, MOST_NAME), shown, hidden, is_earlier=is_earlier)

    def _end(self, id_: str, end: End, event: StreamEvent) -> None:
        use = self._tools.get(id_)
        if use is None:
            return
        if end == "done" and use.ended == "failed":  # it is told of a failed call as well that it has ended
            end = "failed"
        seconds = use.seconds if event.seconds is None else _rounded(event.seconds)
        error = "" if end != "failed" else use.error or _brief(str(event.error or ""), MOST_ERROR)
        self._tools[id_] = replace(use, ended=end, seconds=seconds, error=error)


def told(arguments: Mapping[str, Any]) -> tuple[str, int]:
    """Arguments as JSON without secrets, as much of them as is kept; and how many characters more there are."""
    text = storable_text(json.dumps(mask_json(dict(arguments)), ensure_ascii=False, default=str))
    return text[:MOST_ARGUMENTS], max(len(text) - MOST_ARGUMENTS, 0)


def _brief(text: str, most: int) -> str:
    """On one line, without secrets."""
    line = " ".join(redact_secrets(storable_text(text)).split())
    return line if len(line) <= most else f"{line[: most - 1].rstrip()}…"


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)
