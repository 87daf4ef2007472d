"""The processes of the bot, by the Procfile, and what a deploy does with them.

Heroku: devcenter.heroku.com/articles/release-phase: `release` is run to its end before the new version starts; and
devcenter.heroku.com/articles/dynos#restarting: the old processes are told to end when the new ones are started.
"""

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from time import monotonic

from bot.server import READINESS_PATH
from sandbox.procfile import KILLED_AFTER, Dyno, Foreman

#: Seconds after which a new process is to hear all that is said.
STARTS_WITHIN = 120.0


@dataclass
class Formation:
    """All that runs.

    Attributes:
        workers: how many at a time.
        overlaps: whether the next ones start while the old ones end; on SQLite, no two can be there.
        deploys: when each began and ended, on the monotonic clock, in seconds.
        made: how often what was done.
        deaths: how many processes did not end as they should.
    """

    foreman: Foreman
    workers: int
    overlaps: bool
    deploys: list[tuple[float, float]] = field(default_factory=list)
    made: Counter[str] = field(default_factory=Counter)
    deaths: int = 0
    _dynos: list[Dyno] = field(default_factory=list)

    async def start(self) -> None:
        """The first deploy, with nothing there before."""
        await self._release()
        await self._start()

    async def deploy(self) -> None:
        """Put new processes in the place of those that there are. The first time, `release` is broken off once."""
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
        """The end of all."""
        await self._stop(self._dynos)
        self._dynos = []

    async def aclose(self) -> None:
        for dyno in self._dynos:
            await dyno.kill()

    async def _release(self) -> None:
        release = await self.foreman.start("release")
        self.made["releases"] += 1
        if await release.ends():
            raise RuntimeError(f"release: {self.foreman.log.read_text()[-2000:]}")

    async def _start(self) -> None:
        self._dynos = [await self.foreman.start("worker", number) for number in range(1, self.workers + 1)]
        await asyncio.gather(*(dyno.listens(READINESS_PATH, within=STARTS_WITHIN) for dyno in self._dynos))

    async def _stop(self, dynos: list[Dyno]) -> None:
        self.deaths += sum(dyno.code is not None for dyno in dynos)
        codes = await asyncio.gather(*(dyno.stop() for dyno in dynos if dyno.code is None))
        self.made[f"killed after {KILLED_AFTER:g} s"] += sum(code < 0 for code in codes)
        self.deaths += sum(code != 0 for code in codes)
