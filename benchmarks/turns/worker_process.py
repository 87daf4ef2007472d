"""Worker process of the benchmark, which reads commands and writes reports.

`python -m benchmarks.turns.worker_process URL MODEL_SECONDS LIMIT` reads commands from standard input and writes
reports to standard output, as JSON lines:

    {"say": SESSION, "text": TEXT}     accept a message; TEXT is the number of further messages
    {"stop": SESSION}                  cancel the session's running turn
"""

import asyncio
import json
import sys
import time
from typing import Any

from benchmarks.replies.loop import LoopMonitor
from benchmarks.turns.worker import WorkerServices, build_message, run_worker
from core.turns.turn import CancelReason, Turn


def report(kind: str, **fields: Any) -> None:
    print(json.dumps({"kind": kind, "at": time.time(), **fields}), flush=True)


class StdinCommandHandler:
    """Handler of commands from standard input; it reports turns on standard output.

    It reports the start, end and cancellation of each turn. The command `{"say": SESSION, "text": TEXT}` accepts a
    message; `{"stop": SESSION}` cancels the session's turn. The text must be a number. Above 0, a message with the next
    lower number follows the answer.
    """

    def __init__(self) -> None:
        self._next: asyncio.Queue[tuple[str, str]] = asyncio.Queue()

    def report_start(self, turn: Turn) -> None:
        report("began", session=_session(turn), attempt=turn.attempt)

    def report_end(self, turn: Turn) -> None:
        report("ended", session=_session(turn))
        if (remaining := int(turn.newest_message.text)) > 0:
            self._next.put_nowait((_session(turn), str(remaining - 1)))

    def report_cancel(self, turn: Turn) -> None:
        report("cancelled", session=_session(turn))

    async def accept_following(self, services: WorkerServices) -> None:
        while True:
            await services.inbox.accept(build_message(*await self._next.get()))

    async def handle_command(self, services: WorkerServices, line: bytes) -> None:
        command = json.loads(line)
        if "say" in command:
            await services.inbox.accept(build_message(command["say"], command["text"]))
        else:
            async with services.database.write() as connection:
                await services.turns.request_cancel(connection, f"memory:{command['stop']}", CancelReason.STOP)


def _session(turn: Turn) -> str:
    return turn.session_id.removeprefix("memory:")


async def main(url: str, model_seconds: float, limit: int) -> None:
    handler, lines = StdinCommandHandler(), asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    async with run_worker(
        url,
        model_seconds=model_seconds,
        limit=limit,
        on_start=handler.report_start,
        on_end=handler.report_end,
        on_cancel=handler.report_cancel,
    ) as services:
        accepters = [asyncio.create_task(handler.accept_following(services), name="accepter") for _ in range(4)]
        report("ready")
        async with LoopMonitor() as loop:
            while line := await lines.readline():
                await handler.handle_command(services, line)
        for accepter in accepters:
            accepter.cancel()
        await asyncio.wait(accepters)
    report("stopped", cpu=loop.cpu * loop.wall, max_delay=loop.delay_quantile(1), max_busy=loop.max_busy)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], float(sys.argv[2]), int(sys.argv[3])))
