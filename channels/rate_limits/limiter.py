"""A budget: keeps calls within a limit of a platform, the important ones first, and shares out what is left."""

import asyncio
import math
from bisect import insort
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from itertools import count

from channels.base import SILENT, Priority
from channels.rate_limits.share import Part
from core.concurrency import event_loop
from core.workers.rate_limit_sharing import Use

#: Seconds that a reply is likely to last: until then, what is free now is dealt out over what is left of them, but
#: over so many at the least. One that lasts longer is taken to go on for good.
_LIKELY, _AT_LEAST = 30.0, 7.0

#: The most of a window that ticks leave for finals: texts go on growing whatever is live.
_KEPT = 0.8

#: While others wait as well, every so many-th place is a tick's, unless it is kept back: texts go on growing while
#: finals drain.
_TICKS_SHARE = 6

#: A refusal shows that the platform allows less than it says: by so much less is asked of it from then on, and by so
#: much more with each window in which it refuses nothing.
_LESS, _MORE, _LEAST = 0.85, 1.25, 0.25

#: Seconds before a window's end from which on a call that was kept back for a final is not needed any more: one that
#: comes now finds the next window open soon enough. Also what the clock of the platform may be off.
_SOON, _OFF = 0.3, 0.01

#: Seconds that are too few to wait for: a clock may not move by so little.
_NO_TIME = 1e-6


@dataclass(frozen=True, slots=True)
class Window:
    """So many calls in so many seconds.

    Attributes:
        least: how few it may turn out to be, where the platform allows some apps that much less.
    """

    calls: int
    seconds: float
    least: int | None = None


@dataclass(frozen=True, slots=True)
class _Told:
    """What the platform said of the window that is open: so many calls in all, so many left, until then."""

    calls: int
    left: int
    until: float


@dataclass(order=True, slots=True)
class _Waiting:
    """Somebody in line. Of ticks, the one goes first that is out of date for longest; of others, the one that matters
    more, or came earlier.
    """

    priority: Priority
    since: float
    number: int
    is_first: asyncio.Event = field(compare=False, default_factory=asyncio.Event)


