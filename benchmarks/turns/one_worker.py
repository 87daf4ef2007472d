"""Measurements of one worker in the benchmark's process: single, concurrent, idle."""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median

from benchmarks.replies.loop import LoopMonitor
from benchmarks.turns.statements import count_statements
from benchmarks.turns.worker import WorkerServices, build_message, run_worker
from core.turns.turn import Turn

#: Number of measured turns, and of warm-up turns before.
TURNS, WARM_UP_TURNS = 200, 30

#: Number of concurrent sessions, and seconds of the model in each.
CONCURRENT_SESSIONS, MODEL_SECONDS = 300, 2.0

#: Duration of the measurement of an idle worker.
IDLE_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class SingleTurns:
    """Figures of turns that run one after the other, in seconds.

    Attributes:
        accept: the median duration of `InboxStore.accept`.
        start, start_p99: from the start of that call to the start of the turn: median and 99th percentile.
        statements: the mean number of database statements per turn, by kind (see `count_statements`).
    """

    accept: float
    start: float
    start_p99: float
    statements: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class ConcurrentTurns:
    """Figures of concurrent turns, one in each session.

    Attributes:
        seconds: the time from the acceptance of all messages at once to the end of the last turn.
        peak: the maximum number of concurrent turns.
        max_delay: the longest delay of the event loop in seconds.
        max_busy: the longest CPU time of the event loop's thread between two samples of `LoopMonitor`, in seconds.
    """

    seconds: float
    peak: int
    max_delay: float
    max_busy: float


@dataclass(frozen=True, slots=True)
class IdleUsage:
    """Database statements and CPU seconds per minute of a worker without turns.

    The CPU time is that of the benchmark's process, in which the worker runs, without a PostgreSQL server.
    """

    statements: float
    cpu: float


class _TurnRecorder:
    """Recorder of turns' starts and ends; its methods are the worker's callbacks.

    Attributes:
        start_times: the start of each turn (`perf_counter` seconds), by the event key of its newest message.
        running, peak: the number of running turns, and its maximum.
    """

    def __init__(self) -> None:
        self.start_times: dict[str, float] = {}
        self._ended: asyncio.Queue[Turn] = asyncio.Queue()
        self.running = self.peak = 0

    def record_start(self, turn: Turn) -> None:
        self.start_times[turn.newest_message.event_key] = time.perf_counter()
        self.running += 1
        self.peak = max(self.peak, self.running)

    def record_end(self, turn: Turn) -> None:
        self.running -= 1
        self._ended.put_nowait(turn)

    async def wait_for_end(self) -> None:
        async with asyncio.timeout(60):
            await self._ended.get()


async def measure_single_turns(url: str) -> tuple[SingleTurns, IdleUsage]:
    """Measure `TURNS` successive turns, and then the idle worker.

    Args:
        url: see `run_worker`.

    Returns:
        The figures of the turns, and those of the idle worker.
    """
    recorder = _TurnRecorder()
    async with run_worker(url, on_start=recorder.record_start, on_end=recorder.record_end) as services:
        for number in range(WARM_UP_TURNS):
            await services.inbox.accept(build_message(f"single {number % 20}"))
            await recorder.wait_for_end()
        accepts, starts = [], []
        with count_statements(services.database) as statements:
            for number in range(TURNS):
                message = build_message(f"single {number % 20}")
                before = time.perf_counter()
                await services.inbox.accept(message)
                accepts.append(time.perf_counter() - before)
                await recorder.wait_for_end()
                starts.append(recorder.start_times[message.event_key] - before)
        idle = await _measure_idle_usage(services)
    statements_per_turn = {kind: number / TURNS for kind, number in statements.items()}
    return SingleTurns(median(accepts), median(starts), sorted(starts)[int(0.99 * TURNS)], statements_per_turn), idle


async def _measure_idle_usage(services: WorkerServices) -> IdleUsage:
    await asyncio.sleep(1)
    with count_statements(services.database) as statements:
        before = time.process_time()
        await asyncio.sleep(IDLE_SECONDS)
        cpu = time.process_time() - before
    return IdleUsage(statements.total() * 60 / IDLE_SECONDS, cpu * 60 / IDLE_SECONDS)


async def measure_concurrent_turns(url: str, *, has_agent: bool = True) -> ConcurrentTurns:
    """Measure one turn in each of `CONCURRENT_SESSIONS` sessions.

    All messages are accepted at once.

    Args:
        url, has_agent: see `run_worker`.
    """
    recorder = _TurnRecorder()
    async with run_worker(
        url,
        model_seconds=MODEL_SECONDS,
        has_agent=has_agent,
        on_start=recorder.record_start,
        on_end=recorder.record_end,
    ) as services:
        before = time.perf_counter()
        async with LoopMonitor() as loop:
            await asyncio.gather(
                *(services.inbox.accept(build_message(f"at once {number}")) for number in range(CONCURRENT_SESSIONS))
            )
            for _ in range(CONCURRENT_SESSIONS):
                await recorder.wait_for_end()
        return ConcurrentTurns(time.perf_counter() - before, recorder.peak, loop.delay_quantile(1), loop.max_busy)
