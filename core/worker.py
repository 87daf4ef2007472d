"""The worker: takes waiting messages and has each answered, one at a time in a session, many sessions at once."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from core.errors import StoreError
from core.secrets import traced
from core.turns import Turn, Turns

log = logging.getLogger(__name__)

#: Runs one turn to its end.
Answer = Callable[[Turn], Awaitable[None]]

#: What a reply that is told to close has for its last word.
CLOSING_SECONDS = 5.0

#: Seconds between the beginnings of two turns that were claimed together. The first step of 200 turns in the same pass
#: of the event loop would hold it for 40 ms, and the whole of each one's beginning takes longer than this anyway.
SPACING = 0.005

RESET = "reset"
SHUTDOWN = "shutdown"


class Worker:
    """Claims turns and runs them.

    Args:
        answer: runs one turn. Cancelled with `RESET` or `SHUTDOWN` as the message, it says so in the reply
            and ends the turn before it lets go.
        limit: how many turns may run at once.
        poll: seconds after which the inbox is looked at without being told to.
        at_rest: called whenever the last turn that ran has ended: the time for what would hold up a turn.
    """

    def __init__(
        self,
        turns: Turns,
        answer: Answer,
        *,
        limit: int = 100,
        poll: float = 5.0,
        at_rest: Callable[[], object] = lambda: None,
    ) -> None:
        self._turns = turns
        self._answer = answer
        self._limit = limit
        self._poll = poll
        self._at_rest = at_rest
        self._wake = asyncio.Event()
        self._stopping = False
        self._claiming = asyncio.Lock()
        self._running: dict[str, asyncio.Task[None]] = {}
        self._recovering: set[asyncio.Task[None]] = set()

    def wake(self) -> None:
        """There may be something to do."""
        self._wake.set()

    def cancel(self, session_id: str, reason: str) -> None:
        """End the turn that runs in this session, if one does."""
        if task := self._running.get(session_id):
            _cancel(task, reason)

    def take_up(self, left: Sequence[Turn], recover: Answer) -> None:
        """End the turns that a process which is gone has left; their sessions go on behind them.

        Args:
            recover: ends one turn.
        """
        for turn in left:
            task = asyncio.create_task(self._end(turn, recover), name=f"recovery of turn {turn.id}")
            self._recovering.add(task)
            task.add_done_callback(self._recovering.discard)

    async def run(self) -> None:
        """Work until `stop`."""
        while not self._stopping:
            self._wake.clear()
            try:
                await self._claim()
            except StoreError as error:
                log.error("cannot look for waiting messages; trying again in %s s: %s", self._poll, traced(error))
            try:
                await asyncio.wait_for(self._wake.wait(), self._poll)
            except TimeoutError:
                continue

    async def stop(self, grace: float) -> None:
        """Begin nothing more, and let what runs end.

        Args:
            grace: seconds after which what still runs is told to close its reply.
        """
        self._stopping = True
        self._wake.set()
        async with self._claiming:  # what is being claimed runs as well
            running = [*self._running.values(), *self._recovering]
        if not running:
            return
        _, late = await asyncio.wait(running, timeout=grace)
        for task in late:
            _cancel(task, SHUTDOWN)
        if late:
            await asyncio.wait(late, timeout=CLOSING_SECONDS)

    async def _claim(self) -> None:
        async with self._claiming:
            while not self._stopping and (free := self._limit - len(self._running)) > 0:
                claimed = await self._turns.claim(free)
                for place, turn in enumerate(claimed):
                    task = asyncio.create_task(self._run(turn, place * SPACING), name=f"turn {turn.id}")
                    self._running[turn.session_id] = task
                if not claimed:
                    return

    async def _run(self, turn: Turn, after: float) -> None:
        try:
            await _sleep(after)
            await self._end(turn, self._answer)
        finally:
            del self._running[turn.session_id]
            self._wake.set()
            if not self._running:
                self._at_rest()

    async def _end(self, turn: Turn, work: Answer) -> None:
        try:
            await work(turn)
        except asyncio.CancelledError:
            log.info("turn %s was cancelled", turn.id)
        except Exception as error:
            log.error("turn %s failed: %s", turn.id, traced(error))
        finally:
            self._wake.set()  # its session is free


async def _sleep(seconds: float) -> None:
    """Sleep; who is cancelled meanwhile hears of it at his next `await`, where he knows what to do about it."""
    try:
        await asyncio.sleep(seconds)
    except asyncio.CancelledError as stop:
        if (task := asyncio.current_task()) is not None:
            task.cancel(*stop.args)


def _cancel(task: asyncio.Task[None], reason: str) -> None:
    """Cancel once: a second time would break off the word that the first one has in the reply."""
    if not task.cancelling():
        task.cancel(reason)
