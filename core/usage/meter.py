"""What a run asks of models: each call, with the tokens that its provider has counted, however the call ended.

A `Meter` is one run's. It is found from wherever in the run a model is called: by an agent, by one that is run as a
tool, or by a tool itself.
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

#: What a stored event is marked with: whose run it is of, and which model has said it.
_MARK = "parley_call"

#: What a call's error is called that nobody waited for any more.
BROKEN_OFF = "cancelled"

#: Whether a model may be asked: its full name, and what tells about how many tokens it is to read. It raises what says
#: that it may not.
Ask = Callable[[str, Callable[[], int]], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens as the provider counts them; see `ModelCall`."""

    input: int = 0
    output: int = 0
    thinking: int = 0
    cached: int = 0
    cache_write: int = 0


_COUNTED = tuple(each.name for each in fields(Usage))


@dataclass(frozen=True, slots=True)
class ModelCall:
    """One call of a model: one request, and what came of it.

    Attributes:
        model: its full name.
        input: tokens read, `cached` and `cache_write` among them.
        output: tokens written, without those of the thinking.
        thinking: tokens thought.
        cached: how many of those read came from the provider's cache.
        cache_write: how many of those read were written to the provider's cache.
        seconds: how long it took; 0 of one that an earlier attempt at the run has made.
        instead_of: the full name of the model that was to be asked, if this one took its place.
        error: the name of what it failed with; empty if it came to its end.
        is_summary: whether it was asked to sum up the conversation, when the turn had ended.
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
        """All that were read, written and thought."""
        return self.input + self.output + self.thinking

    def to_json(self) -> dict[str, Any]:
        """What is not as it mostly is."""
        return {name: value for name, value in asdict(self).items() if value}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ModelCall:
        """Read what `to_json` made."""
        known = {each.name for each in fields(cls)}
        return cls(**{"model": "", **{name: value for name, value in data.items() if name in known}})


@dataclass(slots=True)
class Count:
    """The tokens of a call that is under way.

    Attributes:
        usage: as the provider has counted them by now.
        estimate: estimates them from the request and the answer by now.
    """

    usage: Usage = field(default_factory=Usage)
    estimate: Callable[[], Usage] = Usage

    def tell(self, usage: Usage) -> None:
        """Replace the provider's count by a newer one."""
        self.usage = usage

    def fill_in(self) -> None:
        """Estimate what the provider has not counted of a call that was cancelled.

        Vendors charge for such an answer, and most count it in its last piece alone.
        """
        guess = self.estimate()
        self.usage = replace(
            self.usage,
            input=self.usage.input or guess.input,
            output=max(self.usage.output, guess.output),
            thinking=max(self.usage.thinking, guess.thinking),
        )


async def _unasked(_model: str, _tokens: Callable[[], int]) -> None:
    """Any may be."""


