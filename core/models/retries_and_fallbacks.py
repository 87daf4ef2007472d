"""Retries of failed model calls, and fallbacks to other models.

A failed call is sent again within limits; the text of the failed attempt is retracted. After the last attempt, the next
model takes over if this one is down, overloaded, silent, unknown or refuses its key. A fault of the request itself,
such as content that safety rules block, is not sent to another model. A fallback may begin in the middle of a text: the
step is then streamed again. No tool runs twice, because tool calls come with the last event of an answer.

A model that failed is skipped for a minute, per process; then the next call tries it once. If all models are skipped,
they are tried in their order.
"""

import asyncio
import logging
import random
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from functools import partial

from google.adk.models.llm_response import LlmResponse
from google.genai import types

from core.concurrency import event_loop
from core.errors import ContentBlockedError, ProviderError, ProviderRequestError
from core.models.provider import ModelHandle
from core.secret_redaction import format_error

log = logging.getLogger(__name__)

#: Seconds before the second and the third attempt, give or take a half.
RETRY_SECONDS = (0.5, 2.0)

#: A provider that asks for a longer wait gets no retry.
MAX_RETRY_AFTER_SECONDS = 30.0

#: A model that failed is skipped for this time, if there are fallbacks.
SKIP_SECONDS = 60.0

_RETRACTION = "parley_retraction"

#: Starts an attempt of a model call. Arguments: the model's full name, and the model that it replaces or "".
Attempt = Callable[[str, str], AsyncGenerator[LlmResponse, None]]


class RetryStream:
    """Responses of one model call over its attempts, with retractions between them."""

    def __init__(self) -> None:
        self._has_output = False

    async def run(
        self, attempt: Callable[[], AsyncGenerator[LlmResponse, None]], waits: Sequence[float]
    ) -> AsyncGenerator[LlmResponse, None]:
        """Yield the responses of an attempt, and of a retry after each failure.

        The first response of a retry follows a retraction of the failed attempt's output. A call that fails for good
        retracts nothing.

        Args:
            attempt: starts an attempt.
            waits: seconds before each retry, give or take a half; their number is that of the retries.

        Raises:
            ProviderError: the error of the last attempt.
        """
        for number, wait in enumerate((*waits, None), 2):
            is_stale = self._has_output
            try:
                async with aclosing(attempt()) as responses:
                    async for response in responses:
                        if is_stale:
                            is_stale = False
                            yield retraction()
                        self._has_output = True
                        yield response
                return
            except ProviderError as error:
                delay = None if wait is None else _retry_delay(error, wait)
                if delay is None:
                    raise
                log.warning("a model call failed: %s; attempt %d follows in %.1f s", format_error(error), number, delay)
            await asyncio.sleep(delay)


def is_retraction(response: LlmResponse) -> bool:
    """Return whether a response voids all earlier partial responses of its call."""
    return bool(response.custom_metadata and response.custom_metadata.get(_RETRACTION))


def retraction() -> LlmResponse:
    """Return a partial response that voids all earlier ones of its call."""
    content = types.ModelContent("")  # ADK drops a response without content
    return LlmResponse(content=content, partial=True, custom_metadata={_RETRACTION: True})


def _retry_delay(error: ProviderError, wait: float) -> float | None:
    """Return the seconds before a retry; None if the error allows none.

    Args:
        wait: seconds, give or take a half, in addition to the wait that the provider asks for.
    """
    retry_after = error.retry_after or 0.0
    if not error.retryable or retry_after > MAX_RETRY_AFTER_SECONDS:
        return None
    return retry_after + wait * random.uniform(0.5, 1.5)  # noqa: S311 - spreads the retries of many calls


class Fallbacks:
    """Models that replace one that fails, and the models to skip for now.

    One instance serves all calls of a process.

    Args:
        models: the fallbacks by their full names, in their order.
    """

    def __init__(self, models: Mapping[str, ModelHandle] | None = None) -> None:
        self.models = models or {}
        self._skipped_until = dict[str, float]()  # times of the event loop's clock

    async def stream(self, model: str, attempt: Attempt, waits: tuple[float, ...]) -> AsyncGenerator[LlmResponse, None]:
        """Yield the responses of a model, or of the first fallback that answers.

        Args:
            model: the full name of the model.
            waits: seconds before each retry. A model that was skipped before gets no retry.

        Raises:
            ProviderError: the error of the first model that was tried, if none answers.
        """
        first_error, stream = None, RetryStream()
        for name in self._list_candidates(model):
            start = partial(attempt, name, "" if name == model else model)
            try:
                async with aclosing(stream.run(start, () if name in self._skipped_until else waits)) as responses:
                    async for response in responses:
                        yield response
            except ProviderError as error:
                is_request_fault = isinstance(error, ContentBlockedError | ProviderRequestError)
                if first_error is None and is_request_fault:
                    raise
                if self.models and not is_request_fault:
                    self._skipped_until[name] = event_loop.now() + SKIP_SECONDS
                first_error = first_error or error
                log.warning("%s cannot answer: %s", name, format_error(error))
            else:
                self._skipped_until.pop(name, None)
                return
        assert first_error is not None, "at least one model was tried"
        raise first_error

    def _list_candidates(self, model: str) -> list[str]:
        names = [model, *(name for name in self.models if name != model)]
        now = event_loop.now()
        return [name for name in names if self._skipped_until.get(name, now) <= now] or names