class Budget:
    """The calls that share one limit of the platform.

    When a call reaches the platform is not known: so it counts from when it goes until a window after its answer.

    Args:
        speed: how many times faster than the platform's the window runs: see `Pacer`.
    """

    def __init__(self, window: Window, *, speed: float = 1.0) -> None:
        self._window = replace(window, seconds=window.seconds / speed)
        self._speed = speed
        self._sent: deque[float] = deque()  # when the calls of the last window were answered
        self._last = -math.inf  # when a call went
        self._closed_until = 0.0
        self._share = 1.0  # of what the window says, as far as refusals have taught
        self._part = Part()
        self._learnt_at = 0.0
        self._told: _Told | None = None
        self._unanswered = 0
        self._live: list[float] = []  # since when
        self._kept = 0
        self._line: list[_Waiting] = []
        self._ticks: list[_Waiting] = []
        self._since_tick = 0
        self._numbers = count()

    @contextmanager
    def live(self, *, since: float | None = None, keeps: bool = True) -> Iterator[None]:
        """Count a reply in that lives on this budget, for as long as this is entered.

        Args:
            since: the loop's time since which it lives; now, unless it is told.
            keeps: whether a call is kept back for its final.
        """
        began = event_loop.now() if since is None else since
        self._live.append(began)
        try:
            with self.kept() if keeps else nullcontext():
                yield
        finally:
            self._live.remove(began)

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Keep a call back that is not a tick's, for as long as this is entered."""
        self._kept += 1
        try:
            yield
        finally:
            self._kept -= 1
            self._wake()

    async def admit(self, priority: Priority, since: float | None = None) -> None:
        """Wait for a place, and take it. Cancelled, it takes none.

        Args:
            since: of a tick: the loop's time since which what is shown is out of date; `SILENT`, if it is the first
                one with words in it. That has no pace to keep.
        """
        me = _Waiting(priority, event_loop.now() if since is None else since, next(self._numbers))
        line = self._ticks if priority is Priority.TICK else self._line
        insort(line, me)
        self._wake()
        try:
            while (wait := self._wait(me)) > _NO_TIME:
                if wait == math.inf:
                    self._wake()  # who comes first may have changed with what is kept back
                with suppress(TimeoutError):  # not `wait_for`, which may swallow that it is cancelled
                    async with asyncio.timeout(None if wait == math.inf else wait):
                        await me.is_first.wait()
                me.is_first.clear()
            self._take(priority)
        finally:
            line.remove(me)
            self._wake()

    def try_admit(self, priority: Priority) -> bool:
        """Take a place if there is one now and nobody waits for it."""
        if self._is_urgent or self._ticks or self._wait_for_room(priority) > 0:
            return False
        self._take(priority)
        return True

    def give_back(self) -> None:
        """A place that was taken is not needed."""
        self._unanswered = max(0, self._unanswered - 1)
        self._wake()

    def answered(self) -> None:
        """A call has come to its end, whatever that was: the platform has counted it, if it ever will."""
        self._sent.append(event_loop.now())
        self.give_back()

    def told(self, *, calls: int, left: int, seconds: float) -> None:
        """The platform says how many calls the window has that is open, how many are left, and for how long."""
        until, before = event_loop.now() + seconds + _OFF, self._told
        if before is not None and until < before.until + self._soon:  # the same window; answers overtake each other
            left = min(left, before.left)
        self._told = _Told(calls, left, until)

    def refused(self, retry_after: float) -> None:
        """The platform refused a call: none goes for `retry_after` seconds, and fewer from then on."""
        self._closed_until = max(event_loop.now() + retry_after, self._closed_until)
        few = self._window.least
        if few is not None and self._used <= few + 1:  # with the one that was refused
            self._share = few / self._window.calls
        elif event_loop.now() >= self._learnt_at:  # calls that were under way together are refused together
            self._share = max(_LEAST, self._share * _LESS)
        self._learnt_at = max(self._closed_until, self._learnt_at)

    def can_spare(self, calls: int, *, within: float = 0.0) -> bool:
        """Whether so many calls could be kept back beside those that are.

        Args:
            within: seconds in which they have to be free. If a window is longer than that, they have to be so now: it
                may be nearly as long until it has room again.
        """
        if event_loop.now() < self._closed_until:
            return False
        within /= self._speed
        windows = int(within / self._window.seconds)
        most = int((1 + windows) * self._calls * _KEPT)
        return min(self._free(within if windows else 0.0), most) - self._kept >= calls

    def has_room(self, priority: Priority, within: float) -> bool:
        """Whether a call that comes now is likely to find its place in so many seconds."""
        first = sum(other.priority <= priority for other in self._line)
        return self._closed_until <= event_loop.now() + within and self._free(within) > first

    @property
    def is_tight(self) -> bool:
        """Whether more than half of a window is kept back, so that ticks are few."""
        return self._kept > self._calls // 2

    @property
    def each(self) -> float:
        """How many calls each that is live could have while it is likely to last, if there were one more."""
        return (self._free(_LIKELY / self._speed) - self._kept) / (len(self._live) + 1)

    @property
    def left(self) -> float:
        """The part of the window that may be used now: from 0 to 1."""
        return (
            0.0 if event_loop.now() < self._closed_until else min(1.0, max(0.0, self._free(0.0) / self._window.calls))
        )

    def _free(self, within: float) -> int:
        """How many calls may go, now or in so many seconds."""
        self._forget()
        told, until = self._told, event_loop.now() + within
        if told is not None and event_loop.now() < told.until:
            later = max(0, math.ceil((until - told.until) / self._window.seconds))
            return self._part.of_left(told.left) - self._unanswered + later * self._calls
        windows, rest = divmod(within, self._window.seconds)
        return (int(windows) + 1) * self._calls - self._used + self._back(rest)

    @property
    def _soon(self) -> float:
        return _SOON / self._speed

    @property
    def _calls(self) -> int:
        """How many calls of the window are this worker's, as far as refusals have taught."""
        return self._part.of(max(1, int(self._window.calls * self._share)))

    @property
    def _use(self) -> Use:
        self._forget()
        return Use(len(self._live), self._used)

    def tell(self) -> Use:
        """What the other workers are to know."""
        mine = self._use
        self._part.tell(mine)
        return mine

    def share(self, others: Sequence[Use], *, is_new: bool) -> None:
        """Leave to other workers what is theirs: see `Part.share`."""
        self._part.share(others, self._use, is_new=is_new)
        self._wake()

    @property
    def is_idle(self) -> bool:
        self._forget()
        return not (self._used or self._line or self._ticks or self._live) and event_loop.now() >= self._closed_until

    def _take(self, priority: Priority) -> None:
        self._last = event_loop.now()
        self._unanswered += 1
        self._since_tick = 0 if priority is Priority.TICK else self._since_tick + 1

    def _wait(self, me: _Waiting) -> float:
        """Seconds until it may be this one's turn; infinite, if others come first."""
        if me is not self._next():
            return math.inf
        if me.priority is Priority.TICK and self._is_urgent:  # its share of what the others use
            return self._wait_for_room(Priority.FINAL)
        return self._wait_for_room(me.priority, is_paced=me.since > SILENT)

    def _next(self) -> _Waiting | None:
        if self._ticks and (not self._is_urgent or (self._since_tick >= _TICKS_SHARE - 1 and self._is_tick_free)):
            return self._ticks[0]
        return self._line[0] if self._line else None

    @property
    def _is_tick_free(self) -> bool:
        """Whether a tick takes nothing that is kept back; if that is more than a window may keep, all have to wait."""
        return self._kept > int(self._calls * _KEPT) or self._free(0.0) > self._kept

    @property
    def _is_urgent(self) -> bool:
        """Whether somebody waits who goes before ticks."""
        return bool(self._line) and self._line[0].priority < Priority.TICK

    def _wake(self) -> None:
        if (first := self._next()) is not None:
            first.is_first.set()

    def _wait_for_room(self, priority: Priority, *, is_paced: bool = True) -> float:
        """By what the platform has said of the window that is open; else by what it is known to allow."""
        if self._told is not None and self._told.until - event_loop.now() > _NO_TIME and self._share == 1.0:
            return self._wait_in(self._told, priority, is_paced=is_paced)
        if self._told is not None:  # its window is over, and with it what was sent in it
            while self._sent and self._sent[0] < self._told.until:
                self._sent.popleft()
            self._told, self._last = None, -math.inf
        return self._wait_as_known(priority, is_paced=is_paced)

    def _wait_in(self, told: _Told, priority: Priority, *, is_paced: bool) -> float:
        now, free = event_loop.now(), self._part.of_left(told.left) - self._unanswered
        end = told.until - now
        if priority < Priority.TICK:
            return max(self._closed_until - now, 0.0 if free > 0 else end)
        kept = min(self._kept, int(told.calls * _KEPT))
        end_of_ticks = told.until - self._soon if kept else told.until
        if free <= kept:
            return max(self._closed_until - now, end_of_ticks - now if free > 0 else end)
        even = (end_of_ticks - self._last) / (free - kept + 1) if is_paced else 0.0
        return max(self._closed_until - now, self._last + even - now)

    def _wait_as_known(self, priority: Priority, *, is_paced: bool) -> float:
        self._forget()
        now, seconds = event_loop.now(), self._window.seconds
        calls = room = self._calls
        early = 0.0
        if priority >= Priority.TICK:
            room = max(1, calls - min(self._kept, int(calls * _KEPT)))
        if priority is Priority.TICK and is_paced:
            early = self._last + self._pace(room) - now
        over = self._used - room  # so many must be forgotten, and one more
        full = 0.0 if over < 0 else self._sent[over] + seconds - now if over < len(self._sent) else seconds
        return max(self._closed_until - now, full, early)

    @property
    def _used(self) -> int:
        """How many calls count in the window that ends now."""
        return len(self._sent) + self._unanswered

    def _pace(self, room: int) -> float:
        """Seconds between two ticks, if there is `room` for so many in a window.

        What is free now has to last up to when one more is free, and so on, for as long as replies are likely to last.
        """
        now, free, likely = event_loop.now(), room - self._used, self._likely
        paces = [likely / calls] if (calls := free + self._back(likely)) > 0 else []
        for more, at in enumerate(self._sent):
            wait = at + self._window.seconds - now
            if wait < likely and free + more > 0:
                paces.append(wait / (free + more))
        return max(paces, default=0.0)

    @property
    def _likely(self) -> float:
        """For how many seconds more those that are live are likely to be so, as a mean; a window at the most."""
        now, most = event_loop.now(), self._window.seconds
        lasts, least = _LIKELY / self._speed, _AT_LEAST / self._speed
        left = [max(lasts - (now - since), least) if now - since < lasts else most for since in self._live]
        return min(most, sum(left) / len(left)) if left else most

    def _back(self, within: float) -> int:
        """How many of the calls that were made may be made again in so many seconds."""
        until = event_loop.now() + within - self._window.seconds
        return sum(at <= until for at in self._sent)

    def _forget(self) -> None:
        now = event_loop.now()
        while self._sent and self._sent[0] <= now - self._window.seconds:
            self._sent.popleft()
        while self._share < 1.0 and now >= self._learnt_at + self._window.seconds:
            self._share = min(1.0, self._share * _MORE)
            self._learnt_at += self._window.seconds
