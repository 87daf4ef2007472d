"""Meter of model usage: the model calls of a run with their tokens.

Each run has one `UsageMeter`, which all agents and tools of the run read from a context variable.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import UTC, datetime
from time import monotonic
from typing import TYPE_CHECKING, Any, Protocol

from core.errors import SpendingLimitError
from core.observability import metrics

if TYPE_CHECKING:
    from google.adk.events.event import Event
    from google.adk.models.llm_response import LlmResponse
    from google.genai import types

#: Key of an event's custom metadata: the turn, and the attempt at it, that called the model.
_METADATA_KEY = "parley_call"

#: Error of a cancelled call.
CANCELLED = "cancelled"

#: Output tokens in the expected cost of a call, until its answer is longer.
EXPECTED_OUTPUT_TOKENS = 500


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts of one or several model calls.

    Attributes:
        input: includes `cached` and `cache_write`.
        output: without thinking.
        cached: input tokens read from the vendor's prompt cache.
        cache_write: input tokens written to the vendor's prompt cache.
    """

    input: int = 0
    output: int = 0
    thinking: int = 0
    cached: int = 0
    cache_write: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(*(getattr(self, name) + getattr(other, name) for name in _TOKEN_FIELDS))


_TOKEN_FIELDS = tuple(column.name for column in fields(Usage))


@dataclass(frozen=True, slots=True)
class ModelCall:
    """One request to a model; for its token counts see `Usage`.

    Attributes:
        model: full name of the model, such as `openai/NAME`.
        seconds: 0 if an earlier attempt at the turn made the call.
        instead_of: full name of the model that this one replaced as a fallback; empty if it replaced none.
        error: class name of the error, or `CANCELLED`; empty on success.
        is_summary: whether the call summarized the conversation after the turn.
    """

    model: str
    input: int = 0
    output: int = 0
    thinking: int = 0
    cached: int = 0
    cache_write: int = 0
    seconds: float = 0.0
    instead_of: str = ""
    error: str = ""
    is_summary: bool = False

    @property
    def tokens(self) -> int:
        return self.input + self.output + self.thinking

    def to_json(self) -> dict[str, Any]:
        """Return the fields by name, without empty texts, zeros and False."""
        return {name: value for name, value in asdict(self).items() if value}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ModelCall:
        """Return the call that `to_json` wrote; unknown fields are ignored, missing ones have their default."""
        known = {column.name for column in fields(cls)}
        return cls(**{"model": "", **{name: value for name, value in data.items() if name in known}})


@dataclass(slots=True, eq=False)
class RunningCall:
    """Model call that has not ended, with its token counts.

    Attributes:
        model: full name of the model.
        instead_of: see `ModelCall`.
        usage: the token counts that the vendor has sent last.
        estimate: returns an estimate of the tokens of the request and of the answer so far.
        reserved: the expected cost that is reserved for the call; None without spending limits.
        expected_output: the output tokens to reserve.
        started_at: start of the call (monotonic clock).
        output: of an external model: estimated tokens of the answer so far.
        is_complete: of an external model: whether a response that is not partial has come.
    """

    model: str = ""
    instead_of: str = ""
    usage: Usage = field(default_factory=Usage)
    estimate: Callable[[], Usage] = Usage
    reserved: ModelCall | None = None
    expected_output: int = EXPECTED_OUTPUT_TOKENS
    started_at: float = field(default_factory=monotonic)
    output: int = 0
    is_complete: bool = False

    def set_usage(self, usage: Usage) -> None:
        self.usage = usage

    def estimate_unread(self) -> None:
        """Estimate the token counts of a complete answer that are 0; the server's own counts stay."""
        if not (self.usage.output or self.usage.thinking):
            self.estimate_missing()
        elif not self.usage.input:
            self.usage = replace(self.usage, input=self.estimate().input)

    def estimate_missing(self) -> None:
        """Estimate the token counts that the vendor has not sent.

        Vendors charge for a cancelled answer, and most send its token counts in the last chunk only.
        """
        estimate = self.estimate()
        self.usage = replace(
            self.usage,
            input=self.usage.input or estimate.input,
            output=max(self.usage.output, estimate.output),
            thinking=max(self.usage.thinking, estimate.thinking),
        )


