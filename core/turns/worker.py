"""The worker loop: claims turns and runs them, one per session, many at once."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from core.concurrency import event_loop
from core.concurrency.tasks import run_every
from core.errors import StoreError, TurnLostError
from core.observability.tracing import trace_turn
from core.secret_redaction import format_error
from core.turns.store import TurnStore
from core.turns.turn import CancelReason, Turn

log = logging.getLogger(__name__)

#: Runs one turn to its end.
TurnRunner = Callable[[Turn], Awaitable[None]]

#: Seconds in which a cancelled turn may close its reply at a stop.
CLOSING_SECONDS = 6.0

#: Pauses before this worker claims a failed turn again, doubled each time: the first, and the longest.
BACKOFF_SECONDS, MAX_BACKOFF_SECONDS = 0.1, 30.0

#: Seconds between the starts of two turns of one claim. Without them, 50 turns that start in one iteration of the event
#: loop hold it for 80 to 200 ms (`make bench-deltas STREAMS=50`).
SPACING_SECONDS = 0.002

#: Seconds between two checks for cancelled and lost turns, beside the notifications.
CANCEL_CHECK_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class _Run:
    """A turn that runs in this process, with its task."""

    turn: Turn
    task: asyncio.Task[None]

    def cancel(self, reason: CancelReason) -> None:
        """Cancel the task with `reason` as its message, unless it is being cancelled.

        A second cancellation would interrupt the final message of the first. A turn that was claimed with this reason
        already knows of it.
        """
        if reason != self.turn.cancel:  # a task that is cancelled before it has begun never begins
            asyncio.get_running_loop().call_soon(self._cancel, reason)

    def _cancel(self, reason: CancelReason) -> None:
        if not self.task.cancelling():
            self.task.cancel(reason)


class Worker:
    """Loop that claims turns, and runs each in its own task.

    Args:
        answer: runs one turn. The message of its cancellation is a `CancelReason`. For `SHUTDOWN` it hands the turn
            back, for `LEASE_LOST` it does nothing, and for each other reason it says so in the reply and ends the
            turn.
        limit: the most turns that run at once.
        poll: seconds between two claims when no notification comes.
    """

    def __init__(
        self,
        turns: TurnStore,
        answer: TurnRunner,
        *,
        limit: int = 100,
        poll: float = 3.0,
    ) -> None:
        self._turns = turns
        self._answer = answer
        self._limit = limit
        self._poll = poll
        self._wake = asyncio.Event()
        self._stopping = asyncio.Event()
        self._is_closing = False
        self._ended = asyncio.Event()
        self._claiming = asyncio.Lock()
        self._running: dict[str, _Run] = {}

    @property
    def running_count(self) -> int:
        """The number of running turns."""
        return len(self._running)

    def wake(self) -> None:
        """Make the loop claim turns now instead of after `poll` seconds."""
        self._wake.set()

    def cancel(self, turn_id: str, reason: CancelReason) -> None:
        """Cancel a turn, if it runs in this process."""
        if run := self._running.get(turn_id):
            run.cancel(reason)

    def cancel_and_wake(self, turn_id: str | None, reason: CancelReason) -> None:
        """Cancel a turn that runs in this process, and make the loop claim turns now.

        Args:
            turn_id: None if there is nothing to cancel.
        """
        if turn_id is not None:
            self.cancel(turn_id, reason)
        self.wake()

    async def run(self) -> None:
        """Claim and run turns until `stop` has finished.

        A claim that fails is logged and repeated.
        """
        sides: list[Coroutine[Any, Any, None]] = [
            self._turns.listen(on_waiting=self.wake, on_cancelled=self.cancel),
            self._watch(),
        ]
        tasks = [asyncio.create_task(side, name="worker's side") for side in sides]
        try:
            while not self._stopping.is_set():
                self._wake.clear()
                try:
                    await self._claim()
                except Exception as error:  # no error may end the loop
                    log.error("turns cannot be claimed; retry in %s s: %s", self._poll, format_error(error))
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._poll):
                        await self._wake.wait()
            await self._ended.wait()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    async def stop(self, grace: float) -> None:
        """Claim no more turns, wait for the running ones, and hand back the late ones.

        Args:
            grace: seconds until the running turns are cancelled; they then have `CLOSING_SECONDS` to hand themselves
                back.
        """
        self._stopping.set()
        self._wake.set()
        until = event_loop.now() + grace
        await self._wait_for_claim(until)  # turns of a claim in progress run as well
        if running := list(self._running.values()):
            await asyncio.wait([run.task for run in running], timeout=max(0.0, until - event_loop.now()))
        self._is_closing = True
        closed = event_loop.now() + CLOSING_SECONDS
        if unfinished := list(self._running.values()):
            for run in unfinished:
                run.cancel(CancelReason.SHUTDOWN)
            await asyncio.wait([run.task for run in unfinished], timeout=CLOSING_SECONDS)
        await self._wait_for_claim(closed)
        if self._running:
            log.error(
                "not handed back in time, so another worker continues them: the turns %s", ", ".join(self._running)
            )
        self._ended.set()

    async def _wait_for_claim(self, until: float) -> None:
        """Wait until no claim is in progress, at most until this time of the loop's clock."""
        with suppress(TimeoutError):
            async with asyncio.timeout_at(until), self._claiming:
                pass

    async def _claim(self) -> None:
        """Claim turns and start a task for each, until `limit` run or nothing waits."""
        async with self._claiming:
            while not self._stopping.is_set() and (free := self._limit - len(self._running)) > 0:
                claimed = await self._turns.claim(free, running=list(self._running))
                for turn in claimed:
                    if self._is_closing:
                        await self._hand_back(turn)
                        continue
                    task = asyncio.create_task(self._run(turn), name=f"turn {turn.id}")
                    self._running[turn.id] = _Run(turn, task)
                    await asyncio.sleep(SPACING_SECONDS)
                if len(claimed) < free:
                    return

    async def _watch(self) -> None:
        """Cancel running turns that are marked as cancelled or that another worker owns.

        It runs until it is cancelled.
        """
        missed = set[str]()

        async def check() -> None:
            nonlocal missed
            watched = set(self._running)
            known = await self._turns.list_owned() if watched else {}
            for turn_id, reason in known.items():
                if reason is not None:
                    self.cancel(turn_id, reason)
            for turn_id in missed & watched - known.keys():  # a turn that is missing once may just have ended
                self.cancel(turn_id, CancelReason.LEASE_LOST)
            missed = watched - known.keys()

        await run_every(CANCEL_CHECK_SECONDS, check, failure="the state of the running turns cannot be read")

    async def _run(self, turn: Turn) -> None:
        with trace_turn(turn.id, turn.session_id, turn.newest_message.channel, turn.kind):
            await self._run_here(turn)

    async def _run_here(self, turn: Turn) -> None:
        try:
            try:
                await self._answer(turn)
            except TurnLostError:
                log.warning("turn %s belongs to another worker", turn.id)
            except Exception as error:
                log.error("turn %s failed: %s", turn.id, format_error(error))
                await self._back_off(turn)
        except asyncio.CancelledError as stop:
            log.info("turn %s was cancelled", turn.id)
            # the cancellation may come where the runner does not handle it
            if self._stopping.is_set() and stop.args != (CancelReason.LEASE_LOST,):
                await self._hand_back(turn)
        finally:
            del self._running[turn.id]
            self._wake.set()  # the session is idle

    async def _back_off(self, turn: Turn) -> None:
        """Wait before a failed turn that is still active is claimed again.

        At a stop, hand it back instead.

        The pause doubles with each claim, from `BACKOFF_SECONDS` to `MAX_BACKOFF_SECONDS`.
        """
        seconds = min(MAX_BACKOFF_SECONDS, BACKOFF_SECONDS * 2 ** min(turn.claim_number - 1, 10))
        with suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), seconds)
            await self._hand_back(turn)

    async def _hand_back(self, turn: Turn) -> None:
        """Release a turn for the next claim; a failure is logged."""
        try:
            with suppress(TurnLostError):  # or it has ended
                await self._turns.hand_back(turn, turn.partial_text)
        except StoreError as error:
            log.error("turn %s cannot be handed back, so another worker continues it: %s", turn.id, format_error(error))
