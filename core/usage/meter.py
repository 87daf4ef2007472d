"""Meter of model usage: the model calls of a run with their tokens.

Each run has one `UsageMeter`, which all agents and tools of the run read from a context variable.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import UTC, datetime
from time import monotonic
from typing import TYPE_CHECKING, Any

from core.observability import metrics

if TYPE_CHECKING:
    from google.adk.events.event import Event
    from google.adk.models.llm_response import LlmResponse
    from google.genai import types

#: Key of an event's custom metadata: the turn, and the attempt at it, that called the model.
_METADATA_KEY = "parley_call"

#: Error of a cancelled call.
CANCELLED = "cancelled"

#: Function that raises an error if a model must not be called. Arguments: the model's full name, and a function that
#: returns an estimate of the input tokens.
LimitCheck = Callable[[str, Callable[[], int]], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts of one or several model calls.

    Attributes:
        input: input tokens, including `cached` and `cache_write`.
        output: output tokens without thinking.
        thinking: tokens of the model's thinking.
        cached: input tokens read from the vendor's prompt cache.
        cache_write: input tokens written to the vendor's prompt cache.
    """

    input: int = 0
    output: int = 0
    thinking: int = 0
    cached: int = 0
    cache_write: int = 0


_TOKEN_FIELDS = tuple(column.name for column in fields(Usage))


@dataclass(frozen=True, slots=True)
class ModelCall:
    """One request to a model: its token counts, duration and error.

    Attributes:
        model: full name of the model, such as `openai/NAME`.
        input: input tokens, including `cached` and `cache_write`.
        output: output tokens without thinking.
        thinking: tokens of the model's thinking.
        cached: input tokens read from the vendor's prompt cache.
        cache_write: input tokens written to the vendor's prompt cache.
        seconds: duration in seconds; 0 if an earlier attempt at the turn made the call.
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
        """Number of input, output and thinking tokens of the call."""
        return self.input + self.output + self.thinking

    def to_json(self) -> dict[str, Any]:
        """Return a dict of the fields by name, without empty texts, zeros and False."""
        return {name: value for name, value in asdict(self).items() if value}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ModelCall:
        """Return the call that `to_json` wrote.

        Unknown fields are ignored, and missing ones have their default; a missing `model` is empty.
        """
        known = {column.name for column in fields(cls)}
        return cls(**{"model": "", **{name: value for name, value in data.items() if name in known}})


@dataclass(slots=True)
class RunningCall:
    """Token counts of a model call that has not ended.

    Attributes:
        usage: the token counts that the vendor has sent last.
        estimate: returns an estimate of the tokens of the request and of the answer so far.
    """

    usage: Usage = field(default_factory=Usage)
    estimate: Callable[[], Usage] = Usage

    def set_usage(self, usage: Usage) -> None:
        """Store newer token counts of the vendor in place of the former ones."""
        self.usage = usage

    def estimate_missing(self) -> None:
        """Fill in token counts that the vendor has not sent, by the estimate.

        An input count of 0 becomes the estimated one. The output and thinking counts become at least the estimated
        ones. Vendors charge for a cancelled answer, and most send its token counts in the last chunk only.
        """
        estimate = self.estimate()
        self.usage = replace(
            self.usage,
            input=self.usage.input or estimate.input,
            output=max(self.usage.output, estimate.output),
            thinking=max(self.usage.thinking, estimate.thinking),
        )


async def _no_limits(_model: str, _tokens: Callable[[], int]) -> None:
    """Allow every model call: the `LimitCheck` of a meter without limits."""


class UsageMeter:
    """Collector of the model calls of one run, in the order in which they ended.

    Args:
        turn: id of the turn.
        stored: the result of `to_json` that earlier attempts at the turn have stored; None for the first attempt.
        started_at: start of the turn, in seconds since the epoch; None for now.

    Attributes:
        turn: id of the turn.
        day: day on which the turn began (UTC), such as `2026-01-31`.
        place: place of the turn's messages: `InboxMessage.place`.
        author: author of the newest message, as `platform:id`. The calls count against their spending limit.
        author_name: name of the author on the platform.
        check_limits: awaited by the callers of models before each call; raises an error if it must not be made.
        call_starts: start of each running call of an external model (monotonic clock), by run, agent and branch.
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
        self.call_starts = dict[object, float]()
        self._attempt_id = uuid.uuid4().hex[:6]
        self._earlier_attempt_ids: list[str] = list(stored.get("parts", ()))
        self._calls = [ModelCall.from_json(call) for call in stored.get("calls", ())]

    @property
    def calls(self) -> tuple[ModelCall, ...]:
        """All model calls of the turn so far, also those of earlier attempts."""
        return tuple(self._calls)

    @property
    def usage(self) -> Usage:
        """Sums of the token counts of all calls."""
        return Usage(
            input=sum(call.input for call in self._calls),
            output=sum(call.output for call in self._calls),
            thinking=sum(call.thinking for call in self._calls),
            cached=sum(call.cached for call in self._calls),
            cache_write=sum(call.cache_write for call in self._calls),
        )

    def answer_metadata(self, usage: Usage | None = None) -> dict[str, Any]:
        """Return custom metadata that marks an answer as one of this turn and attempt.

        A later attempt reads it in the stored event: see `add_stored_answers`.

        Args:
            usage: token counts of the answer. Its `cache_write` is in the metadata, because ADK has no field for it.

        Returns:
            A dict with the one key `parley_call`; its value has the keys `turn`, `part` (the id of the attempt), and
            `cache_write` unless that is 0.
        """
        metadata = {"cache_write": usage.cache_write} if usage is not None and usage.cache_write else {}
        return {_METADATA_KEY: {"turn": self.turn, "part": self._attempt_id, **metadata}}

    def followup_meter(self) -> UsageMeter:
        """Return an empty meter with the same turn, day, place and author.

        It is for model calls after the turn, such as a summary, and has no limits.
        """
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

        Args:
            events: the stored events of the run.
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
                cache_write = int(mark.get("cache_write", 0))
                self._calls.append(
                    _to_model_call(event.model_version or "", event.usage_metadata, cache_write=cache_write)
                )

    def to_json(self) -> dict[str, Any]:
        """Return the token sums, the attribution and the calls, to store with the turn.

        Returns:
            A dict with the fields of `Usage`, the keys of `to_attribution`, `calls` (see `ModelCall.to_json`) and
            `parts` (the ids of all attempts). It is empty without a call.
        """
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
        """Return the day, place and author to which the calls are charged, as JSON.

        The keys are `day`, `place`, `author` and `author_name`.
        """
        return {"day": self.day, "place": self.place, "author": self.author, "author_name": self.author_name}

    @contextmanager
    def measure_call(self, model: str, *, instead_of: str = "") -> Iterator[RunningCall]:
        """Time the model call in the block, and add it to the meter, also if it fails.

        Yields the call's token counts, which the block updates. If the block is cancelled, missing counts are
        estimated.

        Args:
            model: full name of the model.
            instead_of: full name of the model that it replaces as a fallback; empty if it replaces none.
        """
        call, start, error = RunningCall(), monotonic(), ""
        try:
            yield call
        except Exception as raised:
            error = type(raised).__name__
            raise
        except BaseException:
            error = CANCELLED
            call.estimate_missing()
            raise
        finally:
            seconds = round(monotonic() - start, 3)
            self.add(ModelCall(model, **asdict(call.usage), seconds=seconds, instead_of=instead_of, error=error))

    def add_answer(self, response: LlmResponse, model: str, seconds: float) -> None:
        """Add the call of an external model, and mark its answer with `answer_metadata`.

        A response without token counts changes nothing.

        Args:
            response: the answer; its `model_version` and `custom_metadata` are set.
            model: full name of the model.
            seconds: duration of the call.
        """
        if response.usage_metadata is not None:
            self.add(
                _to_model_call(
                    model, response.usage_metadata, seconds=round(seconds, 3), error=response.error_code or ""
                )
            )
            response.model_version = model
            response.custom_metadata = {**(response.custom_metadata or {}), **self.answer_metadata()}


