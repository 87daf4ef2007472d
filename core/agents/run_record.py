"""Run records: tool calls, files, context and timings of a turn's run.

A run record is stored in the turn's row, by the statement that stores the answer or the end of the turn.
`core.conversations.turn_report` adds the messages, model calls, decisions and cost from other rows.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import takewhile
from time import monotonic
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

from core.agents.events import StreamEvent
from core.messages.inbox_message import storable_text
from core.observability.secret_redaction import MAX_REDACTED_LEVELS, redact_json_secrets, redact_secrets
from core.sessions.history import HistoryWindow

#: Limits of a run record: tool calls, files, sources, and characters of their texts.
MAX_TOOLS, MAX_FILES, MAX_SOURCES = 50, 20, 20
MAX_ARGUMENTS_CHARACTERS, MAX_ERROR_LINE_CHARACTERS, MAX_NAME_CHARACTERS = 600, 300, 120

#: Outcome of a tool call: `waiting` for a person's approval, or `open` because it had not ended at the end of the turn.
ReceivedToolResult = Literal["done", "failed", "waiting", "open"]


@dataclass(frozen=True, slots=True)
class ContextRecord:
    """Counts of the prompt's context messages, which the turn does not answer.

    Attributes:
        tokens: number of tokens of these messages, except those that a prompt is about.
        omitted_messages: number of context messages that did not fit into the prompt.
    """

    messages: int = 0
    tokens: int = 0
    omitted_messages: int = 0


@dataclass(frozen=True, slots=True)
class FileRecord:
    """Attachment of a user message that a turn answers; `omission_reason` is empty if the model got it."""

    name: str
    omission_reason: str = ""


@dataclass(frozen=True, slots=True)
class ToolCallRecord:
    """One tool call of a run.

    Attributes:
        id: the id of the call; the name of the tool if the call has none.
        arguments: JSON without secrets, cut at `MAX_ARGUMENTS_CHARACTERS`.
        error: error text that the model got; empty unless `outcome` is `failed`.
    """

    id: str
    tool: str
    arguments: str
    cut_characters: int = 0
    seconds: float | None = None
    outcome: ReceivedToolResult = "open"
    error: str = ""
    is_from_earlier_attempt: bool = False


@dataclass(frozen=True, slots=True)
class RunRecord:
    """Stored record of one run: its tool calls, files, context, sources and timings.

    Attributes:
        tool_calls: in the order in which they began, at most `MAX_TOOLS`.
        sources: addresses of the web pages that the answer is based on.
        first_text_seconds: seconds from the start of the run to its first text.
    """

    tool_calls: tuple[ToolCallRecord, ...] = ()
    omitted_tool_calls: int = 0
    history: HistoryWindow | None = None
    context: ContextRecord = ContextRecord()
    files: tuple[FileRecord, ...] = ()
    sources: tuple[str, ...] = ()
    first_text_seconds: float | None = None
    seconds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: object) -> "RunRecord | None":
        """Return the record that `to_json` made; None for data that does not fit this version of the class."""
        try:
            return None if data is None else _RUN_RECORD.validate_python(data)
        except ValidationError:
            return None


_RUN_RECORD = TypeAdapter(RunRecord)


class RunRecorder:
    """Builder of the `RunRecord` of a run from its stream events; the caller sets `context`."""

    def __init__(self) -> None:
        self._started_at = monotonic()
        self._first_text_seconds: float | None = None
        self._tool_calls: dict[str, ToolCallRecord] = {}
        self._omitted_tool_calls = 0
        self._history: HistoryWindow | None = None
        self.context = ContextRecord()
        self._files: tuple[FileRecord, ...] = ()
        self._sources: tuple[str, ...] = ()

    def set_files(self, files: Sequence[FileRecord]) -> None:
        """Set the attachments, at most `MAX_FILES`; their texts are shortened, and secrets in them masked."""
        self._files = tuple(
            FileRecord(
                _shorten(file.name, MAX_NAME_CHARACTERS), _shorten(file.omission_reason, MAX_ERROR_LINE_CHARACTERS)
            )
            for file in files[:MAX_FILES]
        )

    def record_event(self, event: StreamEvent) -> None:
        """Update the record by a stream event; call it with each event of the run."""
        match event.type:
            case "history":
                self._history = event.history
            case "text_delta" if self._first_text_seconds is None and event.text.strip():
                self._first_text_seconds = monotonic() - self._started_at
            case "tool_start":
                self._add_tool_call(event)
            case "tool_past":
                self._add_tool_call(event, is_earlier=True)
                self._end_tool_call(event.call_id, "failed" if event.error else "done", event)
            case "error" if event.call_id:
                self._end_tool_call(event.call_id, "failed", event)
            case "tool_wait":
                self._end_tool_call(event.call_id, "waiting", event)
            case "tool_end":
                self._end_tool_call(event.call_id or event.tool, "done", event)
            case "done":
                self._sources = tuple(storable_text(source.url) for source in event.sources[:MAX_SOURCES])

    @property
    def run_record(self) -> dict[str, Any]:
        """The `RunRecord.to_json` of the events so far; its `seconds` are those since this recorder was made."""
        return RunRecord(
            tool_calls=tuple(self._tool_calls.values()),
            omitted_tool_calls=self._omitted_tool_calls,
            history=self._history,
            context=self.context,
            files=self._files,
            sources=self._sources,
            first_text_seconds=_round(self._first_text_seconds),
            seconds=round(monotonic() - self._started_at, 3),
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

    def _end_tool_call(self, id_: str, end: ReceivedToolResult, event: StreamEvent) -> None:
        use = self._tool_calls.get(id_)
        if use is None:
            return
        if end == "done" and use.outcome == "failed":  # a failed call has a `tool_end` too
            end = "failed"
        seconds = use.seconds if event.seconds is None else _round(event.seconds)
        error = "" if end != "failed" else use.error or _shorten(str(event.error or ""), MAX_ERROR_LINE_CHARACTERS)
        self._tool_calls[id_] = replace(use, outcome=end, seconds=seconds, error=error)


def format_arguments(arguments: Mapping[str, Any]) -> tuple[str, int]:
    """Return a call's arguments as JSON without secrets, and the number of characters that were cut."""
    beginning = _cut_values(dict(arguments), 10 * MAX_ARGUMENTS_CHARACTERS)
    omitted = len(_to_json(dict(arguments))) - len(_to_json(beginning))
    text = storable_text(_to_json(redact_json_secrets(beginning)))
    return text[:MAX_ARGUMENTS_CHARACTERS], max(len(text) + omitted - MAX_ARGUMENTS_CHARACTERS, 0)


def _to_json(arguments: Any) -> str:
    return json.dumps(arguments, ensure_ascii=False, default=str)


def _cut_values(arguments: Any, max_characters: int) -> Any:
    """Return JSON with only its first values: to redact secrets takes 0.5 µs for each character."""
    left = max_characters

    def cut(value: Any, depth: int) -> Any:
        nonlocal left
        match value:
            case str():
                left -= len(value)
                return value[:max_characters]
            case dict() if depth:
                items = takewhile(lambda _: left > 0, value.items())
                return {cut(name, 0): cut(item, depth - 1) for name, item in items}
            case list() if depth:
                return [cut(item, depth - 1) for item in takewhile(lambda _: left > 0, value)]
        left -= 1
        return value

    return cut(arguments, MAX_REDACTED_LEVELS)


def _shorten(text: str, max_characters: int) -> str:
    """Return a text on one line, without secrets, cut to a length with an ellipsis."""
    line = " ".join(redact_secrets(storable_text(text)).split())
    return line if len(line) <= max_characters else f"{line[: max_characters - 1].rstrip()}…"


def _round(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)
