"""Fallbacks: the models that answer, in their order, where another one cannot.

Another takes a model's place when that one is down, overloaded, silent, unknown or refuses its key, after all the
attempts that it gets. What the request itself is to blame for, such as what safety rules withhold, no other is asked.
It may be in the middle of a text: what the broken call had said is taken back, as it is before a second attempt, and
the step is told anew. Tools are safe from that, for a call of one comes with the last word of an answer.

A model that failed is passed over for a pause, which grows each time that it fails again, in each process by itself;
then the next call tries it once. Where all are passed over, they are tried in their order nevertheless.
"""

import logging
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial

from google.adk.models.llm_response import LlmResponse

from core.concurrency import event_loop
from core.errors import ContentBlockedError, ProviderError, ProviderRequestError
from core.models.model_handle import Offered
from core.models.retries import Telling, attempts
from core.secrets import traced

log = logging.getLogger(__name__)

#: Seconds for which a model is passed over that has failed, for the first time and at the most.
FIRST_PAUSE, LONGEST_PAUSE = 5.0, 300.0

#: One attempt at a call: of the model of that full name, instead of another one if one is named.
Attempt = Callable[[str, str], AsyncGenerator[LlmResponse, None]]


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
            waits: see `core.models.retries`; a model that has just failed gets one attempt.

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