def utc_day(timestamp: float) -> str:
    """Return the day (UTC) of a timestamp, such as `2026-01-31`."""
    return f"{datetime.fromtimestamp(timestamp, UTC):%Y-%m-%d}"


def parse_stored_calls(usage: Mapping[str, Any] | None) -> list[ModelCall]:
    """Return the model calls in a turn's stored usage (`UsageMeter.to_json`).

    Args:
        usage: the column `usage` of the turn; None for no calls.
    """
    return [ModelCall.from_json(call) for call in (usage or {}).get("calls", ())]


_current: ContextVar[UsageMeter | None] = ContextVar("meter", default=None)


def get_current_meter() -> UsageMeter:
    """Return the meter of the current run; outside of a run, a new one at each call."""
    return _current.get() or UsageMeter()


def set_current_meter(meter: UsageMeter) -> None:
    """Make a meter the current one of this task and of the tasks that it starts."""
    _current.set(meter)


def _to_model_call(model: str, metadata: types.GenerateContentResponseUsageMetadata, **fields: Any) -> ModelCall:
    return ModelCall(
        model,
        input=(metadata.prompt_token_count or 0) + (metadata.tool_use_prompt_token_count or 0),
        output=metadata.candidates_token_count or 0,
        thinking=metadata.thoughts_token_count or 0,
        cached=metadata.cached_content_token_count or 0,
        **fields,
    )


@dataclass(slots=True)
class ToolTimer:
    """Timer of the tool calls of a run: their durations by call id."""

    _starts: dict[str, float] = field(default_factory=dict)
    _durations: dict[str, float] = field(default_factory=dict)

    def start(self, call_id: str) -> None:
        self._starts[call_id] = monotonic()

    def stop(self, call_id: str) -> None:
        if (start := self._starts.get(call_id)) is not None:
            self._durations[call_id] = monotonic() - start

    def get_seconds(self, call_id: str) -> float | None:
        """Return the duration of a tool call in seconds; None if it is unknown.

        It is unknown until the call ends, and if another process made the call.
        """
        return self._durations.get(call_id)
