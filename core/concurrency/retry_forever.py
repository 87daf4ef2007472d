"""What is tried until it succeeds, however long that takes."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from itertools import chain, repeat

from core.errors import ParleyError
from core.secrets import traced

log = logging.getLogger(__name__)


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
