"""Processes of the Procfile, and deploys of them.

Heroku runs `release` to its end before the new version starts (devcenter.heroku.com/articles/release-phase), and stops
the old processes when it starts the new ones (devcenter.heroku.com/articles/dynos#restarting).
"""

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from time import monotonic

from bot.server import READINESS_PATH
from sandbox.procfile import KILL_TIMEOUT_SECONDS, Dyno, Foreman

#: Limit for the connection of a new process, in seconds.
STARTS_WITHIN = 120.0


@dataclass
class Formation:
    """Running processes.

    Attributes:
        workers: the number of concurrent workers.
        overlaps: whether new workers start while old ones stop; SQLite allows one worker.
        deploys: start and end of each deploy (monotonic seconds).
        made: the number of each action.
        deaths: the number of processes with an unexpected exit.
    """

    foreman: Foreman
    workers: int
    overlaps: bool
    deploys: list[tuple[float, float]] = field(default_factory=list)
    made: Counter[str] = field(default_factory=Counter)
    deaths: int = 0
    _dynos: list[Dyno] = field(default_factory=list)

    async def start(self) -> None:
        """Run the first deploy."""
        await self._release()
        await self._start()

    async def deploy(self) -> None:
        """Replace the processes with new ones. The first time, `release` is interrupted once."""
        old, self._dynos = self._dynos, []
        if not self.deploys:
            await (await self.foreman.start("release")).kill()
            self.made["releases broken off"] += 1
        if self.overlaps:
            await self._release()
            began = monotonic()
            await asyncio.gather(self._start(), self._stop(old))
        else:
            began = monotonic()
            await self._stop(old)
            await self._release()
            await self._start()
        self.deploys.append((began, monotonic()))
        self.made["deploys"] += 1

    async def stop(self) -> None:
        """Stop all processes."""
        await self._stop(self._dynos)
        self._dynos = []

    async def aclose(self) -> None:
        for dyno in self._dynos:
            await dyno.kill()

    async def _release(self) -> None:
        release = await self.foreman.start("release")
        self.made["releases"] += 1
        if await release.wait_for_exit():
            raise RuntimeError(f"release: {self.foreman.log.read_text()[-2000:]}")

    async def _start(self) -> None:
        self._dynos = [await self.foreman.start("worker", number) for number in range(1, self.workers + 1)]
        await asyncio.gather(
            *(dyno.wait_until_ready(READINESS_PATH, timeout_seconds=STARTS_WITHIN) for dyno in self._dynos)
        )

    async def _stop(self, dynos: list[Dyno]) -> None:
        self.deaths += sum(dyno.exit_code is not None for dyno in dynos)
        codes = await asyncio.gather(*(dyno.terminate() for dyno in dynos if dyno.exit_code is None))
        self.made[f"killed after {KILL_TIMEOUT_SECONDS:g} s"] += sum(code < 0 for code in codes)
        self.deaths += sum(code != 0 for code in codes)
