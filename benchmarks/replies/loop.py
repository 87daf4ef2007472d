"""Monitor of the event loop's delay and of the CPU use of the process."""

import asyncio
import gc
import time
from types import TracebackType
from typing import Self

from core.concurrency import gc_tuning

#: Seconds between two samples.
_SAMPLE_SECONDS = 0.005


class LoopMonitor:
    """Async context manager that measures the running event loop, in real seconds.

    It also freezes and tunes the garbage collector as the ready bot does, and restores the thresholds at the end.

    Attributes:
        max_busy: the longest CPU time of the loop's thread between two samples.
        cpu: CPU use of the process, set at the end; 1.0 is one whole core.
        wall: the duration of the context, set at the end.
    """

    def __init__(self) -> None:
        self.max_busy = self.cpu = self.wall = 0.0
        self._delays: list[float] = []

    async def __aenter__(self) -> Self:
        self._thresholds = gc.get_threshold()
        gc.collect()
        gc_tuning.freeze_gc()  # same as in the ready bot
        self._wall, self._cpu = time.perf_counter(), time.process_time()
        self._sampling = asyncio.create_task(self._sample(), name="loop")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._sampling.cancel()
        await asyncio.wait([self._sampling])
        self.wall = time.perf_counter() - self._wall
        self.cpu = (time.process_time() - self._cpu) / self.wall
        gc.set_threshold(*self._thresholds)
        gc.unfreeze()

    def delay_quantile(self, fraction: float) -> float:
        """Return a quantile of the loop's sampled delays, in seconds; 0 without samples.

        Args:
            fraction: the quantile, from 0 to 1.
        """
        ordered = sorted(self._delays)
        return ordered[min(len(ordered) - 1, int(fraction * len(ordered)))] if ordered else 0.0

    async def _sample(self) -> None:
        while True:
            before, cpu_before = time.perf_counter(), time.thread_time()
            await asyncio.sleep(_SAMPLE_SECONDS)
            self._delays.append(max(0.0, time.perf_counter() - before - _SAMPLE_SECONDS))
            self.max_busy = max(self.max_busy, time.thread_time() - cpu_before)
