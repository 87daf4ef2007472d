"""Retries of failed model calls, and fallbacks to other models.

A failed call is sent again within limits; the text of the failed attempt is retracted. After the last attempt, the next
model takes over if this one is down, overloaded, silent, unknown or refuses its key. A fault of the request itself,
such as content that safety rules block, is not sent to another model. A fallback may begin in the middle of a text: the
step is then streamed again. No tool runs twice, because tool calls come with the last event of an answer.

A model that failed is skipped for a pause that grows with each failure, per process; then the next call tries it once.
If all models are skipped, they are tried in their order.
"""

import asyncio
import logging
import random
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial

from google.adk.models.llm_response import LlmResponse
from google.genai import types

from core.concurrency import event_loop
from core.errors import ContentBlockedError, ProviderError, ProviderRequestError
from core.models.provider import Offered
from core.secret_redaction import traced

log = logging.getLogger(__name__)

#: Seconds before the second and the third attempt, give or take a half.
WAITS = (0.5, 2.0)

#: The longest that a provider may ask to wait, in seconds. One that asks for more is not asked again.
LONGEST_WAIT = 30.0

_TAKES_BACK = "parley_takes_back"

#: Seconds for which a model is passed over that has failed, for the first time and at the most.
FIRST_PAUSE, LONGEST_PAUSE = 5.0, 300.0

#: One attempt at a call: of the model of that full name, instead of another one if one is named.
Attempt = Callable[[str, str], AsyncGenerator[LlmResponse, None]]


class Telling:
    """What a listener has before him of one call, over all attempts at it."""

    def __init__(self) -> None:
        self._has_begun = False

    async def anew(self, responses: AsyncGenerator[LlmResponse, None]) -> AsyncGenerator[LlmResponse, None]:
        """The responses of one more attempt. If a broken one has told something, a partial response that `takes_back`
        all of it comes before the first of them. Until then what was said may stand: a call that fails for good takes
        nothing back.
        """
        is_stale = self._has_begun
        async with aclosing(responses):
            async for response in responses:
                if is_stale:
                    is_stale = False
                    yield taking_back()
                self._has_begun = True
                yield response


async def attempts(
    attempt: Callable[[], AsyncGenerator[LlmResponse, None]], waits: Sequence[float], telling: Telling
) -> AsyncGenerator[LlmResponse, None]:
    """What `attempt` yields, begun anew after each failure that may pass, at most once for each of `waits`.

    Raises:
        ProviderError: what the last attempt failed with.
    """
    for number, wait in enumerate((*waits, None), 2):
        try:
            async with aclosing(telling.anew(attempt())) as responses:
                async for response in responses:
                    yield response
            return
        except ProviderError as error:
            pause = None if wait is None else _pause(error, wait)
            if pause is None:
                raise
            log.warning("a model call failed: %s; attempt %d follows in %.1f s", traced(error), number, pause)
        await asyncio.sleep(pause)


def takes_back(response: LlmResponse) -> bool:
    """Whether a response says that all partial ones of this call before it are void."""
    return bool(response.custom_metadata and response.custom_metadata.get(_TAKES_BACK))


def taking_back() -> LlmResponse:
    """A partial response that says so."""
    content = types.ModelContent("")  # ADK: without content it would not be passed on
    return LlmResponse(content=content, partial=True, custom_metadata={_TAKES_BACK: True})


def _pause(error: ProviderError, wait: float) -> float | None:
    """Seconds until the next attempt, if there may be one: never fewer than the provider asked for."""
    asked = error.retry_after or 0.0
    if not error.retryable or asked > LONGEST_WAIT:
        return None
    return asked + wait * random.uniform(0.5, 1.5)  # noqa: S311 - so that many do not come back at one moment


@dataclass(slots=True)
class _Trouble:
    """A model that has failed: how long it is passed over, and until when (by the loop's clock)."""

    pause: float
    until: float


class Fallbacks:
    """One for all models of a process.

    Args:
        offered: those that may take another's place, by their full names, in their order.
    """

    def __init__(self, offered: Mapping[str, Offered] | None = None) -> None:
        self.offered = offered or {}
        self._troubles = dict[str, _Trouble]()

    async def answer(self, model: str, attempt: Attempt, waits: tuple[float, ...]) -> AsyncGenerator[LlmResponse, None]:
        """What a model answers, or the first of the others that does.

        Args:
            waits: see `core.models.retries_and_fallbacks`; a model that has just failed gets one attempt.

        Raises:
            ProviderError: what the model has failed with, or the first that was asked, if none has answered.
        """
        first, telling = None, Telling()
        for name in self._chain(model):
            asked = partial(attempt, name, "" if name == model else model)
            tries = () if name in self._troubles else waits
            try:
                async with aclosing(attempts(asked, tries, telling)) as responses:
                    async for response in responses:
                        yield response
            except ProviderError as error:
                is_its_own = not isinstance(error, ContentBlockedError | ProviderRequestError)
                if first is None and not is_its_own:
                    raise
                if is_its_own:
                    self._fail(name)
                first = first or error
                log.warning("%s cannot answer: %s", name, traced(error))
            else:
                self._troubles.pop(name, None)
                return
        assert first is not None, "a model has been asked"
        raise first

    def _chain(self, model: str) -> list[str]:
        names = [model, *(name for name in self.offered if name != model)]
        if len(names) == 1:
            return names
        now = event_loop.now()
        return [name for name in names if name not in self._troubles or self._troubles[name].until <= now] or names

    def _fail(self, model: str) -> None:
        if not self.offered:
            return
        before, now = self._troubles.get(model), event_loop.now()
        if before and now < before.until:  # what breaks many calls at once is one failure
            return
        pause = min(before.pause * 2, LONGEST_PAUSE) if before else FIRST_PAUSE
        self._troubles[model] = _Trouble(pause, now + pause)
