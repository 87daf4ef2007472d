"""A clock that does not wait."""

import asyncio


class FastLoop(asyncio.SelectorEventLoop):
    """A loop whose clock jumps to whatever comes next, instead of waiting for it."""

    now = 1_000.0

    def time(self) -> float:
        return self.now

    def _run_once(self) -> None:
        scheduled: list[asyncio.TimerHandle] = self._scheduled  # type: ignore[attr-defined]  # asyncio's own list
        if not self._ready:  # type: ignore[attr-defined]
            awaited = (timer.when() for timer in scheduled if not timer.cancelled())
            self.now = max(self.now, min(awaited, default=self.now))
        super()._run_once()  # type: ignore[misc]
