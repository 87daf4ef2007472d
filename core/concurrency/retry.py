"""Retries with exponential backoff, of database operations and background jobs."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

from tenacity import (
    AsyncRetrying,
    RetryCallState,
    retry_if_exception,
    retry_if_exception_type,
    stop_after_delay,
    stop_before_delay,
)
from tenacity.wait import wait_base, wait_exponential

from core.errors import ParleyError, StoreError
from core.observability.secret_redaction import format_error

log = logging.getLogger(__name__)

T = TypeVar("T")


def backoff(max_seconds: float) -> wait_base:
    """Return a tenacity wait strategy: 0.1 s, doubled per try, at most `max_seconds`."""
    return wait_exponential(multiplier=0.1, max=max_seconds)


#: Seconds of retries while the database is unavailable, after which an operation fails.
RETRY_TIMEOUT_SECONDS = 90.0

#: Seconds of retries of work that nobody waits for, such as a schedule while the platform cannot be reached.
DAY_SECONDS = 86_400.0

#: The pauses between the tries of an operation: at most 5 s, so that it succeeds soon after the database is back.
RETRY_WAIT = backoff(max_seconds=5.0)


async def retry_store(work: Callable[[], Awaitable[T]], *, operation: str, timeout_seconds: float | None = None) -> T:
    """Call `work`, retry it while the database is unavailable, and return its result.

    `work` must be safe to repeat after a success: the reply to its commit may be lost with the connection. The pauses
    are those of `RETRY_WAIT`. A failure is logged only if a retry follows.

    Args:
        operation: the operation as a noun phrase, for the log.
        timeout_seconds: seconds after the first failure in which a retry may begin; None for `RETRY_TIMEOUT_SECONDS`.

    Raises:
        StoreError: the last error of `work` within `timeout_seconds`, or the first that is not `StoreError.retryable`.
        Exception: any other exception of `work`, at once.
    """
    try:  # most operations succeed at once: tenacity would take 0.1 ms of each
        return await work()
    except StoreError as error:
        failures = [error]

    async def attempt() -> T:
        if failures:
            raise failures.pop()
        return await work()

    def log_failure(state: RetryCallState) -> None:
        log.warning("%s: %s; retry in %.1f s", operation, _failure_of(state), state.upcoming_sleep)

    retrying = AsyncRetrying(
        retry=retry_if_exception(lambda error: isinstance(error, StoreError) and error.retryable),
        stop=stop_before_delay(RETRY_TIMEOUT_SECONDS if timeout_seconds is None else timeout_seconds),
        wait=RETRY_WAIT,
        sleep=asyncio.sleep,
        before_sleep=log_failure,
        reraise=True,
    )
    return await retrying(attempt)


async def retry_for_a_day(work: Callable[[], Awaitable[T]], *errors: type[Exception], failure: str) -> T:
    """Call `work`, retry it after these errors for `DAY_SECONDS`, and return its result or raise its last error.

    Args:
        failure: the log message of a failure that is retried, without its reason.
    """

    def log_failure(state: RetryCallState) -> None:
        log.warning("%s: %s", failure, format_error(_failure_of(state)))

    retrying = AsyncRetrying(
        retry=retry_if_exception_type(errors),
        stop=stop_after_delay(DAY_SECONDS),
        wait=backoff(max_seconds=60.0),
        before_sleep=log_failure,
        reraise=True,
    )
    return await retrying(work)


async def retry_forever(
    work: Callable[[], Awaitable[None]], wake: asyncio.Event, wait: wait_base, *, failure: str
) -> None:
    """Call `work` each time `wake` is set, and retry it until it succeeds.

    It runs until it is cancelled. `wake` is cleared before each try; setting it ends a pause early.

    Args:
        failure: the log message of a failure, without its reason. A reason is logged again only if it has changed, or
            after a success.
    """
    last_reason = ""

    async def attempt() -> None:
        wake.clear()
        await work()

    def log_failure(state: RetryCallState) -> None:
        nonlocal last_reason
        error = _failure_of(state)
        reason = str(error) if isinstance(error, ParleyError) else format_error(error)
        if reason != last_reason:
            log.warning("%s: %s", failure, reason)
            last_reason = reason

    async def sleep(seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await wake.wait()

    retrying = AsyncRetrying(retry=retry_if_exception_type(Exception), wait=wait, sleep=sleep, before_sleep=log_failure)
    while True:
        await wake.wait()
        last_reason = ""
        await retrying(attempt)


def _failure_of(state: RetryCallState) -> BaseException:
    assert state.outcome is not None, "only a failed attempt is followed by a pause"
    error = state.outcome.exception()
    assert error is not None, "only a failed attempt is followed by a pause"
    return error
