"""Processes of the bot's Procfile, with deploys as on Heroku.

Heroku runs `release` to its end before the new version starts (devcenter.heroku.com/articles/release-phase), and stops
the old processes when it starts the new ones (devcenter.heroku.com/articles/dynos#restarting).
"""

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from time import monotonic

from bot.server import READINESS_PATH
from tests.processes.procfile import KILL_TIMEOUT_SECONDS, Dyno, Foreman

#: Limit for the readiness of a new process, in seconds.
START_TIMEOUT_SECONDS = 120.0


@dataclass
class Formation:
    """Running worker processes of the Procfile, and the deploys that replace them.

    Attributes:
        foreman: starts the processes.
        workers: the number of `worker` processes.
        has_overlap: whether new workers start while old ones stop; SQLite allows one worker.
        deploys: start (the SIGTERM to the old workers) and end of each deploy, in monotonic seconds.
        counts: the numbers of `deploys`, `releases`, `releases killed` (on purpose) and `workers killed after N s`
            (workers that were still running N seconds after SIGTERM).
        unexpected_exits: the number of workers that exited by themselves or with an error, or had to be killed.
    """

    foreman: Foreman
    workers: int
    has_overlap: bool
    deploys: list[tuple[float, float]] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    unexpected_exits: int = 0
    _dynos: list[Dyno] = field(default_factory=list)

    async def start(self) -> None:
        """Run the `release` process, start the workers, and wait until they are ready.

        Raises:
            RuntimeError: `release` failed.
            TimeoutError: a worker is not ready after `START_TIMEOUT_SECONDS`, or `release` does not end in time.
        """
        await self._release()
        await self._start()

    async def deploy(self) -> None:
        """Run `release`, replace all workers, and append the times to `deploys`.

        With overlap, new workers start after `release`, while the old ones stop. Otherwise the old ones stop before
        `release`. The deploy ends when all new workers are ready, and with overlap all old ones have exited. The first
        deploy also starts and kills an extra `release`.

        Raises:
            RuntimeError: `release` failed.
            TimeoutError: a worker is not ready after `START_TIMEOUT_SECONDS`, or `release` does not end in time.
        """
        old, self._dynos = self._dynos, []
        if not self.deploys:
            await (await self.foreman.start("release")).kill()
            self.counts["releases killed"] += 1
        if self.has_overlap:
            await self._release()
            began = monotonic()
            await asyncio.gather(self._start(), self._stop(old))
        else:
            began = monotonic()
            await self._stop(old)
            await self._release()
            await self._start()
        self.deploys.append((began, monotonic()))
        self.counts["deploys"] += 1

    async def stop(self) -> None:
        """Send SIGTERM to all workers, and wait for their exits.

        Workers that run longer than `KILL_TIMEOUT_SECONDS` are killed. `unexpected_exits` counts these, workers that
        exit with another code than 0, and workers that had exited before.
        """
        await self._stop(self._dynos)
        self._dynos = []

    async def aclose(self) -> None:
        for dyno in self._dynos:
            await dyno.kill()

    async def _release(self) -> None:
        release = await self.foreman.start("release")
        self.counts["releases"] += 1
        if await release.wait_for_exit():
            raise RuntimeError(f"release: {self.foreman.log.read_text()[-2000:]}")

    async def _start(self) -> None:
        self._dynos = [await self.foreman.start("worker", number) for number in range(1, self.workers + 1)]
        await asyncio.gather(
            *(dyno.wait_until_ready(READINESS_PATH, timeout_seconds=START_TIMEOUT_SECONDS) for dyno in self._dynos)
        )

    async def _stop(self, dynos: list[Dyno]) -> None:
        self.unexpected_exits += sum(dyno.exit_code is not None for dyno in dynos)
        codes = await asyncio.gather(*(dyno.terminate() for dyno in dynos if dyno.exit_code is None))
        self.counts[f"workers killed after {KILL_TIMEOUT_SECONDS:g} s"] += sum(code < 0 for code in codes)
        self.unexpected_exits += sum(code != 0 for code in codes)
