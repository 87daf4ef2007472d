"""Measurements of one worker from within its process."""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median

from benchmarks.replies.loop import Loop
from benchmarks.turns.statements import counted
from benchmarks.turns.worker import Crew, at_work, message
from core.turns.turn import Turn

#: Number of measured turns, and of warm-up turns before.
TURNS, WARM = 200, 30

#: Number of concurrent sessions, and seconds of the model in each.
AT_ONCE, MODEL_SECONDS = 300, 2.0

#: Seconds of idleness.
IDLE = 15.0


@dataclass(frozen=True, slots=True)
class Steps:
    """Single turns, in seconds.

    Attributes:
        accept: median of the call to accept.
        start: from that call to the start of the turn: median and 99th percentile.
        statements: database statements of one turn.
    """

    accept: float
    start: float
    start_p99: float
    statements: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Together:
    """Concurrent sessions.

    Attributes:
        seconds: the time until the last turn has ended.
        peak: the maximum number of concurrent turns.
        late: the longest delay of the event loop in seconds; `busiest`: its longest CPU time without a pause.
    """

    seconds: float
    peak: int
    late: float
    busiest: float


@dataclass(frozen=True, slots=True)
class Idle:
    """Statements and CPU seconds of an idle worker per minute."""

    statements: float
    cpu: float


class _Ends:
    """Recorder of the starts and ends of turns."""

    def __init__(self) -> None:
        self.began: dict[str, float] = {}
        self._ended: asyncio.Queue[Turn] = asyncio.Queue()
        self.running = self.peak = 0

    def begin(self, turn: Turn) -> None:
        self.began[turn.newest_message.event_key] = time.perf_counter()
        self.running += 1
        self.peak = max(self.peak, self.running)

    def end(self, turn: Turn) -> None:
        self.running -= 1
        self._ended.put_nowait(turn)

    async def next(self) -> None:
        async with asyncio.timeout(60):
            await self._ended.get()


async def one_at_a_time(url: str) -> tuple[Steps, Idle]:
    ends = _Ends()
    async with at_work(url, began=ends.begin, ended=ends.end) as crew:
        for number in range(WARM):
            await crew.inbox.accept(message(f"warm {number % 10}"))
            await ends.next()
        accepts, starts = [], []
        with counted(crew.database) as statements:
            for number in range(TURNS):
                said = message(f"one {number % 20}")
                before = time.perf_counter()
                await crew.inbox.accept(said)
                accepts.append(time.perf_counter() - before)
                await ends.next()
                starts.append(ends.began[said.event_key] - before)
        idle = await _idle(crew)
    each = {kind: number / TURNS for kind, number in statements.items()}
    return Steps(median(accepts), median(starts), sorted(starts)[int(0.99 * TURNS)], each), idle


async def _idle(crew: Crew) -> Idle:
    await asyncio.sleep(1)
    with counted(crew.database) as statements:
        before = time.process_time()
        await asyncio.sleep(IDLE)
        cpu = time.process_time() - before
    return Idle(statements.total() * 60 / IDLE, cpu * 60 / IDLE)


async def all_at_once(url: str, *, is_bare: bool = False) -> Together:
    ends = _Ends()
    async with at_work(url, seconds=MODEL_SECONDS, is_bare=is_bare, began=ends.begin, ended=ends.end) as crew:
        before = time.perf_counter()
        async with Loop() as loop:
            await asyncio.gather(*(crew.inbox.accept(message(f"at once {number}")) for number in range(AT_ONCE)))
            for _ in range(AT_ONCE):
                await ends.next()
        return Together(time.perf_counter() - before, ends.peak, loop.late(1), loop.busiest)