class LimitCheck(Protocol):
    """Check of the spending limits before a model call."""

    async def __call__(self, model: str, estimate_input: Callable[[], int], call: RunningCall | None = None) -> None:
        """Reserve the expected cost of a call.

        Args:
            call: the call to make, whose reservation is replaced; None for a check before a call is prepared.

        Raises:
            SpendingLimitError: a limit is reached; the model must not be called.
        """


class PromptSink(Protocol):
    """Store of prompts: `core.privacy.prompts.PromptStore`, which this package cannot import."""

    def save(self, turn_id: str, model: str, agent: str, request: Any) -> None: ...

    async def wait(self, turn_id: str) -> None: ...


async def _no_limits(model: str, estimate_input: Callable[[], int], call: RunningCall | None = None) -> None: ...


async def _no_author_limits(authors: Collection[str]) -> Mapping[str, SpendingLimitError]:
    return {}


class UsageMeter:
    """Collector of the model calls of one run, in the order in which they ended.

    Args:
        stored: the result of `to_json` that earlier attempts at the turn have stored.

    Attributes:
        day: day on which the turn began (UTC), such as `2026-01-31`.
        place: `InboxMessage.place` of the turn's messages.
        author: author of the newest message, as `platform:id`. The calls count against their spending limit.
        check_limits: awaited by the callers of models before each call; raises an error if it must not be made.
        find_spent_authors: returns the error of each of some authors (`platform:id`) whose spending limit is reached.
        running: the calls that have not ended, with their reservations.
    """

    def __init__(
        self, turn: str = "", stored: Mapping[str, Any] | None = None, *, started_at: float | None = None
    ) -> None:
        stored = stored or {}
        self.turn = turn
        self.day = utc_day(time.time() if started_at is None else started_at)
        self.place: str = stored.get("place", "")
        self.author: str = stored.get("author", "")
        self.author_name: str = stored.get("author_name", "")
        self.check_limits: LimitCheck = _no_limits
        self.find_spent_authors: Callable[[Collection[str]], Awaitable[Mapping[str, SpendingLimitError]]] = (
            _no_author_limits
        )
        self.running = list[RunningCall]()
        self.prompts: PromptSink | None = None
        self._external_calls = dict[object, RunningCall]()
        self._attempt_id = uuid.uuid4().hex[:6]
        self._earlier_attempt_ids: list[str] = list(stored.get("parts", ()))
        self._calls = [ModelCall.from_json(call) for call in stored.get("calls", ())]

    @property
    def calls(self) -> tuple[ModelCall, ...]:
        """All model calls of the turn so far, also those of earlier attempts."""
        return tuple(self._calls)

    @property
    def usage(self) -> Usage:
        return Usage(*(sum(getattr(call, name) for call in self._calls) for name in _TOKEN_FIELDS))

    def answer_metadata(self, usage: Usage | None = None) -> dict[str, Any]:
        """Return custom metadata that marks an answer as one of this turn and attempt.

        A later attempt reads it in the stored event: see `add_stored_answers`. It has `cache_write`, because ADK has no
        field for it.
        """
        metadata = {"cache_write": usage.cache_write} if usage is not None and usage.cache_write else {}
        return {_METADATA_KEY: {"turn": self.turn, "part": self._attempt_id, **metadata}}

    def followup_meter(self) -> UsageMeter:
        """Return an empty meter for model calls after the turn, such as a summary; it has no limits."""
        meter = UsageMeter(self.turn, self.to_attribution())
        meter.day = self.day
        return meter

    def add(self, call: ModelCall) -> None:
        """Add a model call that has ended, and count its tokens in the metrics."""
        tokens = {name: getattr(call, name) for name in _TOKEN_FIELDS}
        metrics.record_model_call(call.model, call.error, **tokens)
        self._calls.append(call)

    def add_stored_answers(self, events: Iterable[Event]) -> None:
        """Add the model calls whose answers an earlier attempt at the turn has stored.

        Attempts whose usage was stored with the turn are left out: the meter has their calls already. The metrics do
        not change.
        """
        for event in events:
            mark = (event.custom_metadata or {}).get(_METADATA_KEY)
            if (
                not mark
                or not self.turn
                or mark["turn"] != self.turn
                or mark["part"] in (self._attempt_id, *self._earlier_attempt_ids)
            ):
                continue
            if event.usage_metadata is not None:
                usage = to_usage(event.usage_metadata, cache_write=int(mark.get("cache_write", 0)))
                self._calls.append(ModelCall(event.model_version or "", **asdict(usage)))

    def to_json(self) -> dict[str, Any]:
        """Return the token sums, the attribution and the calls, to store with the turn; empty without a call."""
        if not self._calls:
            return {}
        calls = [call.to_json() for call in self._calls]
        return {
            **asdict(self.usage),
            **self.to_attribution(),
            "calls": calls,
            "parts": [*self._earlier_attempt_ids, self._attempt_id],
        }

    def to_attribution(self) -> dict[str, Any]:
        """Return the day, place and author to which the calls are charged."""
        return {"day": self.day, "place": self.place, "author": self.author, "author_name": self.author_name}

    @asynccontextmanager
    async def run_call(
        self, model: str, estimate_input: Callable[[], int], *, instead_of: str = ""
    ) -> AsyncIterator[RunningCall]:
        """Check the spending limits, time the model call in the block, and add it to the meter.

        The block updates the call's token counts. A call that fails is added too. If the block is cancelled, or ends
        at a spending limit, missing counts are estimated.

        Raises:
            SpendingLimitError: a limit is reached; the block does not begin, and no call is added.
        """
        call = RunningCall(model, instead_of, estimate=lambda: Usage(estimate_input()))
        error = ""
        await self._begin_call(call, estimate_input)
        try:
            yield call
        except BaseException as raised:
            error = type(raised).__name__ if isinstance(raised, Exception) else CANCELLED
            if error == CANCELLED or isinstance(raised, SpendingLimitError):
                call.estimate_missing()
            raise
        finally:
            self._end_call(call, error)

    async def _begin_call(self, call: RunningCall, estimate_input: Callable[[], int]) -> None:
        self.running.append(call)
        try:
            await self.check_limits(call.model, estimate_input, call)
        except BaseException:
            self.running.remove(call)
            raise
        call.started_at = monotonic()

    def _end_call(self, call: RunningCall, error: str) -> None:
        seconds = round(monotonic() - call.started_at, 3)
        self.add(ModelCall(call.model, **asdict(call.usage), seconds=seconds, instead_of=call.instead_of, error=error))
        if call in self.running:
            self.running.remove(call)

    async def extend_reservation(self, call: RunningCall, output_tokens: int) -> None:
        """Reserve more for a call whose answer, estimated in `output_tokens`, is longer than expected.

        Each extension doubles the output tokens, so that a long answer needs few of them.

        Raises:
            SpendingLimitError: other calls have reached a limit meanwhile; the answer must end.
        """
        if (reserved := call.reserved) is not None and output_tokens > call.expected_output:
            call.expected_output = 2 * output_tokens
            await self.check_limits(reserved.model, lambda: reserved.input, call)

    async def begin_external_call(self, key: object, model: str, estimate_input: Callable[[], int]) -> None:
        """Check the spending limits before the call of an external model.

        The key identifies the caller, by its run, agent and branch. It has one call at a time.

        Raises:
            SpendingLimitError: a limit is reached; the model must not be called.
        """
        self._estimate_external_call(key)  # its responses had no token counts
        call = RunningCall(model)
        call.estimate = lambda: Usage(estimate_input(), call.output)
        await self._begin_call(call, estimate_input)
        self._external_calls[key] = call

    async def add_response(self, key: object, response: LlmResponse, model: str, output_tokens: int) -> None:
        """Add a response of an external model, under the key of `begin_external_call`.

        A complete response with token counts ends the call, and is marked with `answer_metadata`. All others count by
        their estimate, if the call ends without token counts.

        Args:
            key: the key of `begin_external_call`.
            response: the response; if it ends the call, its `model_version` and `custom_metadata` are set.
            model: full name of the model.
            output_tokens: estimated tokens of the response.

        Raises:
            SpendingLimitError: the answer is longer than expected, and a limit is reached: see `extend_reservation`.
        """
        call = self._external_calls.get(key, RunningCall(model))
        if response.usage_metadata is not None:
            call.set_usage(to_usage(response.usage_metadata))
        if not response.partial and response.usage_metadata is not None:
            call.model = model
            self._external_calls.pop(key, None)
            self._end_call(call, response.error_code or "")
            response.model_version = model
            response.custom_metadata = {**(response.custom_metadata or {}), **self.answer_metadata()}
        else:
            call.output = max(output_tokens, call.output + (output_tokens if response.partial else 0))
            call.is_complete = not response.partial
            await self.extend_reservation(call, call.output)

    def add_failure(self, key: object, model: str, error: Exception) -> None:
        """Add a failed call of an external model.

        Args:
            key: the key of `begin_external_call`.
            model: full name of the model.
        """
        self._end_call(self._external_calls.pop(key, RunningCall(model)), type(error).__name__)

    def end_external_calls(self) -> None:
        """Add the external calls that were cancelled or sent no token counts, by their estimate."""
        for key in list(self._external_calls):
            self._estimate_external_call(key)

    def _estimate_external_call(self, key: object) -> None:
        if (call := self._external_calls.pop(key, None)) is not None:
            call.estimate_missing()
            self._end_call(call, "" if call.is_complete else CANCELLED)


