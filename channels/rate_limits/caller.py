"""Calls of a platform's API: within its limits, and tried again where that can help."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from math import inf
from typing import Any, TypeVar

from channels.base import Priority
from channels.rate_limits.limiter import Budget, Window
from channels.rate_limits.registry import Pacer
from core.concurrency import event_loop
from core.concurrency.event_loop import room
from core.errors import SurfaceError
from core.observability import metrics

log = logging.getLogger(__name__)

T = TypeVar("T")

#: Seconds to wait before a call that failed in passing is made again; after the last one, eight minutes from the
#: first, it is given up.
PAUSES = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 60.0, 120.0, 240.0)

#: Seconds between two looks at whether a call that has to wait is still to be made.
LOOK = 0.5

#: Awaited before a call that has waited is made; raises if it is not to be made any more.
Wanted = Callable[[], Awaitable[None]]

#: The loop's time until which a call is of use.
_due: ContextVar[float] = ContextVar("due", default=inf)

_wanted: ContextVar[tuple[asyncio.Task[Any] | None, Wanted] | None] = ContextVar("wanted", default=None)


@contextmanager
def as_long_as(wanted: Wanted) -> Iterator[None]:
    """What this task calls within waits for its time and its place no longer than that is wanted. What is begun within
    and goes on by itself, as a receipt that is taken back, is not bound to that.
    """
    token = _wanted.set((asyncio.current_task(), wanted))
    try:
        yield
    finally:
        _wanted.reset(token)


@contextmanager
def soon(seconds: float) -> Iterator[None]:
    """What is called within is of use within so many seconds, and then no more: what is likely to find no place in
    its budget until then fails at once.
    """
    token = _due.set(event_loop.now() + seconds)
    try:
        yield
    finally:
        _due.reset(token)


class RefusedError(SurfaceError):
    """The platform refused a call for good.

    Attributes:
        code: the platform's word for why.
    """

    def __init__(self, name: str, code: str) -> None:
        super().__init__(f"{name}: {code}")
        self.code = code


class NoRoomError(SurfaceError):
    """A call that is of use soon alone has no place until then: see `soon`."""


class PassingError(Exception):
    """A call failed for a reason that lies in the moment and not in the call; whether it took effect is not known.

    Attributes:
        retry_after: seconds that the platform asked to wait, if the call came too often; it took no effect then.
    """

    def __init__(self, cause: str, *, retry_after: float | None = None) -> None:
        super().__init__(cause)
        self.retry_after = retry_after


class Caller:
    """Makes calls for all surfaces that share a platform's limits.

    Args:
        channel: the platform's name, for what is counted.
        speed: how many times faster than the platform's the windows run: see `Pacer`.
    """

    def __init__(self, channel: str, *, pauses: tuple[float, ...] = PAUSES, speed: float = 1.0) -> None:
        self._channel = channel
        self.pacer = Pacer(speed=speed)
        self._pauses = pauses

    def budget(self, key: Hashable, window: Window) -> Budget:
        """The budget of all that shares the limit `window`."""
        return self.pacer.budget(key, window)

    async def once(
        self,
        name: str,
        send: Callable[[], Awaitable[T]],
        budget: Budget,
        *,
        within: Budget | None = None,
        priority: Priority = Priority.PROGRESS,
    ) -> T:
        """Make a call that has its place in `budget`, and do not make it again.

        Args:
            within: what it shares with other calls besides, and waits for here.

        Raises:
            RefusedError: the platform will not have it.
            PassingError: it failed in passing.
        """
        outcome = "failed"
        try:
            await room()  # a request takes long to build, and many may find their places at one moment
            answer = await (send() if within is None else _admitted(send, within, priority))
            outcome = "ok"
            return answer
        except RefusedError:
            outcome = "refused"
            raise
        except PassingError as failure:
            log.info("%s did not succeed (%s)", name, failure)
            if failure.retry_after is not None:
                outcome = "limited"
                budget.refused(failure.retry_after)
            raise
        finally:
            budget.answered()
            metrics.platform_calls.add(1, {"channel": self._channel, "method": name, "outcome": outcome})

    async def call(
        self,
        name: str,
        send: Callable[[], Awaitable[T]],
        budget: Budget,
        *,
        within: Budget | None = None,
        priority: Priority = Priority.PROGRESS,
        is_admitted: bool = False,
        found: Callable[[], Awaitable[T | None]] | None = None,
    ) -> T | None:
        """Make a call. One that comes too often is made again when the platform says, however often it says so.

        Args:
            name: what the platform calls it, for the log.
            send: makes it once. Raises `RefusedError` or `PassingError`.
            within: what it shares with other calls besides.
            is_admitted: whether it has its place in the budget already.
            found: for a call that must not take effect twice: looks whether it has, when its answer was lost.

        Returns:
            The answer; none for a tick that had no place.

        Raises:
            PassingError: a tick failed in passing; whether it took effect, or still will, is not known.
            RefusedError: the platform will not have it, however often it is asked.
            SurfaceError: the platform stayed out of reach.
            Exception: what is raised if it is not wanted any more: see `as_long_as`.
        """
        pauses = iter(self._pauses)
        if not is_admitted:
            if priority is Priority.TICK and not budget.try_admit(priority):
                return None
            if priority is not Priority.TICK:
                await _place(budget, priority)
        while True:
            try:
                return await self.once(name, send, budget, within=within, priority=priority)
            except PassingError as error:
                failure = error
            if priority is Priority.TICK:
                if failure.retry_after is not None:
                    return None
                if found is not None:
                    return await found()
                raise failure
            if failure.retry_after is not None:  # the budget knows when
                await _place(budget, priority)
                continue
            if found is not None and (effect := await found()) is not None:
                return effect
            if (pause := next(pauses, None)) is None:
                raise SurfaceError(f"{name}: out of reach ({failure})")
            await _place(budget, priority, after=pause)


async def _place(budget: Budget, priority: Priority, *, after: float = 0.0) -> None:
    """Wait so many seconds, and then for a place in the budget, as long as the call is wanted.

    Raises:
        NoRoomError: there is none in time.
    """
    if (due := _due.get()) != inf and not budget.has_room(priority, due - event_loop.now()):
        raise NoRoomError("the platform's limit leaves no room for it in time")

    async def wait() -> None:
        if after:
            await asyncio.sleep(after)
        await budget.admit(priority)

    task, wanted = _wanted.get() or (None, None)
    if wanted is None or task is not asyncio.current_task():
        return await wait()
    waiting = asyncio.create_task(wait(), name="place")
    try:
        is_there = False
        while not is_there:
            is_there = bool((await asyncio.wait([waiting], timeout=LOOK))[0])
            await wanted()
    except BaseException:
        if waiting.done():
            budget.give_back()
        else:
            waiting.cancel()
            await asyncio.wait([waiting])
        raise


async def _admitted(send: Callable[[], Awaitable[T]], budget: Budget, priority: Priority) -> T:
    await budget.admit(priority)
    try:
        return await send()
    finally:
        budget.answered()
