"""The pacer: keeps calls within what a platform allows, the important ones first, and shares out what is left."""

import asyncio
from bisect import insort
from collections import deque
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count

from channels.channel import Priority

#: Ticks keep a pace that a window of them lasts for a whole window. Most replies end sooner: so behind a pause they
#: go by this much faster at first, for half of a window, and are then as much slower, once.
_EAGER = 0.55

#: While others wait as well, every so many-th place is a tick's: texts go on growing while finals drain.
_TICKS_SHARE = 6

#: A refusal shows that the platform allows less than it says: by so much less is asked of it from then on, and by so
#: much more with each window in which it refuses nothing.
_LESS, _MORE, _LEAST = 0.85, 1.25, 0.25

#: Seconds before a window's end from which on a call that was kept back for a final is not needed any more: one that
#: comes now finds the next window open soon enough. Also what the network may delay.
_SOON, _DELAY = 0.3, 0.05

#: How many budgets may lie idle before they are thrown away.
_IDLE = 1000


@dataclass(frozen=True, slots=True)
class Window:
    """So many calls in so many seconds."""

    calls: int
    seconds: float


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
    """The calls that share one limit of the platform."""

    def __init__(self, window: Window) -> None:
        self._window = window
        self._sent: deque[float] = deque()
        self._closed_until = 0.0
        self._share = 1.0  # of what the window says, as far as refusals have taught
        self._learnt_at = 0.0
        self._burst = 0.0
        self._told: _Told | None = None
        self._unanswered = 0
        self._live = 0
        self._line: list[_Waiting] = []
        self._ticks: list[_Waiting] = []
        self._since_tick = 0
        self._numbers = count()

    @contextmanager
    def live(self) -> Iterator[None]:
        """Keep a call back for a final, for as long as this is entered."""
        self._live += 1
        try:
            yield
        finally:
            self._live -= 1

    async def admit(self, priority: Priority, since: float | None = None) -> None:
        """Wait for a place, and take it. Cancelled, it takes none.

        Args:
            since: of a tick: the loop's time since which what is shown is out of date.
        """
        me = _Waiting(priority, _now() if since is None else since, next(self._numbers))
        line = self._ticks if priority is Priority.TICK else self._line
        insort(line, me)
        self._wake()
        try:
            while (wait := self._wait(me)) > 0:
                if wait == float("inf"):
                    await me.is_first.wait()
                else:
                    await _event_within(me.is_first, wait)
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
        if self._sent:
            self._sent.pop()
        self.answered()

    def answered(self) -> None:
        """A call has come to its end, whatever that was: the platform has counted it, if it ever will."""
        self._unanswered = max(0, self._unanswered - 1)
        self._wake()

    def told(self, *, calls: int, left: int, seconds: float) -> None:
        """The platform says how many calls the window has that is open, how many are left, and for how long."""
        until, before = _now() + seconds + _DELAY, self._told
        if before is not None and until < before.until + _SOON:  # the same window; answers overtake each other
            left = min(left, before.left)
        self._told = _Told(calls, left, until)

    def refused(self, retry_after: float) -> None:
        """The platform refused a call: none goes for `retry_after` seconds, and fewer from then on."""
        self._closed_until = max(_now() + retry_after, self._closed_until)
        if _now() >= self._learnt_at:  # calls that were under way together are refused together
            self._share = max(_LEAST, self._share * _LESS)
        self._learnt_at = max(self._closed_until, self._learnt_at)

    def can_spare(self, calls: int) -> bool:
        """Whether so many calls could go now beside one for each that is live."""
        self._forget()
        return _now() >= self._closed_until and self._calls - len(self._sent) - self._live >= calls

    @property
    def each(self) -> float:
        """How many calls a second each that is live would have, if there were one more."""
        return self._calls / self._window.seconds / (self._live + 1)

    @property
    def _calls(self) -> int:
        """How many calls the window holds, as far as refusals have taught."""
        return max(1, int(self._window.calls * self._share))

    @property
    def is_idle(self) -> bool:
        self._forget()
        return not (self._sent or self._line or self._ticks or self._live) and _now() >= self._closed_until

    def _take(self, priority: Priority) -> None:
        pause = self._window.seconds / 10
        if not self._sent or (len(self._sent) <= self._window.calls // 5 and _now() > self._sent[-1] + pause):
            self._burst = _now()
        self._sent.append(_now())
        self._unanswered += 1
        self._since_tick = 0 if priority is Priority.TICK else self._since_tick + 1

    def _wait(self, me: _Waiting) -> float:
        """Seconds until it may be this one's turn; infinite, if others come first."""
        if me is not self._next():
            return float("inf")
        if me.priority is Priority.TICK and self._is_urgent:  # its share of what the others use
            return self._wait_for_room(Priority.FINAL)
        return self._wait_for_room(me.priority)

    def _next(self) -> _Waiting | None:
        if self._ticks and (not self._is_urgent or self._since_tick >= _TICKS_SHARE - 1):
            return self._ticks[0]
        return self._line[0] if self._line else None

    @property
    def _is_urgent(self) -> bool:
        """Whether somebody waits who goes before ticks."""
        return bool(self._line) and self._line[0].priority < Priority.TICK

    def _wake(self) -> None:
        if (first := self._next()) is not None:
            first.is_first.set()

    def _wait_for_room(self, priority: Priority) -> float:
        """By what the platform has said of the window that is open; else by what it is known to allow."""
        if self._told is not None and _now() < self._told.until and self._share == 1.0:
            return self._wait_in(self._told, priority)
        if self._told is not None:  # its window is over, and with it what was sent in it
            while self._sent and self._sent[0] < self._told.until:
                self._sent.popleft()
            self._told = None
        return self._wait_as_known(priority)

    def _wait_in(self, told: _Told, priority: Priority) -> float:
        now, free = _now(), told.left - self._unanswered
        end = told.until - now
        if priority < Priority.TICK:
            return max(self._closed_until - now, 0.0 if free > 0 else end)
        kept = min(self._live, told.calls // 2)
        if free <= kept:
            return max(self._closed_until - now, end - _SOON if free > 0 else end)
        last = self._sent[-1] if self._sent else now
        even = (told.until - last) / (free - kept + 1)
        return max(self._closed_until - now, last + even - now)

    def _wait_as_known(self, priority: Priority) -> float:
        self._forget()
        now, sent, seconds = _now(), self._sent, self._window.seconds
        calls = room = self._calls
        early = 0.0
        if priority >= Priority.TICK:
            room = max(1, calls - min(self._live, calls // 2))
        if priority is Priority.TICK:
            early = sent[-1] + self._pace(room) - now if sent else 0.0
        full = sent[-room] + seconds - now if len(sent) >= room else 0.0
        return max(self._closed_until - now, full, early)

    def _pace(self, room: int) -> float:
        """Seconds between two ticks, if there is `room` for so many in a window."""
        now, seconds, even = _now(), self._window.seconds, self._window.seconds / room
        if now < self._burst + seconds / 2:
            return even * _EAGER
        free = room - len(self._sent)
        # Up to when one more is free, what is free now has to last, and so on.
        waits = (((at + seconds - now), free + more) for more, at in enumerate(self._sent, 1))
        return max([even, *(wait / calls for wait, calls in waits if calls > 0)])

    def _forget(self) -> None:
        now = _now()
        while self._sent and self._sent[0] <= now - self._window.seconds:
            self._sent.popleft()
        while self._share < 1.0 and now >= self._learnt_at + self._window.seconds:
            self._share = min(1.0, self._share * _MORE)
            self._learnt_at += self._window.seconds


class Pacer:
    """Budgets by key: all that share a limit of the platform share a key.

    Args:
        speed: how many times faster than the platform's the windows run; for a sandbox whose clock does, too.
    """

    def __init__(self, *, speed: float = 1.0) -> None:
        self._speed = speed
        self._budgets: dict[Hashable, Budget] = {}

    def budget(self, key: Hashable, window: Window) -> Budget:
        found = self._budgets.get(key)
        if found is None:
            if len(self._budgets) >= _IDLE:
                self._budgets = {key: budget for key, budget in self._budgets.items() if not budget.is_idle}
            found = self._budgets[key] = Budget(Window(window.calls, window.seconds / self._speed))
        return found


async def _event_within(event: asyncio.Event, seconds: float) -> None:
    try:
        await asyncio.wait_for(event.wait(), seconds)
    except TimeoutError:
        return


def _now() -> float:
    return asyncio.get_running_loop().time()
