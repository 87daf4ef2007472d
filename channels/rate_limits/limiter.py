"""Rate limiter: a sliding window with priorities and reserved calls.

It follows the limits that the platform's headers report. A token bucket would not do: one that refills while it is
used lets up to twice its size through in one window of the platform.
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
from core.store.workers.rate_limit_sharing import LimitUsage

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

#: The weight of a reply when workers divide a limit. Each worker counts 1 besides, for a reply that it may begin.
REPLY_WEIGHT = 6

#: Rounds of exchange among workers before a larger part of a limit may be used: the others make theirs smaller first.
SETTLE_ROUNDS = 4


@dataclass(frozen=True, slots=True)
class Window:
    """A platform's rate limit: at most `calls` calls within `seconds`.

    Attributes:
        urgent_fraction: the part of the calls that calls with the priority `BACKFILL` leave to others. They take a slot
            only if others at an even pace, so many in a window, still find one until more become free.
    """

    calls: int
    seconds: float
    urgent_fraction: float = 0.0


@dataclass(frozen=True, slots=True)
class _ReportedWindow:
    """The current window as the platform's headers describe it; it ends at the loop time `resets_at`."""

    remaining: int
    resets_at: float


@dataclass(order=True, slots=True)
class _Waiter:
    """A call that waits for a slot, ordered by priority, then by age."""

    priority: Priority
    since: float
    number: int
    admitted: asyncio.Future[None] = field(compare=False)

    @property
    def is_paced(self) -> bool:
        """True for a stream update of a reply that shows text; these are spread in time."""
        return self.priority is Priority.STREAM_UPDATE and self.since > FIRST_TEXT


