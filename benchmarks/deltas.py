"""Benchmark of streamed deltas in ADK and Parley: `make bench-deltas`.

Many scripted models stream concurrently in this process, first with one delta per event, then with coalesced deltas. No
vendor's client takes part. All messages are queued when the worker starts, so the figures include the simultaneous
start of the turns.
"""

import asyncio
import gc
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path

from core.agents.config import AgentConfig
from core.agents.factory import create_app
from core.agents.runtime import AgentRuntime, RunRequest, warm_up
from core.concurrency import gc_tuning
from core.inbox.store import InboxStore
from core.messages.inbox_message import InboxMessage
from core.models.adapter import ModelAdapter
from core.models.provider import NO_SUPPORTED_FILES, Done, ModelRequest, ProviderEvent, SupportedFiles, Text
from core.models.providers.coalescing import DeltaSchedule
from core.models.tokens import TokenCounter
from core.sessions.agent_routing import AgentRouter
from core.sessions.service import SessionService
from core.store.database import Database
from core.store.migrate import migrate
from core.store.workers.lease import Lease
from core.turns.store import TurnStore
from core.turns.turn import Turn
from core.turns.worker import Worker

STREAM_COUNT = 200
TOKENS_PER_SECOND = 40
STREAM_SECONDS = 10.0


class PacedModel:
    """Model provider that streams one word at a time, in real time.

    Each request gets `TOKENS_PER_SECOND` words a second for `STREAM_SECONDS`.
    """

    name = "scripted"

    def supported_files(self, model: str) -> SupportedFiles:
        del model
        return NO_SUPPORTED_FILES

    async def stream(self, _request: ModelRequest) -> AsyncIterator[ProviderEvent]:
        began = time.perf_counter()
        for number in range(int(STREAM_SECONDS * TOKENS_PER_SECOND)):
            due = began + number / TOKENS_PER_SECOND
            if (wait := due - time.perf_counter()) > 0:
                await asyncio.sleep(wait)
            yield Text(f"word{number} ")
        yield Done()

    async def aclose(self) -> None:
        return


@dataclass
class DeltaFigures:
    """Seconds and number of deltas of one measurement.

    Attributes:
        wall: from the start of the worker to its stop after the last turn.
        cpu: CPU seconds of the process in that time.
        max_delay: the longest delay of a 1 ms sleep in the event loop.
        gc_delay: the garbage collector's part of `max_delay`.
        max_busy: the longest CPU time of the event loop's thread during a 1 ms sleep. It is less than `max_delay` while
            other processes, or other threads with the interpreter's lock, run.
        deltas: the number of text deltas that all turns received.
    """

    wall: float = 0.0
    cpu: float = 0.0
    max_delay: float = 0.0
    gc_delay: float = 0.0
    max_busy: float = 0.0
    deltas: int = 0

    async def measure_delays(self) -> None:
        """Measure successive 1 ms sleeps in the event loop until cancelled.

        A new maximum replaces `max_delay` (and `gc_delay` with it) or `max_busy`.
        """
        gc_seconds = 0.0

        def add_collection(phase: str, _info: object) -> None:
            nonlocal gc_seconds
            now = time.perf_counter()
            gc_seconds += now if phase == "stop" else -now

        gc.callbacks.append(add_collection)
        try:
            while True:
                gc_seconds, before, cpu_before = 0.0, time.perf_counter(), time.thread_time()
                await asyncio.sleep(0.001)
                delay = time.perf_counter() - before - 0.001
                self.max_busy = max(self.max_busy, time.thread_time() - cpu_before)
                if delay > self.max_delay:
                    self.max_delay, self.gc_delay = delay, gc_seconds
        finally:
            gc.callbacks.remove(add_collection)


async def measure(schedule: DeltaSchedule | None, streams: int) -> DeltaFigures:
    """Run one turn in each of `streams` sessions at once, and return the figures.

    A run that raises an error is logged and adds no deltas; the worker repeats it. Each attempt counts as an ended
    turn, so that the figures of a measurement with errors are invalid.
    """
    with tempfile.TemporaryDirectory() as folder:
        database = Database(f"sqlite+aiosqlite:///{Path(folder) / 'bench.db'}")
        await migrate(database)
        lease = Lease(database)
        await lease.acquire()
        sessions = SessionService(database, TokenCounter(Path(".parley/tiktoken")))
        app = create_app(AgentConfig(), model=ModelAdapter(model="scripted", provider=PacedModel(), schedule=schedule))
        runtime, turns = AgentRuntime(app, sessions), TurnStore(database, lease, AgentRouter(app.name))
        figures, ended = DeltaFigures(), asyncio.Semaphore(0)

        async def answer(turn: Turn) -> None:
            try:
                deltas = await count_deltas(runtime, turn.newest_message)
                figures.deltas += deltas
                await turns.end(turn, "failed")
            finally:
                ended.release()

        worker = Worker(turns, limit=streams)
        inbox = InboxStore(database, turns, worker)
        for number in range(streams):
            await inbox.accept(build_message(number))
        gc_tuning.freeze_gc()
        monitor_task = asyncio.create_task(figures.measure_delays(), name="delays")
        wall, cpu = time.perf_counter(), time.process_time()
        worker_task = asyncio.create_task(worker.run(answer), name="worker")
        for _ in range(streams):
            await ended.acquire()
        await worker.stop(10)
        await worker_task
        figures.wall, figures.cpu = time.perf_counter() - wall, time.process_time() - cpu
        monitor_task.cancel()
        await asyncio.wait([monitor_task])
        await runtime.aclose()
        await database.aclose()
    return figures


def build_message(number: int) -> InboxMessage:
    return InboxMessage(
        event_key=f"event {number}",
        session_id=f"bench:{number}",
        place="bench",
        platform="bench",
        address={},
        author="somebody",
        text="Write.",
        sent_at=float(number),
    )


async def count_deltas(runtime: AgentRuntime, inbound: InboxMessage) -> int:
    """Run the agent for a message, and return the number of its text deltas.

    Raises:
        Exception: the error of the run.
    """
    deltas = 0
    stream = runtime.stream(RunRequest(user_id=inbound.place, session_id=inbound.session_id, text=inbound.text))
    async with aclosing(stream) as events:
        async for event in events:
            deltas += event.type == "text_delta"
            if event.error is not None:
                raise event.error
    return deltas


async def main(streams: int) -> None:
    await warm_up()
    print(f"{streams} streams of {TOKENS_PER_SECOND} tokens a second, {STREAM_SECONDS:g} s")
    print(
        f"{'':12}{'wall':>10}{'CPU':>10}{'cores':>8}{'longest delay, of it GC':>24}{'longest busy':>15}{'deltas':>10}"
    )
    for name, schedule in (("one by one", None), ("coalesced", DeltaSchedule())):
        figures = await measure(schedule, streams)
        print(
            f"{name:12}{figures.wall:>8.1f} s{figures.cpu:>8.1f} s{figures.cpu / figures.wall:>8.2f}"
            f"{figures.max_delay * 1000:>12.0f} ms{figures.gc_delay * 1000:>6.0f} ms{figures.max_busy * 1000:>12.0f} ms"
            f"{figures.deltas:>10,}"
        )


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else STREAM_COUNT))
