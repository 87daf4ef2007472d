"""Sends a failed model call again, within limits, and takes back what the broken attempt had said."""

import asyncio
import logging
import random
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing

from google.adk.models.llm_response import LlmResponse
from google.genai import types

from core.errors import ProviderError
from core.secrets import traced

log = logging.getLogger(__name__)

#: Seconds before the second and the third attempt, give or take a half.
WAITS = (0.5, 2.0)

#: The longest that a provider may ask to wait, in seconds. One that asks for more is not asked again.
LONGEST_WAIT = 30.0

_TAKES_BACK = "parley_takes_back"


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
