"""Retries of failed model calls, and fallbacks to other models.

A failed call is sent again, a limited number of times; the text of the failed attempt is retracted. An answer that the
model broke off is a failed call too, but it counts after the last attempt. After the last error, the next model is
called if this one is down, overloaded, silent, unknown or refuses its key. A fault of the request itself, such as
content that safety rules block, is not sent to another model. A fallback may begin in the middle of a text: the step is
then streamed again. No tool runs twice, because tool calls come with the last event of an answer.

A model that failed is skipped for a minute, per process; then the next call tries it once. If all models are skipped,
they are tried in their order.
"""

import logging
import random
from collections.abc import Mapping, Sequence

from google.adk.models.llm_response import LlmResponse
from google.genai import types

from core.concurrency import event_loop
from core.errors import ContentBlockedError, ProviderError, ProviderRequestError
from core.models.provider import ModelHandle
from core.observability.secret_redaction import format_error

log = logging.getLogger(__name__)

#: Seconds before the second and the third attempt, times a random factor of 0.5 to 1.5.
RETRY_DELAYS_SECONDS = (0.5, 2.0)

#: A provider that asks for a longer wait gets no retry.
MAX_RETRY_AFTER_SECONDS = 30.0

#: A model that failed is skipped for this time, if there are fallbacks.
COOLDOWN_SECONDS = 60.0

_RETRACTION = "parley_retraction"


def is_retraction(response: LlmResponse) -> bool:
    """Return whether a response cancels all earlier partial responses of its call."""
    return bool(response.custom_metadata and response.custom_metadata.get(_RETRACTION))


def create_retraction() -> LlmResponse:
    content = types.ModelContent("")  # ADK drops a response without content
    return LlmResponse(content=content, partial=True, custom_metadata={_RETRACTION: True})


class Fallbacks:
    """Fallback models in their order, and the skipped models; one instance serves all calls of a process.

    If there are fallbacks, a model that failed is skipped for `COOLDOWN_SECONDS`, unless the request was at fault.

    Attributes:
        skipped_until: times of the event loop's clock, by the full names of the models that have failed, and have not
            answered since.
    """

    def __init__(self, models: Mapping[str, ModelHandle] | None = None) -> None:
        self.models = models or {}
        self.skipped_until = dict[str, float]()

    def list_candidates(self, model: str) -> list[str]:
        """Return the models to try, in order, without the skipped ones; if all are skipped, all of them."""
        names = [model, *(name for name in self.models if name != model)]
        now = event_loop.now()
        return [name for name in names if self.skipped_until.get(name, now) <= now] or names


class Attempts:
    """Attempts at one model call: `model` is the one to call now.

    Args:
        delays: seconds before each retry of a model, times a random factor from 0.5 to 1.5, plus the error's
            `retry_after`. A model that was skipped, and has not answered since, gets no retry.
    """

    def __init__(self, fallbacks: Fallbacks, model: str, delays: Sequence[float]) -> None:
        self._fallbacks = fallbacks
        self._wanted = model
        self._delays = delays
        self._candidates = fallbacks.list_candidates(model)
        self._first_error: ProviderError | None = None
        self._select_next()

    @property
    def instead_of(self) -> str:
        """The full name of the model that a fallback replaces; empty for the wanted model."""
        return "" if self.model == self._wanted else self._wanted

    @property
    def has_retry(self) -> bool:
        return bool(self._left)

    def fail(self, error: ProviderError) -> float:
        """Decide on the next attempt, which may be at another `model`; return the seconds until it begins.

        Raises:
            ProviderError: the last error of the first model that was tried, if none answers. If that error is a fault
                of the request, no fallback is tried.
        """
        retry_after = error.retry_after or 0.0
        if self._left and error.retryable and retry_after <= MAX_RETRY_AFTER_SECONDS:
            delay = retry_after + self._left.pop(0) * random.uniform(0.5, 1.5)  # noqa: S311 - spreads the retries
            number = 1 + len(self._delays) - len(self._left)
            log.warning("a model call failed: %s; attempt %d follows in %.1f s", format_error(error), number, delay)
            return delay
        is_request_fault = isinstance(error, ContentBlockedError | ProviderRequestError)
        if is_request_fault and self._first_error is None:
            raise error
        if self._fallbacks.models and not is_request_fault:
            self._fallbacks.skipped_until[self.model] = event_loop.now() + COOLDOWN_SECONDS
        self._first_error = self._first_error or error
        log.warning("%s cannot answer: %s", self.model, format_error(error))
        if not self._candidates:
            raise self._first_error
        self._select_next()
        return 0.0

    def succeed(self) -> None:
        self._fallbacks.skipped_until.pop(self.model, None)

    def _select_next(self) -> None:
        self.model = self._candidates.pop(0)
        self._left = [] if self.model in self._fallbacks.skipped_until else list(self._delays)
