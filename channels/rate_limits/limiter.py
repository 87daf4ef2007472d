"""Rate limiter: a sliding window with priorities, a reserve for finals, reported headers and Retry-After.

A token bucket would not do: one that refills while it is used lets up to twice its size through in one window of the
platform.
"""

import asyncio
from bisect import insort
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import count

from channels.base import FIRST_TEXT, Priority
from core.concurrency import event_loop
from core.workers.rate_limit_sharing import LimitUsage

#: Seconds that a reply is expected to stream. Stream updates spread the free calls over what is left of them, and over
#: the minimum at least.
EXPECTED_REPLY_SECONDS, MIN_REMAINING_SECONDS = 30.0, 7.0

#: Seconds within which calls that become free may serve as a reserve.
RESERVE_SECONDS = 15.0

#: The part of a window that may be reserved: the rest is for stream updates.
MAX_RESERVED_FRACTION = 0.8

#: Seconds before a reported window ends from which on its reserve may be used: a final finds the next window open.
RESERVE_RELEASE_SECONDS = 0.3

#: A refusal halves the limit, and each window without one raises it again.
BACKOFF_FACTOR, RECOVERY_FACTOR = 0.5, 1.25

#: Seconds by which the platform's clock may differ, and seconds that are too few to wait for.
CLOCK_SKEW_SECONDS, MIN_WAIT_SECONDS = 0.01, 1e-6

#: How much a reply counts when workers divide a limit. Each worker counts 1 besides, for a reply that it may begin.
REPLY_WEIGHT = 6

#: Rounds of exchange among workers before a larger part of a limit may be used: the others make theirs smaller first.
SETTLE_ROUNDS = 4


@dataclass(frozen=True, slots=True)
class Window:
    """A limit of a platform: so many calls in so many seconds."""

    calls: int
    seconds: float


@dataclass(frozen=True, slots=True)
class _ReportedWindow:
    """The open window, as the platform's headers describe it."""

    remaining: int
    resets_at: float


@dataclass(order=True, slots=True)
class _Waiter:
    """A call in the queue: ordered by priority, then by age."""

    priority: Priority
    since: float
    number: int
    admitted: asyncio.Future[None] = field(compare=False)

    @property
    def is_paced(self) -> bool:
        """Return whether the call keeps the pace of stream updates; the first text of a reply does not."""
        return self.priority is Priority.STREAM_UPDATE and self.since > FIRST_TEXT


