"""The worker: takes waiting messages and has each answered, one at a time in a session, many sessions at once."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from core.concurrency import event_loop
from core.concurrency.tasks import run_every
from core.errors import StoreError, TurnLostError
from core.observability.tracing import running
from core.secret_redaction import traced
from core.turns.store import LOST, SHUTDOWN, Turns
from core.turns.turn import Turn

log = logging.getLogger(__name__)

#: Runs one turn to its end.
Answer = Callable[[Turn], Awaitable[None]]

#: What a turn that is told to close has for its last word.
CLOSING_SECONDS = 6.0

#: Seconds before a turn that has failed here, and not ended, is taken up again here; each time twice as many, at most.
PAUSE, LONGEST_PAUSE = 0.1, 30.0

#: Seconds between the starts of two turns of one claim. Without them, 50 turns that start in one iteration of the event
#: loop hold it for 80 to 200 ms (`make bench-deltas STREAMS=50`).
SPACING_SECONDS = 0.002

#: Seconds between two looks at what has become of the turns that run, should nobody have told.
WATCH = 1.0


@dataclass(frozen=True, slots=True)
class _Run:
    """A turn that runs here."""

    turn: Turn
    task: asyncio.Task[None]

    def cancel(self, reason: str) -> None:
        """Cancel once: a second time would break off the word that the first one has in the reply. Of the reason for
        which it was claimed to be ended, it knows.
        """
        if reason != self.turn.cancel:  # a task that is cancelled before it has begun never begins
            asyncio.get_running_loop().call_soon(self._cancel, reason)

    def _cancel(self, reason: str) -> None:
        if not self.task.cancelling():
            self.task.cancel(reason)


@dataclass(slots=True)
class _Failed:
    """A turn that failed here and did not end.

    Attributes:
        pause: runs until the turn is claimed again; None once it is over.
    """

    turn: Turn
    pause: asyncio.TimerHandle | None


class Worker:
    """Claims turns and runs them.

    Args:
        answer: runs one turn. Cancelled with `RESET` or `STOP` as the message, it says so in the reply and ends the
            turn before it lets go; with `SHUTDOWN`, it hands the turn back; with `LOST`, it says nothing.
        limit: how many turns may run at once.
        poll: seconds after which the inbox is looked at without being told to.
        at_rest: called once no turn has run for `rest` seconds: the time for what would hold up a turn. Who says the
            next thing as soon as he is answered does not wait for it.
    """

    def __init__(
        self,
        turns: Turns,
        answer: Answer,
        *,
        limit: int = 100,
        poll: float = 3.0,
        at_rest: Callable[[], object] = lambda: None,
        rest: float = 0.5,
    ) -> None:
        self._turns = turns
        self._answer = answer
        self._limit = limit
        self._poll = poll
        self._at_rest = at_rest
        self._rest = rest
        self._resting: asyncio.TimerHandle | None = None
        self._wake = asyncio.Event()
        self._runs = asyncio.Event()
        self._stopping = False
        self._is_closing = False
        self._ended = asyncio.Event()
        self._claiming = asyncio.Lock()
        self._running: dict[str, _Run] = {}
        self._failed: dict[str, _Failed] = {}  # until they are taken up again, here or elsewhere
        self._ahead: dict[str, str] = {}  # turns that were told to end while they may have been being claimed, and why

    @property
    def busy(self) -> int:
        """How many turns run."""
        return len(self._running)

    def wake(self) -> None:
        """There may be something to do."""
        self._wake.set()

    def cancel(self, turn_id: str, reason: str) -> None:
        """End a turn, if it runs here."""
        if run := self._running.get(turn_id):
            run.cancel(reason)
        elif turn_id in self._pausing():
            self._go_on(turn_id)
        elif self._claiming.locked():
            self._ahead[turn_id] = reason

    def end(self, turn_id: str | None, reason: str) -> None:
        """What there was to answer has become less: end a turn, if one was ended, and see what is to be done now."""
        if turn_id is not None:
            self.cancel(turn_id, reason)
        self.wake()

    async def run(self) -> None:
        """Work until `stop` has come to its end."""
        sides: list[Coroutine[Any, Any, None]] = [
            self._turns.hear(on_waiting=self.wake, on_cancelled=self.cancel),
            self._watch(),
        ]
        tasks = [asyncio.create_task(side, name="worker's side") for side in sides]
        try:
            while not self._stopping:
                self._wake.clear()
                try:
                    await self._claim()
                except Exception as error:  # whatever it is: it is no reason to answer nobody any more
                    log.error("cannot look for waiting messages; trying again in %s s: %s", self._poll, traced(error))
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._poll):
                        await self._wake.wait()
            await self._ended.wait()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    async def stop(self, grace: float) -> None:
        """Begin nothing more, and let what runs end.

        Args:
            grace: seconds after which what still runs is told to close its reply.
        """
        self._stopping = True
        self._wake.set()
        until = event_loop.now() + grace
        await self._claimed(until)  # what is being claimed runs as well
        await self._hand_back_failed(until)
        if running := list(self._running.values()):
            await asyncio.wait([run.task for run in running], timeout=max(0.0, until - event_loop.now()))
        self._is_closing = True
        closed = event_loop.now() + CLOSING_SECONDS
        if late := list(self._running.values()):
            for run in late:
                run.cancel(SHUTDOWN)
            await asyncio.wait([run.task for run in late], timeout=CLOSING_SECONDS)
        await self._claimed(closed)
        await self._hand_back_failed(closed)
        if left := [*self._running, *self._failed]:
            log.error("not handed back in time, and left to whoever works next: the turns %s", ", ".join(left))
        self._ended.set()

    async def _claimed(self, until: float) -> None:
        """Wait, until then (the loop's time), for what is being claimed."""
        with suppress(TimeoutError):
            async with asyncio.timeout_at(until), self._claiming:
                pass

    async def _claim(self) -> None:
        async with self._claiming:
            while not self._stopping and (free := self._limit - len(self._running)) > 0:
                rest = self._pausing()
                due = self._failed.keys() - rest
                claimed = await self._turns.claim(free, running=[*self._running, *rest])
                if claimed and self._resting is not None:
                    self._resting.cancel()
                for turn in claimed:
                    self._failed.pop(turn.id, None)
                for position, turn in enumerate(claimed):
                    if position:
                        await asyncio.sleep(SPACING_SECONDS)
                    if self._is_closing:
                        await self._hand_back(turn)
                        continue
                    task = asyncio.create_task(self._run(turn), name=f"turn {turn.id}")
                    run = self._running[turn.id] = _Run(turn, task)
                    self._runs.set()
                    if reason := self._ahead.get(turn.id):
                        run.cancel(reason)
                self._ahead.clear()
                if len(claimed) < free:
                    for turn_id in due:  # what is left of them is somebody else's
                        self._failed.pop(turn_id, None)
                    return

    async def _watch(self) -> None:
        """While turns run, cancel those that are to be cancelled and those that this worker has lost."""
        missed = set[str]()

        async def check() -> None:
            nonlocal missed
            await self._runs.wait()
            watched = set(self._running)
            known = await self._turns.running()
            for turn_id, reason in known.items():
                if reason is not None:
                    self.cancel(turn_id, reason)
            for turn_id in missed & watched - known.keys():  # missed once, it may just have come to its end
                self.cancel(turn_id, LOST)
            missed = watched - known.keys()

        await run_every(WATCH, check, what="the state of the running turns cannot be read")

    async def _run(self, turn: Turn) -> None:
        with running(turn.id, turn.session_id, turn.inbound.channel, turn.kind):
            await self._run_here(turn)

    async def _run_here(self, turn: Turn) -> None:
        try:
            await self._answer(turn)
        except asyncio.CancelledError as stop:
            log.info("turn %s was cancelled", turn.id)
            if self._stopping and stop.args != (LOST,):  # it may have been told where it was not ready for it
                await self._hand_back(turn)
        except TurnLostError:
            log.warning("turn %s is another worker's", turn.id)
        except Exception as error:
            log.error("turn %s failed: %s", turn.id, traced(error))
            seconds = min(LONGEST_PAUSE, PAUSE * 2 ** min(turn.claim - 1, 10))
            pause = asyncio.get_running_loop().call_later(seconds, self._go_on, turn.id)
            self._failed[turn.id] = _Failed(turn, pause)
        finally:
            del self._running[turn.id]
            self._wake.set()  # its session is free
            if not self._running:
                self._runs.clear()
                self._resting = asyncio.get_running_loop().call_later(self._rest, self._at_rest)

    def _pausing(self) -> set[str]:
        """The turns that have failed here, and are not to be taken up yet."""
        return {turn_id for turn_id, failed in self._failed.items() if failed.pause is not None}

    def _go_on(self, turn_id: str) -> None:
        """Have a turn be taken up again that has failed here, if it has not ended."""
        failed = self._failed[turn_id]
        if failed.pause is not None:
            failed.pause.cancel()
            failed.pause = None
        self._wake.set()

    async def _hand_back_failed(self, until: float) -> None:
        """Leave what has failed here to whoever works next, until then (the loop's time)."""
        with suppress(TimeoutError):
            async with asyncio.timeout_at(until):
                for turn_id, failed in [*self._failed.items()]:
                    await self._hand_back(failed.turn)
                    if failed.pause is not None:
                        failed.pause.cancel()
                    self._failed.pop(turn_id, None)  # a claim that was under way may have it

    async def _hand_back(self, turn: Turn) -> None:
        """Leave a turn to whoever works next that is not to be begun here any more."""
        try:
            with suppress(TurnLostError):  # or it has ended
                await self._turns.hand_back(turn, turn.said)
        except StoreError as error:
            log.error("turn %s is not handed back, and left to whoever works next: %s", turn.id, traced(error))