class RateLimiter:
    """Limits the calls that share one rate limit of a platform.

    A slot is the permission for one call. A call uses its slot from its start until `window.seconds` after its answer,
    since the time at which it reaches the platform is unknown.
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
        """Count a reply that began at a time of the event loop among those that share the limit."""
        self._replies.append(since)
        try:
            yield
        finally:
            self._replies.remove(since)

    @contextmanager
    def reserve(self) -> Iterator[None]:
        """Reserve a slot in the `with` block, without waiting for a free one: see `can_reserve`.

        Calls with the priorities `STREAM_UPDATE` and `BACKFILL` cannot use reserved slots, up to
        `MAX_RESERVED_FRACTION` of the limit.
        """
        self._reserved += 1
        try:
            yield
        finally:
            self._reserved -= 1
            self._admit_waiters()

    async def acquire(self, priority: Priority, since: float | None = None) -> None:
        """Wait for a slot, and acquire it; the caller ends it by `complete` or `release`.

        A cancelled wait acquires no slot. Of calls with the same priority, older ones go first.

        Args:
            since: the time of the event loop from which the age of the call counts; None for now. For a stream update,
                the shown text is out of date since then. For the first text of a reply, it is `FIRST_TEXT`.
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
        """Acquire a slot, if one is free now; the caller ends it by `complete` or `release`.

        No slot is acquired either if a more urgent call waits for it, or if a `STREAM_UPDATE` comes too soon after the
        last one: these are spread over time.
        """
        waiter = self._waiter(priority)
        if (self._queue and self._queue[0] < waiter) or self._wait_seconds(waiter) > 0:
            return False
        self._count(waiter)
        return True

    def release(self) -> None:
        """Free an acquired slot whose call is not made, for a call that waits."""
        self._in_flight = max(0, self._in_flight - 1)
        self._admit_waiters()

    def complete(self) -> None:
        """Record the end of a call; its slot becomes free one window of the rate limit later."""
        self._answered.append(event_loop.now())
        self.release()

    def report_headers(self, *, remaining: int, reset_after: float) -> None:
        """Set the current window from the platform's headers: calls that remain, seconds until it ends.

        Responses may arrive in another order: the lowest `remaining` of a window counts.
        """
        resets_at = event_loop.now() + reset_after + CLOCK_SKEW_SECONDS
        before = self._reported
        if before is not None and resets_at < before.resets_at + self._release_seconds:  # the same window
            remaining = min(remaining, before.remaining)  # answers overtake each other
        self._reported = _ReportedWindow(remaining, resets_at)

    def report_429(self, retry_after: float) -> None:
        """Allow no call for `retry_after` seconds, and halve the limit after that.

        Further refusals within `retry_after` do not halve the limit again. Each later window without a refusal raises
        it by the factor `RECOVERY_FACTOR`, up to its full value.
        """
        now = event_loop.now()
        if now >= self._backoff_until:  # calls that were in flight together are refused together
            self._backoff = max(1 / self._window.calls, self._backoff * BACKOFF_FACTOR)
        self._closed_until = max(self._closed_until, now + retry_after)
        self._backoff_until = max(self._backoff_until, self._closed_until)

    def can_reserve(self, calls: int) -> bool:
        """Return whether `calls` more slots can be reserved; 0 asks whether the reserved ones still fit.

        The slots must be free now. If more than half of the limit is reserved already, slots that become free within
        `RESERVE_SECONDS` count too, unless the window is longer. At most `MAX_RESERVED_FRACTION` of all these slots can
        be reserved, and nothing while a 429 allows no call.
        """
        seconds = RESERVE_SECONDS / self._speed if self._reserved > self._limit // 2 else 0.0
        windows = int(seconds / self._window.seconds)
        max_calls = int((1 + windows) * self._limit * MAX_RESERVED_FRACTION)
        free = self._free_within(seconds if windows else 0.0)
        return event_loop.now() >= self._closed_until and min(free, max_calls) - self._reserved >= calls

    def can_acquire(self, priority: Priority, seconds: float) -> bool:
        """Return whether a new call is likely to get a slot within `seconds` from now."""
        earlier = sum(waiter.priority <= priority for waiter in self._queue)
        return self._closed_until <= event_loop.now() + seconds and self._free_within(seconds) > earlier

    @property
    def calls_per_reply(self) -> float:
        """The updates that one more reply could make within `EXPECTED_REPLY_SECONDS`; may be negative."""
        free = self._free_within(EXPECTED_REPLY_SECONDS / self._speed) - self._reserved
        return free / (len(self._replies) + 1)

    @property
    def headroom(self) -> float:
        """This worker's free slots as a fraction of the limit, 0 to 1; 0 while a 429 allows no call."""
        if event_loop.now() < self._closed_until:
            return 0.0
        return min(1.0, max(0.0, self._free_within(0.0) / self._window.calls))

    @property
    def is_idle(self) -> bool:
        """True if no call uses, awaits or reserves a slot, no reply is tracked, and no 429 is in force."""
        self._expire()
        is_used = self._used_slots or self._queue or self._replies or self._reserved
        return not is_used and event_loop.now() >= self._closed_until

    def record_usage(self) -> LimitUsage:
        """Return this worker's use of the limit; `apply_peer_usage` computes this worker's share from it."""
        self._expire()
        self._announced = LimitUsage(max(len(self._replies), self._reserved), self._used_slots)
        return self._announced

    def apply_peer_usage(self, peers: Sequence[LimitUsage]) -> None:
        """Set this worker's share of the limit by what the other workers use.

        A smaller share takes effect at once, and so does the whole limit if there is no other worker. Any other larger
        share takes effect only after `SETTLE_ROUNDS` calls of this method. For the size of a share see
        `RateLimiters.apply_peer_usage`.
        """
        if not peers:
            self._rounds.clear()
        elif not self._rounds:
            self._rounds.extend([(self.record_usage(), peers)] * SETTLE_ROUNDS)
        else:
            self._rounds.append((self._announced, peers))
        self._admit_waiters()

    def _waiter(self, priority: Priority, since: float | None = None) -> _Waiter:
        since = event_loop.now() if since is None else since
        return _Waiter(priority, since, next(self._numbers), asyncio.get_running_loop().create_future())

    def _admit_waiters(self) -> None:
        """Assign the free slots to waiting calls, most urgent first; a timer repeats this for the rest."""
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
        """Return the seconds until a waiting call may be made if it is the next call; may be negative."""
        now, (free, refills) = event_loop.now(), self._capacity()
        if waiter.priority >= Priority.STREAM_UPDATE and (
            reserve := min(self._reserved, int(self._limit * MAX_RESERVED_FRACTION))
        ):
            if self._reported is None:
                free -= reserve
            elif now < (release_at := self._reported.resets_at - self._release_seconds):
                free, refills = (free - reserve, [release_at] * len(refills)) if free > 0 else (free, refills)
            elif free > 0:
                return self._closed_until - now
        ready_at = self._closed_until
        if free <= 0:
            ready_at = max(ready_at, refills[-free] if -free < len(refills) else now + self._window.seconds)
        if waiter.is_paced:
            ready_at = max(ready_at, self._next_update_at(free, refills))
        if waiter.priority is Priority.BACKFILL and self._window.urgent_fraction and free > 0:
            ready_at = max(ready_at, self._next_backfill_at(free, refills))
        return ready_at - now

    def _next_backfill_at(self, free: int, refills: Sequence[float]) -> float:
        """Return the time of the event loop from which a backfill call leaves enough slots for urgent calls.

        These are enough if a slot is free, or becomes free in time, for each of the urgent calls at an even pace.
        """
        pause = self._window.seconds / (self._limit * self._window.urgent_fraction)
        return max((at - (free - 1 + more) * pause for more, at in enumerate(refills)), default=0.0)

    def _next_update_at(self, free: int, refills: Sequence[float]) -> float:
        """Return the time of the event loop at which the next stream update is due.

        The free slots are spread evenly over the time until more are free, or until the replies are expected to end.
        """
        now = event_loop.now()
        last = self._last_update
        window = self._window.seconds
        expected = EXPECTED_REPLY_SECONDS / self._speed
        minimum = MIN_REMAINING_SECONDS / self._speed
        ages = [now - started_at for started_at in self._replies]
        remaining = [max(minimum, expected - age) if age < expected else window for age in ages]
        seconds = min(window, sum(remaining) / len(remaining)) if remaining else window
        times = [at for at in refills if at < now + seconds]
        pauses = [(at - last) / (free + more + 1) for more, at in enumerate(times) if free + more > 0]
        if self._reported is None and (calls := free + len(times)) > 0:
            pauses.append(seconds / calls)
        return last + max(pauses, default=0.0)

    def _capacity(self) -> tuple[int, Sequence[float]]:
        """Return the free slots (negative beyond this worker's share), and the times at which more are free."""
        self._expire()
        if (reported := self._reported) is not None:
            return self._get_share(reported.remaining) - self._in_flight, [reported.resets_at] * self._limit
        return self._limit - self._used_slots, [at + self._window.seconds for at in self._answered]

    def _free_within(self, seconds: float) -> int:
        free, refills = self._capacity()
        windows, rest = divmod(seconds, self._window.seconds)
        until = event_loop.now() + rest
        return free + int(windows) * self._limit + sum(at <= until for at in refills)

    @property
    def _limit(self) -> int:
        """The most calls that this worker may make in one window."""
        return self._get_share(max(1, int(self._window.calls * self._backoff)), is_window=True)

    def _get_share(self, calls: int, *, is_window: bool = False) -> int:
        """Return this worker's share of `calls`, at least one; 0 of 0."""
        parts = [_divide_calls(calls, own, others, is_window=is_window) for own, others in self._rounds]
        return min(calls, max(1, min(parts, default=calls)))

    @property
    def _used_slots(self) -> int:
        return len(self._answered) + self._in_flight

    @property
    def _release_seconds(self) -> float:
        return RESERVE_RELEASE_SECONDS / self._speed

    def _expire(self) -> None:
        """Delete ended calls older than a window, and the reported window once it is over."""
        now = event_loop.now()
        seconds = self._window.seconds
        begin = now - seconds
        if self._reported is not None and self._reported.resets_at - now <= MIN_WAIT_SECONDS:
            begin = max(begin, self._reported.resets_at)
            self._reported = None
            self._last_update = 0.0
        while self._answered and self._answered[0] <= begin:
            self._answered.popleft()
        while self._backoff < 1.0 and now >= self._backoff_until + seconds:
            self._backoff = min(1.0, self._backoff * RECOVERY_FACTOR)
            self._backoff_until += seconds


def _divide_calls(calls: int, own: LimitUsage, others: Sequence[LimitUsage], *, is_window: bool) -> int:
    """Return this worker's share of `calls`, in proportion to its replies in progress.

    If these are the calls of a whole window, those that other workers made beyond their shares are subtracted.
    """
    share = calls / sum(1 + REPLY_WEIGHT * use.live for use in (own, *others))
    excess = sum(max(0.0, use.used - share * (1 + REPLY_WEIGHT * use.live)) for use in others) if is_window else 0.0
    return int(share * (1 + REPLY_WEIGHT * own.live) - excess)