class Meter:
    """The calls of one run, in the order in which they ended.

    Args:
        turn: the id of the turn.
        told: the stored usage of an earlier attempt (`to_json`).
        begun_at: the start of the turn (seconds since the epoch).

    Attributes:
        turn: the id of the turn.
        day: the day on which the turn began (UTC).
        place: the place of the turn's messages.
        author: who pays: the author of the newest message, as the platform's name, a colon and the platform's id.
        author_name: the name of the author on the platform.
        ask: called before each model call.
        begun: the start of each model call under way, by its context.
    """

    def __init__(self, turn: str = "", told: Mapping[str, Any] | None = None, *, begun_at: float | None = None) -> None:
        told = told or {}
        self.turn = turn
        self.day = day_of(time.time() if begun_at is None else begun_at)
        self.place: str = told.get("place", "")
        self.author: str = told.get("author", "")
        self.author_name: str = told.get("author_name", "")
        self.ask: Ask = _unasked
        self.begun = dict[object, float]()
        self._part = uuid.uuid4().hex[:6]
        self._parts: list[str] = list(told.get("parts", ()))
        self._calls = [ModelCall.from_json(call) for call in told.get("calls", ())]

    @property
    def calls(self) -> tuple[ModelCall, ...]:
        return tuple(self._calls)

    @property
    def usage(self) -> Usage:
        """All tokens together."""
        return Usage(
            input=sum(call.input for call in self._calls),
            output=sum(call.output for call in self._calls),
            thinking=sum(call.thinking for call in self._calls),
            cached=sum(call.cached for call in self._calls),
            cache_write=sum(call.cache_write for call in self._calls),
        )

    def mark(self, usage: Usage | None = None) -> dict[str, Any]:
        """Return the mark of a stored answer, by which a later attempt at the run counts it.

        Args:
            usage: the answer's, where ADK's usage metadata does not hold all of it.
        """
        written = {"cache_write": usage.cache_write} if usage is not None and usage.cache_write else {}
        return {_MARK: {"turn": self.turn, "part": self._part, **written}}

    def after(self) -> Meter:
        """Return a meter for the calls that are made for the same turn after its end."""
        other = Meter(self.turn, self.attribution())
        other.day = self.day
        return other

    def add(self, call: ModelCall) -> None:
        used = {name: getattr(call, name) for name in _COUNTED}
        metrics.model_call(call.model, call.error, **used)
        self._calls.append(call)

    def retell(self, events: Iterable[Event]) -> None:
        """Count what an earlier attempt has stored and did not live to tell. What another turn has stored in the same
        run is that one's.
        """
        for event in events:
            mark = (event.custom_metadata or {}).get(_MARK)
            if not mark or not self.turn or mark["turn"] != self.turn or mark["part"] in (self._part, *self._parts):
                continue
            if event.usage_metadata is not None:
                written = int(mark.get("cache_write", 0))
                self._calls.append(_call(event.model_version or "", event.usage_metadata, cache_write=written))

    def to_json(self) -> dict[str, Any]:
        """Return the usage that is stored with the turn: the sums and each call; empty if there was none."""
        if not self._calls:
            return {}
        calls = [call.to_json() for call in self._calls]
        return {**asdict(self.usage), **self.attribution(), "calls": calls, "parts": [*self._parts, self._part]}

    def attribution(self) -> dict[str, Any]:
        """Return the day, the place and the author, as they are stored with the turn."""
        return {"day": self.day, "place": self.place, "author": self.author, "author_name": self.author_name}

    @contextmanager
    def call(self, model: str, *, instead_of: str = "") -> Iterator[Count]:
        """Count one call of a model, however it ends."""
        count, began, error = Count(), time.monotonic(), ""
        try:
            yield count
        except Exception as raised:
            error = type(raised).__name__
            raise
        except BaseException:
            error = BROKEN_OFF
            count.fill_in()
            raise
        finally:
            seconds = round(time.monotonic() - began, 3)
            self.add(ModelCall(model, **asdict(count.usage), seconds=seconds, instead_of=instead_of, error=error))

    def heard(self, response: LlmResponse, model: str, seconds: float) -> None:
        """Count what a model has said that is none of ours."""
        if response.usage_metadata is not None:
            self.add(_call(model, response.usage_metadata, seconds=round(seconds, 3), error=response.error_code or ""))
            response.model_version = model
            response.custom_metadata = {**(response.custom_metadata or {}), **self.mark()}


def day_of(at: float) -> str:
    """The day (UTC) of a moment, in seconds since the epoch."""
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d}"


def calls_in(usage: Mapping[str, Any] | None) -> list[ModelCall]:
    """The calls that a turn has kept (`Meter.to_json`)."""
    return [ModelCall.from_json(call) for call in (usage or {}).get("calls", ())]


_current: ContextVar[Meter | None] = ContextVar("meter", default=None)


def current() -> Meter:
    """The meter of the run that this is a part of; outside of one, one that nobody reads."""
    return _current.get() or Meter()


def run_with(meter: Meter) -> None:
    """Have all that this task does from now on, and those that it begins, be counted by `meter`."""
    _current.set(meter)


def _call(model: str, told: types.GenerateContentResponseUsageMetadata, **more: Any) -> ModelCall:
    return ModelCall(
        model,
        input=(told.prompt_token_count or 0) + (told.tool_use_prompt_token_count or 0),
        output=told.candidates_token_count or 0,
        thinking=told.thoughts_token_count or 0,
        cached=told.cached_content_token_count or 0,
        **more,
    )


class Stopwatch:
    """The times of one run's calls, by their ids."""

    def __init__(self) -> None:
        self._began: dict[str, float] = {}
        self._took: dict[str, float] = {}

    def begin(self, call_id: str) -> None:
        self._began[call_id] = monotonic()

    def end(self, call_id: str) -> None:
        if (began := self._began.get(call_id)) is not None:
            self._took[call_id] = monotonic() - began

    def seconds(self, call_id: str) -> float | None:
        """How long a call took; None of one that was not made here, or has not ended."""
        return self._took.get(call_id)
