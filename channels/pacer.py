"""The pacer: keeps calls within what a platform allows, the important ones first."""

import asyncio
from collections import defaultdict, deque
from collections.abc import Hashable
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from itertools import count

from channels.channel import Priority


@dataclass(frozen=True, slots=True)
class Window:
    """So many calls in so many seconds."""

    calls: int
    seconds: float


@dataclass(order=True, slots=True)
class _Waiting:
    """A call that waits for its place: before those that matter less, or came later."""

    priority: Priority
    number: int
    is_first: asyncio.Event = field(compare=False, default_factory=asyncio.Event)


class Pacer:
    """Budgets by key: all that share a limit of the platform share a key.

    A tick goes only if nobody waits, if it keeps an even pace, and if it leaves a fifth of the window to others;
    it never waits. Everything else waits for its place, the more important first.
    """

    def __init__(self) -> None:
        self._sent: defaultdict[Hashable, deque[float]] = defaultdict(deque)
        self._closed_until: dict[Hashable, float] = {}
        self._queues: defaultdict[Hashable, list[_Waiting]] = defaultdict(list)
        self._numbers = count()

    async def admit(self, key: Hashable, window: Window, priority: Priority) -> bool:
        """Take a place in the window, or say that a tick has none now."""
        if priority is Priority.TICK:
            if self._queues[key] or self._wait(key, window, priority) > 0:
                return False
        else:
            await self._stand_in_line(key, window, priority)
        self._sent[key].append(_now())
        return True

    def refused(self, key: Hashable, retry_after: float) -> None:
        """The platform refused a call: none goes for `retry_after` seconds."""
        self._closed_until[key] = max(_now() + retry_after, self._closed_until.get(key, 0.0))

    async def _stand_in_line(self, key: Hashable, window: Window, priority: Priority) -> None:
        queue, me = self._queues[key], _Waiting(priority, next(self._numbers))
        heappush(queue, me)
        try:
            while queue[0] is not me or (wait := self._wait(key, window, priority)) > 0:
                if queue[0] is me:
                    await asyncio.sleep(wait)
                else:
                    await me.is_first.wait()
                    me.is_first.clear()
        finally:
            if queue[0] is me:
                heappop(queue)
            else:
                queue.remove(me)
                heapify(queue)
            if queue:
                queue[0].is_first.set()

    def _wait(self, key: Hashable, window: Window, priority: Priority) -> float:
        now, sent = _now(), self._sent[key]
        while sent and sent[0] <= now - window.seconds:
            sent.popleft()
        closed = self._closed_until.get(key, now) - now
        calls = window.calls - window.calls // 5 if priority is Priority.TICK else window.calls
        full = sent[-calls] + window.seconds - now if len(sent) >= calls else 0.0
        pace = window.seconds / window.calls if priority is Priority.TICK and sent else 0.0
        early = sent[-1] + pace - now if sent else 0.0
        return max(closed, full, early)


def _now() -> float:
    return asyncio.get_running_loop().time()
