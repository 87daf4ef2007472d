"""Delay of the event loop, and CPU use of the process."""

import asyncio
import gc
import time
from types import TracebackType
from typing import Self

from core.concurrency import gc_tuning as garbage

#: Seconds between two samples.
_STEP = 0.005


class Loop:
    """Monitor of the event loop, in real seconds.

    Attributes:
        busiest: the longest CPU time of the loop's thread without a pause.
        cpu: CPU use of all cores as a share of one.
        wall: the duration.
    """

    def __init__(self) -> None:
        self.busiest = self.cpu = self.wall = 0.0
        self._late: list[float] = []

    async def __aenter__(self) -> Self:
        self._thresholds = gc.get_threshold()
        gc.collect()
        garbage.freeze_gc()  # same as in the ready bot
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
        """Return the quantile `share` of the loop's delay."""
        ordered = sorted(self._late)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0

    async def _look(self) -> None:
        while True:
            before, computed = time.perf_counter(), time.thread_time()
            await asyncio.sleep(_STEP)
            self._late.append(max(0.0, time.perf_counter() - before - _STEP))
            self.busiest = max(self.busiest, time.thread_time() - computed)
