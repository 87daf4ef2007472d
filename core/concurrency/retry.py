"""Retries: a limited number of tries of a database operation, and endless tries of a job."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from itertools import chain, repeat
from typing import TypeVar

from core.errors import ParleyError, StoreError
from core.secret_redaction import traced

log = logging.getLogger(__name__)

T = TypeVar("T")

#: Seconds of how long a database may be away before what it was to do is given up.
PATIENCE = 90.0

#: Seconds between one try and the next: soon at first, never so long that it is back for long before that is noticed.
PAUSES = (0.1, 0.4, 1.5, 3.0, *(5.0,) * 17)


async def retried(work: Callable[[], Awaitable[T]], *, what: str, pauses: Iterable[float] = PAUSES) -> T:
    """The result of `work`; if it fails in passing, it is done again after each of `pauses`, within `PATIENCE`.

    The answer to a commit may be lost with the connection: `work` must do no harm when it is done once more than
    it seems.

    Args:
        what: what is being done, for the log.

    Raises:
        StoreError: the last one; or the first that will not pass (`StoreError.retryable`).
    """
    began = time.monotonic()
    for pause in pauses:
        try:
            return await work()
        except StoreError as error:
            if not error.retryable or time.monotonic() - began + pause > PATIENCE:
                raise
            log.warning("%s: %s; trying again in %s s", what, error, pause)
        await asyncio.sleep(pause)
    return await work()


async def persist(
    work: Callable[[], Awaitable[None]], wake: asyncio.Event, pauses: Sequence[float], *, what: str
) -> None:
    """Do `work` whenever `wake` says so, again and again until it succeeds. Until cancelled.

    Args:
        pauses: seconds before each further try, the last one from then on; `wake` cuts one short.
        what: what is told of a failure, before its reason.
    """
    while True:
        await wake.wait()
        wake.clear()
        told = ""
        for pause in chain(pauses, repeat(pauses[-1])):
            reason = await _failure(work)
            if not reason:
                break
            if reason != told:
                log.warning("%s: %s", what, reason)
                told = reason
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await wake.wait()
            wake.clear()


async def _failure(work: Callable[[], Awaitable[None]]) -> str:
    """Why it has failed, if it has."""
    try:
        await work()
    except Exception as error:
        return str(error) if isinstance(error, ParleyError) else traced(error)
    return ""
