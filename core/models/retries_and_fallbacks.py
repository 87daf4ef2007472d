"""Retries of failed model calls, and fallbacks to other models.

A failed call is sent again, a limited number of times; the text of the failed attempt is retracted. An answer that the
model broke off is a failed call too, but it counts after the last attempt. After the last error, the next model is
called if this one is down, overloaded, silent, unknown or refuses its key. A fault of the request itself, such as
content that safety rules block, is not sent to another model. A fallback may begin in the middle of a text: the step is
then streamed again. No tool runs twice, because tool calls come with the last event of an answer.

A model that failed is skipped for a minute, per process; then the next call tries it once. If all models are skipped,
they are tried in their order.
"""

import asyncio
import logging
import random
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing

from google.adk.models.llm_response import LlmResponse
from google.genai import types

from core.concurrency import event_loop
from core.errors import ContentBlockedError, ProviderError, ProviderRequestError, ProviderStreamError
from core.models.provider import ModelHandle
from core.secret_redaction import format_error

log = logging.getLogger(__name__)

#: Seconds before the second and the third attempt, times a random factor of 0.5 to 1.5.
RETRY_DELAYS_SECONDS = (0.5, 2.0)

#: A provider that asks for a longer wait gets no retry.
MAX_RETRY_AFTER_SECONDS = 30.0

#: A model that failed is skipped for this time, if there are fallbacks.
COOLDOWN_SECONDS = 60.0

_RETRACTION = "parley_retraction"

#: Starts an attempt of a model call. Arguments: the model's full name, and the model that it replaces or "".
Attempt = Callable[[str, str], AsyncGenerator[LlmResponse, None]]


def is_retraction(response: LlmResponse) -> bool:
    """Return whether a response cancels all earlier partial responses of its call."""
    return bool(response.custom_metadata and response.custom_metadata.get(_RETRACTION))


def create_retraction() -> LlmResponse:
    """Return a partial response that cancels all earlier ones of its call."""
    content = types.ModelContent("")  # ADK drops a response without content
    return LlmResponse(content=content, partial=True, custom_metadata={_RETRACTION: True})


def _retry_delay(error: ProviderError, wait: float) -> float | None:
    """Return the seconds before a retry; None if the error allows no retry.

    No retry follows an error that is not `retryable`, or that asks for more than `MAX_RETRY_AFTER_SECONDS`.

    Args:
        error: the error of the failed attempt.
        wait: seconds to add to those that the provider asks to wait; a random factor from 0.5 to 1.5 changes them.
    """
    retry_after = error.retry_after or 0.0
    if not error.retryable or retry_after > MAX_RETRY_AFTER_SECONDS:
        return None
    return retry_after + wait * random.uniform(0.5, 1.5)  # noqa: S311 - spreads the retries of many calls


class Fallbacks:
    """Models that replace a model that fails, and the models that are skipped for now.

    One instance serves all calls of a process. If there are fallbacks, a model that failed is skipped for
    `COOLDOWN_SECONDS`, unless the request was at fault: `ContentBlockedError` or `ProviderRequestError`.

    Args:
        models: the fallbacks by their full names, in the order in which they are tried.
    """

    def __init__(self, models: Mapping[str, ModelHandle] | None = None) -> None:
        self.models = models or {}
        self._skipped_until = dict[str, float]()  # times of the event loop's clock

    async def stream(
        self,
        model: str,
        attempt: Attempt,
        waits: Sequence[float],
        should_repeat: Callable[[LlmResponse], bool] = lambda _response: False,
    ) -> AsyncGenerator[LlmResponse, None]:
        """Yield the responses of a model, or of the first fallback that answers.

        If an attempt fails after it yielded responses, a retraction comes before the responses of the next attempt. If
        no model answers, nothing is retracted.

        Args:
            model: the full name of the model.
            attempt: starts an attempt at the call: see `Attempt`.
            waits: seconds before each retry, times a random factor from 0.5 to 1.5, plus the error's `retry_after`. A
                model that was skipped, and has not answered since, gets no retry. No retry follows an error that is
                not `retryable`, or that asks for more than `MAX_RETRY_AFTER_SECONDS`.
            should_repeat: returns whether a retry is better than a response. The last attempt is not repeated.

        Raises:
            ProviderError: the last error of the first model that was tried, if none answers. If that error is a fault
                of the request, no fallback is tried.
            SpendingLimitError: an attempt reached a spending limit; no other model is tried.
        """
        first_error, has_output = None, False
        for name in self._list_candidates(model):
            for number, wait in enumerate((*(() if name in self._skipped_until else waits), None), 2):
                is_stale = has_output
                try:
                    async with aclosing(attempt(name, "" if name == model else model)) as responses:
                        async for response in responses:
                            if wait is not None and should_repeat(response):
                                raise ProviderStreamError(f"{name} broke off its answer ({response.finish_reason})")
                            if is_stale:
                                is_stale = False
                                yield create_retraction()
                            has_output = True
                            yield response
                    self._skipped_until.pop(name, None)
                    return
                except ProviderError as error:
                    failure = error
                if wait is None or (delay := _retry_delay(failure, wait)) is None:
                    break
                log.warning(
                    "a model call failed: %s; attempt %d follows in %.1f s", format_error(failure), number, delay
                )
                await asyncio.sleep(delay)
            is_request_fault = isinstance(failure, ContentBlockedError | ProviderRequestError)
            if first_error is None and is_request_fault:
                raise failure
            if self.models and not is_request_fault:
                self._skipped_until[name] = event_loop.now() + COOLDOWN_SECONDS
            first_error = first_error or failure
            log.warning("%s cannot answer: %s", name, format_error(failure))
        assert first_error is not None, "at least one model was tried"
        raise first_error

    def _list_candidates(self, model: str) -> list[str]:
        """Return the names of the models to try, in order, without the skipped ones.

        If all are skipped, all are returned.
        """
        names = [model, *(name for name in self.models if name != model)]
        now = event_loop.now()
        return [name for name in names if self._skipped_until.get(name, now) <= now] or names
