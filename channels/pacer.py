"""The pacer: keeps calls within what a platform allows, the important ones first."""

import asyncio
from collections import defaultdict, deque
from collections.abc import Hashable
from dataclasses import dataclass

from channels.channel import Priority


@dataclass(frozen=True, slots=True)
class Window:
    """So many calls in so many seconds."""

    calls: int
    seconds: float


class Pacer:
    """Budgets by key: all that share a limit of the platform share a key.

    A tick goes only if it keeps an even pace and leaves a fifth of the window to others; it never waits.
    Everything else waits for its place.
    """

    def __init__(self) -> None:
        self._sent: defaultdict[Hashable, deque[float]] = defaultdict(deque)
        self._closed_until: dict[Hashable, float] = {}

    async def admit(self, key: Hashable, window: Window, priority: Priority) -> bool:
        """Take a place in the window, or say that a tick has none now."""
        while (wait := self._wait(key, window, priority)) > 0:
            if priority is Priority.TICK:
                return False
            await asyncio.sleep(wait)
        self._sent[key].append(_now())
        return True

    def refused(self, key: Hashable, retry_after: float) -> None:
        """The platform refused a call: none goes for `retry_after` seconds."""
        self._closed_until[key] = _now() + retry_after

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
