"""Measurements of bot workers in processes of their own, on one database."""

import asyncio
import json
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from benchmarks.turns.worker import MAX_CONCURRENT_TURNS

#: Number of sessions, and of successive turns in each.
SESSIONS, TURNS_PER_SESSION = 100, 5

#: Limit of each wait, in seconds.
REPORT_TIMEOUT_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Throughput:
    """Duration and cost of many short turns.

    Attributes:
        seconds: the time until all turns have ended.
        cpu: CPU seconds of all workers.
        max_delay: the longest delay of an event loop in seconds.
        max_busy: the longest CPU time of an event loop's thread between two samples of `LoopMonitor`, in seconds.
        turns_by_worker: the number of turns of each worker, by the worker's number.
    """

    workers: int
    turns: int
    seconds: float
    cpu: float
    max_delay: float
    max_busy: float
    turns_by_worker: tuple[int, ...]


class WorkerProcess:
    """Running process of the module `worker_process`, with JSON commands and reports.

    Args:
        process: the process, with pipes for its standard input and output.
        number: stored as "worker" in each report.
        reports: the queue to which each report of the process is added as a dict.
    """

    def __init__(
        self, process: asyncio.subprocess.Process, number: int, reports: asyncio.Queue[dict[str, Any]]
    ) -> None:
        self._process = process
        self._reading = asyncio.create_task(self._read(number, reports), name=f"worker {number}")

    async def _read(self, number: int, reports: asyncio.Queue[dict[str, Any]]) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            reports.put_nowait({"worker": number, **json.loads(line)})

    def send_command(self, **command: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{json.dumps(command)}\n".encode())

    def close(self) -> None:
        """Close the worker's standard input, on which it stops."""
        assert self._process.stdin is not None
        self._process.stdin.close()

    def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)

    async def aclose(self) -> None:
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()
        await self._reading


class WorkerPool:
    """Worker processes on one database.

    Attributes:
        workers: the processes, by number.
        reports: queue of the workers' reports that `wait_for_report` has not taken.
    """

    def __init__(self) -> None:
        self.workers: list[WorkerProcess] = []
        self.reports: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

    async def wait_for_report(self, kind: str, **fields: Any) -> dict[str, Any]:
        """Wait for a report of a worker and return it; discard the reports before it.

        Args:
            kind: such as "ready", "began" or "ended".
            fields: values that the report must have.

        Returns:
            The report's JSON: `worker` (the number of the worker), `kind`, `at` (Unix time) and the fields of its kind.

        Raises:
            TimeoutError: after `REPORT_TIMEOUT_SECONDS`.
        """
        wanted = {"kind": kind, **fields}
        async with asyncio.timeout(REPORT_TIMEOUT_SECONDS):
            while True:
                report = await self.reports.get()
                if wanted.items() <= report.items():
                    return report


@asynccontextmanager
async def start_workers(
    url: str, workers: int, *, model_seconds: float = 0.0, limits: tuple[int, ...] = ()
) -> AsyncIterator[WorkerPool]:
    """Start worker processes, and yield them once all are ready.

    The end of the context kills those that still run, and waits for all.

    Args:
        url: see `run_worker`.
        workers: the number of processes.
        model_seconds: the model's time before its answer.
        limits: the maximum number of concurrent turns of each worker, one item per worker; empty for
            `MAX_CONCURRENT_TURNS`.

    Raises:
        TimeoutError: a worker is not ready within `REPORT_TIMEOUT_SECONDS`.
    """
    pool = WorkerPool()
    try:
        for number in range(workers):
            limit = limits[number] if limits else MAX_CONCURRENT_TURNS
            command = [sys.executable, "-m", "benchmarks.turns.worker_process", url, str(model_seconds), str(limit)]
            pipe = asyncio.subprocess.PIPE
            process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe)
            pool.workers.append(WorkerProcess(process, number, pool.reports))
        for _ in range(workers):
            await pool.wait_for_report("ready")
        yield pool
    finally:
        for worker in pool.workers:
            await worker.aclose()


async def measure_throughput(url: str, workers: int) -> Throughput:
    """Measure the throughput of `TURNS_PER_SESSION` short turns in each session.

    The `SESSIONS` sessions are spread over the workers, and run at once. In a session, each message follows the answer
    to the former one.

    Args:
        url: the URL of a database without messages; see `run_worker`.
        workers: the number of worker processes.
    """
    async with start_workers(url, workers) as pool:
        began = time.time()
        for session in range(SESSIONS):
            worker = pool.workers[session % workers]
            worker.send_command(say=f"pace {workers} {session}", text=str(TURNS_PER_SESSION - 1))
        ends = [await pool.wait_for_report("ended") for _ in range(SESSIONS * TURNS_PER_SESSION)]
        for worker in pool.workers:
            worker.close()
        summaries = [await pool.wait_for_report("stopped") for _ in pool.workers]
    turns_by_worker = [sum(end["worker"] == number for end in ends) for number in range(workers)]
    return Throughput(
        workers,
        len(ends),
        ends[-1]["at"] - began,
        sum(summary["cpu"] for summary in summaries),
        max(summary["max_delay"] for summary in summaries),
        max(summary["max_busy"] for summary in summaries),
        tuple(turns_by_worker),
    )


async def measure_takeover(url: str) -> float:
    """Return the seconds from a worker's kill until another one resumes its turn.

    Args:
        url: the URL of a database without messages; see `run_worker`.
    """
    async with start_workers(url, 2, model_seconds=60) as pool:
        pool.workers[0].send_command(say="takeover", text="0")
        start = await pool.wait_for_report("began", session="takeover")
        await asyncio.sleep(1)
        pool.workers[start["worker"]].kill()
        killed_at = time.time()
        takeover = await pool.wait_for_report("began", session="takeover", attempt=2)
        return float(takeover["at"]) - killed_at


async def measure_cancel(url: str) -> float:
    """Return the longest of five times from a stop to the end of its turn, in seconds.

    One worker stores the cancel request for a turn that another worker runs.

    Args:
        url: the URL of a database without messages; see `run_worker`.
    """
    longest = 0.0
    async with start_workers(url, 2, model_seconds=60, limits=(MAX_CONCURRENT_TURNS, 0)) as pool:
        for number in range(5):
            session = f"cancel {number}"
            pool.workers[0].send_command(say=session, text="0")
            await pool.wait_for_report("began", session=session)
            await asyncio.sleep(0.3)
            before = time.time()
            pool.workers[1].send_command(stop=session)
            longest = max(longest, (await pool.wait_for_report("cancelled", session=session))["at"] - before)
    return longest
