"""Whether the process keeps up: how late the event loop is, and how much of a core it takes."""

import asyncio
import gc
import time
from types import TracebackType
from typing import Self

from core.concurrency import gc_tuning as garbage

#: Seconds between two looks.
_STEP = 0.005


class Loop:
    """Watches the event loop while it is entered; all in (real) seconds.

    Attributes:
        busiest: for how long the loop's thread computed on end, at worst.
        cpu: of all cores together, as a share of one.
        wall: for how long it was watched.
    """

    def __init__(self) -> None:
        self.busiest = self.cpu = self.wall = 0.0
        self._late: list[float] = []

    async def __aenter__(self) -> Self:
        self._thresholds = gc.get_threshold()
        gc.collect()
        garbage.freeze_gc()  # as the bot does when it is ready
        self._wall, self._cpu = time.perf_counter(), time.process_time()
        self._looking = asyncio.create_task(self._look(), name="loop")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._looking.cancel()
        await asyncio.wait([self._looking])
        self.wall = time.perf_counter() - self._wall
        self.cpu = (time.process_time() - self._cpu) / self.wall
        gc.set_threshold(*self._thresholds)
        gc.unfreeze()

    def late(self, share: float) -> float:
        """How late the loop was at most, in so large a share of the looks."""
        ordered = sorted(self._late)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0

    async def _look(self) -> None:
        while True:
            before, computed = time.perf_counter(), time.thread_time()
            await asyncio.sleep(_STEP)
            self._late.append(max(0.0, time.perf_counter() - before - _STEP))
            self.busiest = max(self.busiest, time.thread_time() - computed)
