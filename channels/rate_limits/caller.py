"""Calls of a platform's API: within the rate limits, and retried where that can help."""

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
PAUSES = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 60.0, 120.0, 240.0)

#: Seconds between two checks of whether a waiting call is still needed.
CHECK_SECONDS = 0.5

#: Awaited while a call waits, and before it is made after that; raises if the call is not needed any more.
CheckNeeded = Callable[[], Awaitable[None]]

#: The loop's time until which a call is of use.
_deadline: ContextVar[float] = ContextVar("deadline", default=inf)

_check: ContextVar[tuple[asyncio.Task[Any] | None, CheckNeeded] | None] = ContextVar("check", default=None)


@contextmanager
def cancel_unless(check: CheckNeeded) -> Iterator[None]:
    """Let calls of this task wait only as long as `check` raises nothing. Tasks that it begins are not bound."""
    token = _check.set((asyncio.current_task(), check))
    try:
        yield
    finally:
        _check.reset(token)


@contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """Let calls fail at once that are unlikely to be within the rate limit in so many seconds."""
    token = _deadline.set(event_loop.now() + seconds)
    try:
        yield
    finally:
        _deadline.reset(token)


class RefusedError(SurfaceError):
    """The platform refused a call for good.

    Attributes:
        code: the platform's code of the reason.
    """

    def __init__(self, name: str, code: str) -> None:
        super().__init__(f"{name}: {code}")
        self.code = code


class RateLimitDeadlineError(SurfaceError):
    """The rate limit does not allow a call before its deadline: see `deadline`."""


class TransientError(Exception):
    """A call failed for a transient reason; whether it took effect is unknown.

    Attributes:
        retry_after: seconds that the platform asked to wait, if it refused the call by a rate limit. The call took no
            effect then.
    """

    def __init__(self, cause: str, *, retry_after: float | None = None) -> None:
        super().__init__(cause)
        self.retry_after = retry_after


class Caller:
    """Makes calls for all surfaces that share a platform's limits.

    Args:
        channel: the platform's name, for the metrics.
        speed: how many times faster than the platform's the windows run: see `RateLimiters`.
    """

    def __init__(self, channel: str, *, pauses: tuple[float, ...] = PAUSES, speed: float = 1.0) -> None:
        self._channel = channel
        self.limiters = RateLimiters(speed=speed)
        self._pauses = pauses

    async def call_once(
        self,
        name: str,
        send: Callable[[], Awaitable[T]],
        limiter: RateLimiter,
        *,
        within: RateLimiter | None = None,
        priority: Priority = Priority.PROGRESS,
    ) -> T:
        """Make a call that `limiter` has admitted, and do not retry it.

        Args:
            within: another limiter that applies to the call, which is waited for here.

        Raises:
            RefusedError: the platform refuses the call.
            TransientError: the call failed for a transient reason.
        """
        outcome = "failed"
        try:
            if within is not None:
                await within.acquire(priority)
            try:
                answer = await send()
            finally:
                if within is not None:
                    within.complete()
            outcome = "ok"
            return answer
        except RefusedError:
            outcome = "refused"
            raise
        except TransientError as failure:
            log.info("%s did not succeed (%s)", name, failure)
            if failure.retry_after is not None:
                outcome = "limited"
                limiter.report_429(failure.retry_after)
            raise
        finally:
            limiter.complete()
            metrics.platform_calls.add(1, {"channel": self._channel, "method": name, "outcome": outcome})

    async def call(
        self,
        name: str,
        send: Callable[[], Awaitable[T]],
        limiter: RateLimiter,
        *,
        within: RateLimiter | None = None,
        priority: Priority = Priority.PROGRESS,
        has_slot: bool = False,
        find_effect: Callable[[], Awaitable[T | None]] | None = None,
    ) -> T | None:
        """Make a call, and retry it. One that a rate limit refuses is retried when the platform says, without limit.

        Args:
            name: the platform's name of the method, for the log.
            send: makes the call once. Raises `RefusedError` or `TransientError`.
            within: another limiter that applies to the call.
            is_admitted: whether `limiter` has admitted the call already.
            found: for a call that must not take effect twice: looks whether it has, when its answer was lost.

        Returns:
            The answer; none for a `STREAM_UPDATE` that may not be made now.

        Raises:
            TransientError: a `STREAM_UPDATE` failed for a transient reason. It may have taken effect, or still will.
            RefusedError: the platform refuses the call.
            SurfaceError: the platform stayed out of reach.
            Exception: what `cancel_unless` raised.
        """
        pauses = iter(self._pauses)
        if not has_slot:
            if priority is Priority.STREAM_UPDATE and not limiter.try_acquire(priority):
                return None
            if priority is not Priority.STREAM_UPDATE:
                await _acquire(limiter, priority)
        while True:
            try:
                return await self.call_once(name, send, limiter, within=within, priority=priority)
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
                    raise SurfaceError(f"{name}: out of reach ({failure})")
            await _acquire(limiter, priority, after=pause)


async def _acquire(limiter: RateLimiter, priority: Priority, *, after: float = 0.0) -> None:
    """Wait so many seconds, and then for the limiter, as long as the call is needed.

    Raises:
        NoRoomError: the limiter is unlikely to admit the call before its deadline.
    """
    if (due := _deadline.get()) != inf and not limiter.has_room(priority, due - event_loop.now()):
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
