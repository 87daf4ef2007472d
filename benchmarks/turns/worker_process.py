"""Worker in a process of its own: `python -m benchmarks.turns.worker_process URL MODEL_SECONDS LIMIT`.

It reads orders from standard input and writes reports to standard output, as JSON lines.

    {"say": SESSION, "text": TEXT}     accept a message; a number as TEXT is the count of further messages
    {"stop": SESSION}                  cancel the session's running turn
"""

import asyncio
import json
import sys
import time
from typing import Any

from benchmarks.replies.loop import Loop
from benchmarks.turns.worker import Crew, at_work, message
from core.turns.turn import CancelReason, Turn


def tell(what: str, **more: Any) -> None:
    print(json.dumps({"what": what, "at": time.time(), **more}), flush=True)


class Hand:
    """Worker that accepts a session's next message after the answer to the former one."""

    def __init__(self) -> None:
        self._next: asyncio.Queue[tuple[str, str]] = asyncio.Queue()

    def began(self, turn: Turn) -> None:
        tell("began", session=_session(turn), attempt=turn.attempt)

    def ended(self, turn: Turn) -> None:
        tell("ended", session=_session(turn))
        if (more := int(turn.newest_message.text)) > 0:
            self._next.put_nowait((_session(turn), str(more - 1)))

    def cancelled(self, turn: Turn) -> None:
        tell("cancelled", session=_session(turn))

    async def say_on(self, crew: Crew) -> None:
        while True:
            await crew.inbox.accept(message(*await self._next.get()))

    async def obey(self, crew: Crew, line: bytes) -> None:
        told = json.loads(line)
        if "say" in told:
            await crew.inbox.accept(message(told["say"], told["text"]))
        else:
            async with crew.database.write() as connection:
                await crew.turns.request_cancel(connection, f"memory:{told['stop']}", CancelReason.STOP)


def _session(turn: Turn) -> str:
    return turn.session_id.removeprefix("memory:")


async def main(url: str, seconds: float, limit: int) -> None:
    hand, lines = Hand(), asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    async with at_work(
        url, seconds=seconds, limit=limit, began=hand.began, ended=hand.ended, cancelled=hand.cancelled
    ) as crew:
        sayers = [asyncio.create_task(hand.say_on(crew), name="sayer") for _ in range(4)]
        tell("ready")
        async with Loop() as loop:
            while line := await lines.readline():
                await hand.obey(crew, line)
        for sayer in sayers:
            sayer.cancel()
        await asyncio.wait(sayers)
    tell("over", cpu=loop.cpu * loop.wall, late=loop.late(1), busiest=loop.busiest)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], float(sys.argv[2]), int(sys.argv[3])))
