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
MAX_TOOLS, MAX_FILES = 50, 20
MAX_ARGUMENTS_CHARACTERS, MAX_ERROR_LINE_CHARACTERS, MAX_NAME_CHARACTERS = 600, 300, 120

#: How a call of a tool has ended: `asks` waits for a person's word; `open` had not ended when the turn did.
ToolOutcome = Literal["done", "failed", "waiting", "open"]


@dataclass(frozen=True, slots=True)
class ContextRecord:
    """What of other people's words was sent to the model.

    Attributes:
        messages: how many of what they said.
        tokens: what these cost to send.
        left_out: how many were found, and not sent for want of room.
    """

    messages: int = 0
    tokens: int = 0
    omitted_messages: int = 0


@dataclass(frozen=True, slots=True)
class FileRecord:
    """A file that came with a message.

    Attributes:
        why: why the model did not get it; empty if it did.
    """

    name: str
    omission_reason: str = ""


@dataclass(frozen=True, slots=True)
class ToolCallRecord:
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
    cut_characters: int = 0
    seconds: float | None = None
    outcome: ToolOutcome = "open"
    error: str = ""
    is_from_earlier_attempt: bool = False


@dataclass(frozen=True, slots=True)
class RunRecord:
    """What a turn was made of.

    Attributes:
        tools: the calls, in the order in which they began.
        tools_hidden: how many more there were.
        first_word: seconds from the beginning of the run to its first word; None if it has said nothing.
        seconds: how long the run took.
    """

    tool_calls: tuple[ToolCallRecord, ...] = ()
    omitted_tool_calls: int = 0
    history: HistoryWindow | None = None
    context: ContextRecord = ContextRecord()
    files: tuple[FileRecord, ...] = ()
    first_text_seconds: float | None = None
    seconds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: object) -> "RunRecord | None":
        """What `to_json` made; None if it is something else, or there is none."""
        try:
            return None if data is None else _RUN_RECORD.validate_python(data)
        except ValidationError:
            return None


_RUN_RECORD = TypeAdapter(RunRecord)


class RunRecorder:
    """Takes down what a turn is made of while it runs."""

    def __init__(self) -> None:
        self._begun_at = monotonic()
        self._first_text_seconds: float | None = None
        self._tool_calls: dict[str, ToolCallRecord] = {}
        self._omitted_tool_calls = 0
        self._history: HistoryWindow | None = None
        self.context = ContextRecord()
        self._files: tuple[FileRecord, ...] = ()

    def set_files(self, files: Sequence[FileRecord]) -> None:
        """Take down what became of the files that came with the messages."""
        self._files = tuple(
            FileRecord(
                _shorten(file.name, MAX_NAME_CHARACTERS), _shorten(file.omission_reason, MAX_ERROR_LINE_CHARACTERS)
            )
            for file in files[:MAX_FILES]
        )

    def record_event(self, event: StreamEvent) -> None:
        """Take down what a run tells."""
        match event.type:
            case "history":
                self._history = event.history
            case "text_delta" if self._first_text_seconds is None and event.text.strip():
                self._first_text_seconds = monotonic() - self._begun_at
            case "tool_start":
                self._add_tool_call(event)
            case "tool_past":
                self._add_tool_call(event, is_earlier=True)
                self._end_tool_call(event.call_id, "failed" if event.error else "done", event)
            case "error" if event.call_id:
                self._end_tool_call(event.call_id, "failed", event)
            case "tool_end":
                self._end_tool_call(event.call_id or event.tool, "done", event)
            case "done":
                for ask in event.confirmations:
                    self._end_tool_call(ask.tool_call_id, "waiting", event)

    @property
    def run_record(self) -> dict[str, Any]:
        """As it stands now, as JSON."""
        return RunRecord(
            tool_calls=tuple(self._tool_calls.values()),
            omitted_tool_calls=self._omitted_tool_calls,
            history=self._history,
            context=self.context,
            files=self._files,
            first_text_seconds=_round(self._first_text_seconds),
            seconds=round(monotonic() - self._begun_at, 3),
        ).to_json()

    def _add_tool_call(self, event: StreamEvent, *, is_earlier: bool = False) -> None:
        id_ = event.call_id or event.tool
        if id_ not in self._tool_calls and len(self._tool_calls) == MAX_TOOLS:
            self._omitted_tool_calls += 1
            return
        shown, hidden = format_arguments(event.data)
        self._tool_calls[id_] = ToolCallRecord(
            id_, _shorten(event.tool, MAX_NAME_CHARACTERS), shown, hidden, is_from_earlier_attempt=is_earlier
        )

    def _end_tool_call(self, id_: str, end: ToolOutcome, event: StreamEvent) -> None:
        use = self._tool_calls.get(id_)
        if use is None:
            return
        if end == "done" and use.outcome == "failed":  # it is told of a failed call as well that it has ended
            end = "failed"
        seconds = use.seconds if event.seconds is None else _round(event.seconds)
        error = "" if end != "failed" else use.error or _shorten(str(event.error or ""), MAX_ERROR_LINE_CHARACTERS)
        self._tool_calls[id_] = replace(use, outcome=end, seconds=seconds, error=error)


def format_arguments(arguments: Mapping[str, Any]) -> tuple[str, int]:
    """Arguments as JSON without secrets, as much of them as is kept; and how many characters more there are."""
    text = storable_text(json.dumps(mask_json(dict(arguments)), ensure_ascii=False, default=str))
    return text[:MAX_ARGUMENTS_CHARACTERS], max(len(text) - MAX_ARGUMENTS_CHARACTERS, 0)


def _shorten(text: str, max_characters: int) -> str:
    """On one line, without secrets."""
    line = " ".join(redact_secrets(storable_text(text)).split())
    return line if len(line) <= max_characters else f"{line[: max_characters - 1].rstrip()}…"


def _round(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)
