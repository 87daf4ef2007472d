"""Calls of a platform's API, within the rate limits and with retries."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from math import inf
from typing import Any, TypeVar

from channels.base import Priority
from channels.rate_limits.limiter import RateLimiter
from channels.rate_limits.registry import RateLimiters
from core.concurrency import event_loop
from core.errors import SurfaceError
from core.observability import metrics

log = logging.getLogger(__name__)

T = TypeVar("T")

#: Seconds before each retry of a call that failed for a transient reason. After the last one, eight minutes from the
#: first, the call is given up.
RETRY_SECONDS = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 60.0, 120.0, 240.0)

#: Seconds between two checks of whether a waiting call is still needed.
CHECK_SECONDS = 0.5

#: Awaited while a call waits, and once more before the call is made; raises if the call is not needed any more.
CheckNeeded = Callable[[], Awaitable[None]]

#: The time of the event loop until which a rate limit must allow a call: see `deadline`.
_deadline: ContextVar[float] = ContextVar("deadline", default=inf)

_check: ContextVar[tuple[asyncio.Task[Any] | None, CheckNeeded] | None] = ContextVar("check", default=None)


@contextmanager
def cancel_unless(check: CheckNeeded) -> Iterator[None]:
    """Cancel an API call of this task that waits within the block once `check` raises.

    A call awaits `check` every `CHECK_SECONDS` while it waits for its rate limit or before a retry, and raises its
    error. A call that is already sent is not cancelled. Tasks that this task creates are not affected.
    """
    token = _check.set((asyncio.current_task(), check))
    try:
        yield
    finally:
        _check.reset(token)


@contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """Make API calls in the `with` block fail at once if they would wait too long.

    A call raises `RateLimitDeadlineError` if its rate limit is unlikely to allow it within `seconds` from the start of
    the block.
    """
    token = _deadline.set(event_loop.now() + seconds)
    try:
        yield
    finally:
        _deadline.reset(token)


class RefusedError(SurfaceError):
    """The platform refused an API call; a retry cannot succeed."""

    def __init__(self, name: str, code: str) -> None:
        super().__init__(f"{name}: {code}")
        self.code = code


class RateLimitDeadlineError(SurfaceError):
    """The rate limit is unlikely to allow a call before its deadline: see `deadline`."""


class TransientError(Exception):
    """An API call failed for a temporary reason; it may have taken effect.

    Attributes:
        retry_after: the seconds to wait that the platform's rate limit demands; the call took no effect then.
    """

    def __init__(self, cause: str, *, retry_after: float | None = None) -> None:
        super().__init__(cause)
        self.retry_after = retry_after


class Caller:
    """Makes a platform's API calls: waits for rate limits, retries, records metrics.

    Args:
        platform: the platform's name, for the metrics.
    """

    def __init__(self, platform: str, *, pauses: tuple[float, ...] = RETRY_SECONDS, speed: float = 1.0) -> None:
        self._platform = platform
        self.limiters = RateLimiters(speed=speed)
        self._pauses = pauses

    async def call_once(
        self,
        name: str,
        send: Callable[[], Awaitable[T]],
        limiter: RateLimiter,
        *,
        outer_limiter: RateLimiter | None = None,
        priority: Priority = Priority.PROGRESS,
    ) -> T:
        """Make an API call once, and count the call in the metrics.

        The caller has acquired a slot of `limiter`. The slot is completed, and a refusal for the rate limit reported to
        `limiter`. A slot of `outer_limiter` is awaited here. `send` raises `RefusedError` or `TransientError`; so does
        this method.
        """
        outcome = "failed"
        try:
            if outer_limiter is not None:
                await outer_limiter.acquire(priority)
            try:
                answer = await send()
            finally:
                if outer_limiter is not None:
                    outer_limiter.complete()
            outcome = "ok"
            return answer
        except RefusedError:
            outcome = "refused"
            raise
        except TransientError as failure:
            log.info("the call %s failed (%s)", name, failure)
            if failure.retry_after is not None:
                outcome = "limited"
                limiter.report_429(failure.retry_after)
            raise
        finally:
            limiter.complete()
            metrics.platform_calls.add(1, {"platform": self._platform, "method": name, "outcome": outcome})

    async def call(
        self,
        name: str,
        send: Callable[[], Awaitable[T]],
        limiter: RateLimiter,
        *,
        outer_limiter: RateLimiter | None = None,
        priority: Priority = Priority.PROGRESS,
        has_slot: bool = False,
        find_effect: Callable[[], Awaitable[T | None]] | None = None,
    ) -> T | None:
        """Make an API call when its rate limits allow it, and retry temporary failures.

        A call that the platform's rate limit refuses (429) is retried any number of times, not before the time that
        the platform names. Each other temporary failure is retried after the next of the `pauses`.

        Args:
            name: the platform's name of the method, for metrics and log.
            send: makes the call; raises `RefusedError` or `TransientError`.
            priority: the priority of the wait for the limiters. A `STREAM_UPDATE` waits only for `outer_limiter`, and
                is not retried.
            has_slot: whether the caller has acquired a slot of `limiter` already.
            find_effect: for a call that must not take effect twice: looks up whether a call without a response took
                effect; returns the result of the call, or None if it took no effect.

        Returns:
            The result of `send` or `find_effect`; None for a `STREAM_UPDATE` that the rate limit does not allow now, or
            that took no effect by `find_effect`.

        Raises:
            TransientError: a `STREAM_UPDATE` without `find_effect` failed for a temporary reason. It may have taken
                effect, or still will.
            SurfaceError: the platform refuses the call, the last retry failed, or the rate limit does not allow the
                call before the `deadline`.
            Exception: raised by the check of `cancel_unless`.
        """
        pauses = iter(self._pauses)
        if not has_slot:
            if priority is Priority.STREAM_UPDATE and not limiter.try_acquire(priority):
                return None
            if priority is not Priority.STREAM_UPDATE:
                await _acquire(limiter, priority)
        while True:
            try:
                return await self.call_once(name, send, limiter, outer_limiter=outer_limiter, priority=priority)
            except TransientError as error:
                failure = error
            if priority is Priority.STREAM_UPDATE:
                if failure.retry_after is not None:
                    return None
                if find_effect is not None:
                    return await find_effect()
                raise failure
            pause = 0.0
            if failure.retry_after is None:  # else the limiter knows when
                if find_effect is not None and (effect := await find_effect()) is not None:
                    return effect
                if (pause := next(pauses, inf)) == inf:
                    raise SurfaceError(f"{name}: the platform cannot be reached ({failure})")
            await _acquire(limiter, priority, after=pause)


async def _acquire(limiter: RateLimiter, priority: Priority, *, after: float = 0.0) -> None:
    """Wait for a slot of the limiter, and acquire it; an error acquires none."""
    if (due := _deadline.get()) != inf and not limiter.can_acquire(priority, due - event_loop.now()):
        raise RateLimitDeadlineError("the rate limit does not allow the call in time")

    async def wait() -> None:
        if after:
            await asyncio.sleep(after)
        await limiter.acquire(priority)

    task, check = _check.get() or (None, None)
    if check is None or task is not asyncio.current_task():
        return await wait()
    waiting = asyncio.create_task(wait(), name="acquire")
    try:
        is_admitted = False
        while not is_admitted:
            is_admitted = bool((await asyncio.wait([waiting], timeout=CHECK_SECONDS))[0])
            await check()
    except BaseException:
        if not waiting.cancel():
            limiter.release()
        await asyncio.wait([waiting])
        raise
