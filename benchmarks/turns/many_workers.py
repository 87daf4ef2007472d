"""Measurements of workers in processes of their own."""

import asyncio
import json
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from benchmarks.turns.worker import LIMIT

#: Number of sessions, and of successive turns in each.
SESSIONS, TURNS_EACH = 100, 5

#: Limit of each wait, in seconds.
PATIENCE = 120.0


@dataclass(frozen=True, slots=True)
class Pace:
    """Throughput of short turns.

    Attributes:
        seconds: the time until all turns have ended.
        cpu: CPU seconds of the workers.
        late: the longest delay of an event loop in seconds; `busiest`: its longest CPU time without a pause.
        shares: the number of turns of each worker.
    """

    workers: int
    turns: int
    seconds: float
    cpu: float
    late: float
    busiest: float
    shares: tuple[int, ...]


class Hand:
    """Worker process."""

    def __init__(self, process: asyncio.subprocess.Process, number: int, heard: asyncio.Queue[dict[str, Any]]) -> None:
        self._process = process
        self._reading = asyncio.create_task(self._read(number, heard), name=f"worker {number}")

    async def _read(self, number: int, heard: asyncio.Queue[dict[str, Any]]) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            heard.put_nowait({"worker": number, **json.loads(line)})

    def do(self, **what: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{json.dumps(what)}\n".encode())

    def close(self) -> None:
        """Shut the worker down."""
        assert self._process.stdin is not None
        self._process.stdin.close()

    def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)

    async def aclose(self) -> None:
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()
        await self._reading


class Crowd:
    """Workers on one database."""

    def __init__(self) -> None:
        self.hands: list[Hand] = []
        self.heard: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

    async def hear(self, what: str, **more: Any) -> dict[str, Any]:
        """Return the next report of this kind."""
        wanted = {"what": what, **more}
        async with asyncio.timeout(PATIENCE):
            while True:
                told = await self.heard.get()
                if wanted.items() <= told.items():
                    return told


@asynccontextmanager
async def working(
    url: str, workers: int, *, seconds: float = 0.0, limits: tuple[int, ...] = ()
) -> AsyncIterator[Crowd]:
    crowd = Crowd()
    try:
        for number in range(workers):
            limit = limits[number] if limits else LIMIT
            words = [sys.executable, "-m", "benchmarks.turns.worker_process", url, str(seconds), str(limit)]
            pipe = asyncio.subprocess.PIPE
            process = await asyncio.create_subprocess_exec(*words, stdin=pipe, stdout=pipe)
            crowd.hands.append(Hand(process, number, crowd.heard))
        for _ in range(workers):
            await crowd.hear("ready")
        yield crowd
    finally:
        for hand in crowd.hands:
            await hand.aclose()


async def pace(url: str, workers: int) -> Pace:
    """Measure turns in sessions where each message follows the answer to the former one."""
    async with working(url, workers) as crowd:
        began = time.time()
        for session in range(SESSIONS):
            crowd.hands[session % workers].do(say=f"pace {workers} {session}", text=str(TURNS_EACH - 1))
        ends = [await crowd.hear("ended") for _ in range(SESSIONS * TURNS_EACH)]
        for hand in crowd.hands:
            hand.close()
        overs = [await crowd.hear("over") for _ in crowd.hands]
    shares = [sum(end["worker"] == number for end in ends) for number in range(workers)]
    return Pace(
        workers,
        len(ends),
        ends[-1]["at"] - began,
        sum(over["cpu"] for over in overs),
        max(over["late"] for over in overs),
        max(over["busiest"] for over in overs),
        tuple(shares),
    )


async def takeover(url: str) -> float:
    """Return the seconds from the death of a worker until another one resumes its turn."""
    async with working(url, 2, seconds=60) as crowd:
        crowd.hands[0].do(say="takeover", text="0")
        first = await crowd.hear("began", session="takeover")
        await asyncio.sleep(1)
        crowd.hands[first["worker"]].kill()
        died = time.time()
        again = await crowd.hear("began", session="takeover", attempt=2)
        return float(again["at"]) - died


async def cancel(url: str) -> float:
    """Return the most seconds from a stop at one worker to the cancellation at another."""
    worst = 0.0
    async with working(url, 2, seconds=60, limits=(LIMIT, 0)) as crowd:
        for number in range(5):
            session = f"cancel {number}"
            crowd.hands[0].do(say=session, text="0")
            await crowd.hear("began", session=session)
            await asyncio.sleep(0.3)
            before = time.time()
            crowd.hands[1].do(stop=session)
            worst = max(worst, (await crowd.hear("cancelled", session=session))["at"] - before)
    return worst
