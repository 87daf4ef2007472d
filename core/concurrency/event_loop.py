"""Event loop time and cooperative yielding."""

import asyncio
import time
from collections import deque
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

#: Seconds of computing after which the rest waits for a later round.
ENOUGH = 0.005

#: How many of those who wait look for room in one round: most of them find it, and the others do not look in vain.
_LOOK = 4


@dataclass(slots=True)
class _Round:
    """The round of a loop.

    Attributes:
        began: when, of the thread's CPU seconds; none, before anybody has looked for room in it.
        waiting: those who found no room, in order. As long as there are any, its end is due.
    """

    began: float | None = None
    waiting: deque[asyncio.Future[None]] = field(default_factory=deque)

    @property
    def has_room(self) -> bool:
        return self.began is None or time.thread_time() - self.began < ENOUGH

    def begin(self, loop: asyncio.AbstractEventLoop) -> None:
        if self.began is None:
            self.began = time.thread_time()
            if not self.waiting:
                loop.call_soon(self._end, loop)

    def _end(self, loop: asyncio.AbstractEventLoop) -> None:
        for _ in range(min(_LOOK, len(self.waiting))):
            waits = self.waiting.popleft()
            if not waits.done():  # it may have been cancelled
                waits.set_result(None)
        self.began = None
        if self.waiting:
            loop.call_soon(self._end, loop)


_rounds = WeakKeyDictionary[asyncio.AbstractEventLoop, _Round]()


async def room() -> None:
    """Wait for a round of the event loop in which not enough was computed yet.

    What becomes ready at one moment runs in one round, and all else waits for its end: so those of many who find no
    room in it go on in a later one.
    """
    loop = asyncio.get_running_loop()
    if (current := _rounds.get(loop)) is None:
        current = _rounds[loop] = _Round()
    line_up = current.waiting.append
    while not current.has_room:
        waits = loop.create_future()
        line_up(waits)
        await waits
        line_up = current.waiting.appendleft  # who has looked goes before who has not
    current.begin(loop)


def now() -> float:
    """Seconds since some moment or other."""
    return asyncio.get_running_loop().time()