class RateLimiter:
    """The calls that share one limit of the platform.

    The time at which a call reaches the platform is unknown, so the call counts from its start until a window after its
    answer.

    Args:
        speed: how many times faster than the platform's the window runs: see `RateLimiters`.
    """

    def __init__(self, window: Window, *, speed: float = 1.0) -> None:
        self._window = replace(window, seconds=window.seconds / speed)
        self._speed = speed
        self._answered: deque[float] = deque()  # when the calls of the last window were answered
        self._in_flight = 0
        self._last_update = 0.0
        self._closed_until = 0.0
        self._backoff = 1.0
        self._backoff_until = 0.0
        self._reported: _ReportedWindow | None = None
        self._replies: list[float] = []  # when each of them began
        self._reserved = 0
        self._queue: list[_Waiter] = []
        self._numbers = count()
        self._timer: asyncio.TimerHandle | None = None
        self._announced = LimitUsage()
        self._rounds: deque[tuple[LimitUsage, Sequence[LimitUsage]]] = deque(maxlen=SETTLE_ROUNDS)

    @contextmanager
    def track_reply(self, since: float) -> Iterator[None]:
        """Count a reply, begun at that time of the loop, among those whose updates share the limit."""
        self._replies.append(since)
        try:
            yield
        finally:
            self._replies.remove(since)

    @contextmanager
    def reserve(self) -> Iterator[None]:
        """Reserve a call: stream updates and backfill leave it free."""
        self._reserved += 1
        try:
            yield
        finally:
            self._reserved -= 1
            self._admit_waiters()

    async def acquire(self, priority: Priority, since: float | None = None) -> None:
        """Wait until a call may be made, and count it. A cancelled wait counts none.

        Args:
            since: of a stream update: the loop's time since which the shown text is out of date; `FIRST_TEXT` for the
                first text of a reply.
        """
        waiter = self._waiter(priority, since)
        insort(self._queue, waiter)
        self._admit_waiters()
        try:
            await waiter.admitted
        except asyncio.CancelledError:
            if waiter.admitted.cancelled():
                self._queue = [other for other in self._queue if other is not waiter]
                self._admit_waiters()
            else:
                self.release()
            raise

    def try_acquire(self, priority: Priority) -> bool:
        """Count a call if it may be made now, before all that wait."""
        waiter = self._waiter(priority)
        if (self._queue and self._queue[0] < waiter) or self._wait_seconds(waiter) > 0:
            return False
        self._count(waiter)
        return True

    def release(self) -> None:
        """Give up a call that was counted and is not made."""
        self._in_flight = max(0, self._in_flight - 1)
        self._admit_waiters()

    def complete(self) -> None:
        """Count the end of a call, with whatever result."""
        self._answered.append(event_loop.now())
        self.release()

    def report_headers(self, *, remaining: int, reset_after: float) -> None:
        """Take over the open window that the platform's headers describe."""
        resets_at, before = event_loop.now() + reset_after + CLOCK_SKEW_SECONDS, self._reported
        if before is not None and resets_at < before.resets_at + self._release_seconds:  # the same window
            remaining = min(remaining, before.remaining)  # answers overtake each other
        self._reported = _ReportedWindow(remaining, resets_at)

    def report_429(self, retry_after: float) -> None:
        """Make no call for `retry_after` seconds, and fewer from then on."""
        now = event_loop.now()
        if now >= self._backoff_until:  # calls that were in flight together are refused together
            self._backoff = max(1 / self._window.calls, self._backoff * BACKOFF_FACTOR)
        self._closed_until = max(self._closed_until, now + retry_after)
        self._backoff_until = max(self._backoff_until, self._closed_until)

    def can_reserve(self, calls: int) -> bool:
        """Return whether so many calls can be reserved besides those that are.

        They have to be free now, or, where half a window is reserved and updates are few, within `RESERVE_SECONDS`.
        """
        seconds = RESERVE_SECONDS / self._speed if self._reserved > self._limit // 2 else 0.0
        windows = int(seconds / self._window.seconds)
        most = int((1 + windows) * self._limit * MAX_RESERVED_FRACTION)
        free = self._free_within(seconds if windows else 0.0)
        return event_loop.now() >= self._closed_until and min(free, most) - self._reserved >= calls

    def has_room(self, priority: Priority, within: float) -> bool:
        """Return whether a new call is likely to be made within so many seconds."""
        ahead = sum(waiter.priority <= priority for waiter in self._queue)
        return self._closed_until <= event_loop.now() + within and self._free_within(within) > ahead

    @property
    def calls_per_reply(self) -> float:
        """Updates that each reply could have while it is expected to stream, if there were one more."""
        free = self._free_within(EXPECTED_REPLY_SECONDS / self._speed) - self._reserved
        return free / (len(self._replies) + 1)

    @property
    def headroom(self) -> float:
        """Return the free part of the window, from 0 to 1."""
        if event_loop.now() < self._closed_until:
            return 0.0
        return min(1.0, max(0.0, self._free_within(0.0) / self._window.calls))

    @property
    def is_idle(self) -> bool:
        self._expire()
        is_used = self._used or self._queue or self._replies or self._reserved
        return not is_used and event_loop.now() >= self._closed_until

    def announce_usage(self) -> LimitUsage:
        """Return this worker's usage for the other workers, and go by it from now on."""
        self._expire()
        self._announced = LimitUsage(max(len(self._replies), self._reserved), self._used)
        return self._announced

    def apply_peer_usage(self, peers: Sequence[LimitUsage]) -> None:
        """Divide the limit among the workers by their announced usage."""
        if not peers:
            self._rounds.clear()
        elif not self._rounds:
            self._rounds.extend([(self.announce_usage(), peers)] * SETTLE_ROUNDS)
        else:
            self._rounds.append((self._announced, peers))
        self._admit_waiters()

    def _waiter(self, priority: Priority, since: float | None = None) -> _Waiter:
        since = event_loop.now() if since is None else since
        return _Waiter(priority, since, next(self._numbers), asyncio.get_running_loop().create_future())

    def _admit_waiters(self) -> None:
        """Admit the waiting calls that may be made, and set a timer for the next one."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._queue:
            waiter = self._queue[0]
            if (wait := self._wait_seconds(waiter)) > MIN_WAIT_SECONDS:
                self._timer = asyncio.get_running_loop().call_later(wait, self._admit_waiters)
                return
            self._queue.pop(0)
            if not waiter.admitted.done():
                waiter.admitted.set_result(None)
                self._count(waiter)

    def _count(self, waiter: _Waiter) -> None:
        self._in_flight += 1
        if waiter.priority is Priority.STREAM_UPDATE:
            self._last_update = event_loop.now()

    def _wait_seconds(self, waiter: _Waiter) -> float:
        """Return the seconds until a call may be made, if no other one is before it."""
        now, (free, refills) = event_loop.now(), self._capacity()
        if waiter.priority >= Priority.STREAM_UPDATE and (
            reserve := min(self._reserved, int(self._limit * MAX_RESERVED_FRACTION))
        ):
            if self._reported is None:
                free -= reserve
            elif now < (early := self._reported.resets_at - self._release_seconds):
                free, refills = (free - reserve, [early] * len(refills)) if free > 0 else (free, refills)
            elif free > 0:
                return self._closed_until - now
        ready_at = self._closed_until
        if free <= 0:
            ready_at = max(ready_at, refills[-free] if -free < len(refills) else now + self._window.seconds)
        if waiter.is_paced:
            ready_at = max(ready_at, self._next_update_at(free, refills))
        return ready_at - now

    def _next_update_at(self, free: int, refills: Sequence[float]) -> float:
        """Return the time of the next stream update.

        The free calls are spread until more calls are free, and until the replies are expected to end.
        """
        now, last, window = event_loop.now(), self._last_update, self._window.seconds
        expected, least = EXPECTED_REPLY_SECONDS / self._speed, MIN_REMAINING_SECONDS / self._speed
        ages = [now - began for began in self._replies]
        remaining = [max(least, expected - age) if age < expected else window for age in ages]
        seconds = min(window, sum(remaining) / len(remaining)) if remaining else window
        times = [at for at in refills if at < now + seconds]
        pauses = [(at - last) / (free + more + 1) for more, at in enumerate(times) if free + more > 0]
        if self._reported is None and (calls := free + len(times)) > 0:
            pauses.append(seconds / calls)
        return last + max(pauses, default=0.0)

    def _capacity(self) -> tuple[int, Sequence[float]]:
        """Return the free calls, and the times at which one more is free each."""
        self._expire()
        if (reported := self._reported) is not None:
            return self._get_share(reported.remaining) - self._in_flight, [reported.resets_at] * self._limit
        return self._limit - self._used, [at + self._window.seconds for at in self._answered]

    def _free_within(self, seconds: float) -> int:
        """Return the number of calls that may be made within so many seconds."""
        free, refills = self._capacity()
        windows, rest = divmod(seconds, self._window.seconds)
        until = event_loop.now() + rest
        return free + int(windows) * self._limit + sum(at <= until for at in refills)

    @property
    def _limit(self) -> int:
        """The calls of a window that this worker may make."""
        return self._get_share(max(1, int(self._window.calls * self._backoff)), is_window=True)

    def _get_share(self, calls: int, *, is_window: bool = False) -> int:
        """Return this worker's share of so many calls, one at least.

        From the share of a whole window, the calls that other workers made beyond theirs are subtracted.
        """
        parts = [_divide_calls(calls, mine, others, is_window=is_window) for mine, others in self._rounds]
        return min(calls, max(1, min(parts, default=calls)))

    @property
    def _used(self) -> int:
        """Return the calls that count in the window that ends now."""
        return len(self._answered) + self._in_flight

    @property
    def _release_seconds(self) -> float:
        return RESERVE_RELEASE_SECONDS / self._speed

    def _expire(self) -> None:
        """Drop the calls and the reported window that are over, and recover from refusals."""
        now, seconds = event_loop.now(), self._window.seconds
        begin = now - seconds
        if self._reported is not None and self._reported.resets_at - now <= MIN_WAIT_SECONDS:
            begin, self._reported, self._last_update = max(begin, self._reported.resets_at), None, 0.0
        while self._answered and self._answered[0] <= begin:
            self._answered.popleft()
        while self._backoff < 1.0 and now >= self._backoff_until + seconds:
            self._backoff = min(1.0, self._backoff * RECOVERY_FACTOR)
            self._backoff_until += seconds


def _divide_calls(calls: int, own: LimitUsage, others: Sequence[LimitUsage], *, is_window: bool) -> int:
    each = calls / sum(1 + REPLY_WEIGHT * use.live for use in (own, *others))
    excess = sum(max(0.0, use.used - each * (1 + REPLY_WEIGHT * use.live)) for use in others) if is_window else 0.0
    return int(each * (1 + REPLY_WEIGHT * own.live) - excess)