def utc_day(timestamp: float) -> str:
    """Return the day (UTC) of a timestamp, such as `2026-01-31`."""
    return f"{datetime.fromtimestamp(timestamp, UTC):%Y-%m-%d}"


def parse_stored_calls(usage: Mapping[str, Any] | None) -> list[ModelCall]:
    """Return the model calls in the column `usage` of a turn (`UsageMeter.to_json`)."""
    return [ModelCall.from_json(call) for call in (usage or {}).get("calls", ())]


_current: ContextVar[UsageMeter | None] = ContextVar("meter", default=None)


def get_current_meter() -> UsageMeter:
    """Return the meter of the current run; outside of a run, a new one at each call."""
    return _current.get() or UsageMeter()


def set_current_meter(meter: UsageMeter) -> None:
    """Make a meter the current one of this task and of the tasks that it starts."""
    _current.set(meter)


def to_usage(metadata: types.GenerateContentResponseUsageMetadata, *, cache_write: int = 0) -> Usage:
    """Return ADK's token counts of a response; ADK has no field for `cache_write`."""
    return Usage(
        input=(metadata.prompt_token_count or 0) + (metadata.tool_use_prompt_token_count or 0),
        output=metadata.candidates_token_count or 0,
        thinking=metadata.thoughts_token_count or 0,
        cached=metadata.cached_content_token_count or 0,
        cache_write=cache_write,
    )


@dataclass(slots=True)
class ToolTimer:
    """Timer of the tool calls of a run, by call id."""

    _starts: dict[str, float] = field(default_factory=dict)
    _durations: dict[str, float] = field(default_factory=dict)

    def start(self, call_id: str) -> None:
        self._starts[call_id] = monotonic()

    def stop(self, call_id: str) -> None:
        if (start := self._starts.get(call_id)) is not None:
            self._durations[call_id] = monotonic() - start

    def get_seconds(self, call_id: str) -> float | None:
        """Return a tool call's duration; None until it ends, and if another process made it."""
        return self._durations.get(call_id)
