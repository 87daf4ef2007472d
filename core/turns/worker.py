"""The worker loop: claims turns and runs many at once, at most one per session."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from core.concurrency import event_loop
from core.concurrency.tasks import run_every
from core.errors import StoreError, TurnLostError
from core.observability.secret_redaction import describe_failure, format_error
from core.observability.tracing import trace_turn
from core.turns.store import TurnStore
from core.turns.turn import CancelReason, Turn

log = logging.getLogger(__name__)

#: Runs one turn to its end.
TurnRunner = Callable[[Turn], Awaitable[None]]

#: Seconds in which a turn that `stop` has cancelled may end its reply.
CANCEL_GRACE_SECONDS = 6.0

#: The first and the longest pause before this worker claims a turn again whose run raised an error, in seconds. The
#: pause doubles with each claim.
BACKOFF_SECONDS, MAX_BACKOFF_SECONDS = 0.1, 30.0

#: Seconds between the starts of two turns of one claim. Without them, 50 turns that start in one iteration of the event
#: loop hold it for 80 to 200 ms (`make bench-deltas STREAMS=50`).
TURN_SPACING_SECONDS = 0.002

#: Seconds from a turn's end to the claim of the next turns. Turns that end together share one claim: 300 of them on
#: SQLite end in 1.3 s instead of 1.5 (`make bench-turns`).
END_CLAIM_SECONDS = 0.02

#: Seconds between two reads of the database for cancelled and lost turns: a notification may be lost.
CANCEL_CHECK_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class _Run:
    """A turn that runs in this process; `wake_count` is `Worker._wake_count` before the claim of the turn."""

    turn: Turn
    task: asyncio.Task[None]
    wake_count: int

    def cancel(self, reason: CancelReason) -> None:
        """Cancel the task of the turn, with `reason` as the message of the cancellation.

        Nothing happens if the task is being cancelled: a second cancellation would interrupt the message that ends the
        reply. Nothing happens either if the turn was claimed with this cancel reason.
        """
        if reason != self.turn.cancel:  # a task that is cancelled before it has begun never begins
            asyncio.get_running_loop().call_soon(self._cancel, reason)

    def _cancel(self, reason: CancelReason) -> None:
        if not self.task.cancelling():
            self.task.cancel(reason)


class Worker:
    """Loop that claims turns, and runs each in its own task.

    At most `limit` turns run at once, and half as many that no message of a person began. Turns are claimed every
    `poll` seconds when no notification comes.
    """

    def __init__(
        self,
        turns: TurnStore,
        *,
        limit: int = 100,
        poll: float = 3.0,
    ) -> None:
        self._turns = turns
        self._limit = limit
        self._poll = poll
        self._wake = asyncio.Event()
        self._wake_count = 0
        #: Number of calls of `wake` without a session, and the sessions in which messages may wait for a running turn.
        self._broad_wake_count = 0
        self._woken_sessions = set[str]()
        self._end_claim_at = 0.0  # of the event loop's clock
        self._stopping = asyncio.Event()
        self._is_closing = False
        self._ended = asyncio.Event()
        self._claiming = asyncio.Lock()
        self._running: dict[str, _Run] = {}

    @property
    def running_count(self) -> int:
        return len(self._running)

    def wake(self, session_id: str | None = None) -> None:
        """Make the loop claim turns now instead of after `poll` seconds.

        Messages may wait in the session, or in any one if it is None.
        """
        self._wake_count += 1
        self._wake.set()
        if session_id is not None:
            self._woken_sessions.add(session_id)
        else:
            self._broad_wake_count += 1
            self._woken_sessions.update(run.turn.session_id for run in self._running.values())

    def take_wake(self, session_id: str) -> bool:
        """Return whether `wake` was called for a session since the claim of its running turn, or the last call."""
        is_woken = session_id in self._woken_sessions
        self._woken_sessions.discard(session_id)
        return is_woken

    def cancel(self, turn_id: str, reason: CancelReason) -> None:
        """Cancel the task of a turn, if the turn runs in this process; the reason is the message of the cancellation.

        A task that is being cancelled, or whose turn was claimed with this cancel reason, is left alone.
        """
        if run := self._running.get(turn_id):
            run.cancel(reason)

    def cancel_and_wake(self, turn_id: str | None, reason: CancelReason) -> None:
        if turn_id is not None:
            self.cancel(turn_id, reason)
        self.wake()

    async def run(self, answer: TurnRunner) -> None:
        """Claim and run turns, and cancel turns on request, until `stop` has finished.

        A claim that fails is logged, and repeated after `poll` seconds.

        Args:
            answer: runs one turn. The message of its cancellation is a `CancelReason`, for which it must do this: hand
                the turn back for `SHUTDOWN`, write nothing for `LEASE_LOST`, and end the turn with a note in the reply
                for any other reason. An error that it raises is logged, and the turn is run again after a pause.
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
                    await self._claim(answer)
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
        """Stop claiming turns, wait for the running ones, and after `grace` seconds cancel the unfinished ones.

        A cancelled turn is handed back, so that another worker can claim it. Turns that have not ended within
        `CANCEL_GRACE_SECONDS` after their cancellation are logged, and their tasks go on.
        """
        self._stopping.set()
        self._wake.set()
        until = event_loop.now() + grace
        await self._wait_for_claim(until)  # turns of a claim in progress run as well
        if running := list(self._running.values()):
            await asyncio.wait([run.task for run in running], timeout=max(0.0, until - event_loop.now()))
        self._is_closing = True
        closed = event_loop.now() + CANCEL_GRACE_SECONDS
        if unfinished := list(self._running.values()):
            for run in unfinished:
                run.cancel(CancelReason.SHUTDOWN)
            await asyncio.wait([run.task for run in unfinished], timeout=CANCEL_GRACE_SECONDS)
        await self._wait_for_claim(closed)
        if self._running:
            log.error(
                "not handed back in time, so another worker continues them: the turns %s", ", ".join(self._running)
            )
        self._ended.set()

    async def _wait_for_claim(self, until: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout_at(until), self._claiming:
                pass

    async def _claim(self, answer: TurnRunner) -> None:
        """Claim turns and start a task for each, until `limit` run or none is left.

        Turns that are claimed after `stop` has cancelled the running ones are handed back.
        """
        async with self._claiming:
            while not self._stopping.is_set() and (free := self._limit - len(self._running)) > 0:
                wake_count = self._wake_count
                broad_wake_count = self._broad_wake_count
                self._woken_sessions.intersection_update([run.turn.session_id for run in self._running.values()])
                triggered = sum(run.turn.is_triggered for run in self._running.values())
                triggered_limit = max(0, self._limit // 2 - triggered)
                claimed = await self._turns.claim(free, running=list(self._running), triggered_limit=triggered_limit)
                for turn in claimed:
                    if self._is_closing:
                        await self._hand_back(turn)
                        continue
                    task = asyncio.create_task(self._run(turn, answer), name=f"turn {turn.id}")
                    self._running[turn.id] = _Run(turn, task, wake_count)
                    if broad_wake_count != self._broad_wake_count:
                        self._woken_sessions.add(turn.session_id)
                    await asyncio.sleep(TURN_SPACING_SECONDS)
                if len(claimed) < free:
                    return

    async def _watch(self) -> None:
        """Cancel the tasks of turns that are stored as cancelled, or that two reads in a row do not find as owned."""
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

    async def _run(self, turn: Turn, answer: TurnRunner) -> None:
        with trace_turn(turn.id, turn.session_id, turn.newest_message.platform, turn.kind):
            await self._run_here(turn, answer)

    async def _run_here(self, turn: Turn, answer: TurnRunner) -> None:
        is_claim_due = True
        try:
            try:
                await answer(turn)
                is_claim_due = self._may_wait_for_end(self._running[turn.id])
            except TurnLostError:
                log.warning("turn %s belongs to another worker", turn.id)
            except Exception as error:
                line, details = describe_failure(error)
                log.error("turn %s failed: %s", turn.id, line, extra=details)
                await self._back_off(turn)
        except asyncio.CancelledError as stop:
            log.info("turn %s was cancelled", turn.id)
            # the cancellation may come where the runner does not handle it
            if self._stopping.is_set() and stop.args != (CancelReason.LEASE_LOST,):
                await self._hand_back(turn)
        finally:
            del self._running[turn.id]
            if is_claim_due:
                self._claim_after_end()

    def _may_wait_for_end(self, run: _Run) -> bool:
        """Return whether a message of the turn's session, or another session, may wait for the end of a turn.

        Other sessions wait while `limit` turns run. A message that came after the claim of the turn has called `wake`.
        """
        is_full = len(self._running) >= self._limit or run.turn.is_triggered
        return is_full or run.turn.may_have_followers or run.wake_count != self._wake_count

    def _claim_after_end(self) -> None:
        """Make the loop claim turns in `END_CLAIM_SECONDS`, unless such a claim of an earlier end is still due."""
        if self._end_claim_at <= event_loop.now():
            self._end_claim_at = event_loop.now() + END_CLAIM_SECONDS
            asyncio.get_running_loop().call_later(END_CLAIM_SECONDS, self._wake.set)

    async def _back_off(self, turn: Turn) -> None:
        """Pause a turn whose run raised an error, before it is run again.

        During the pause, the worker owns the turn, and counts it as running. If the worker stops meanwhile, the turn is
        handed back, so that any worker may claim it.
        """
        seconds = min(MAX_BACKOFF_SECONDS, BACKOFF_SECONDS * 2 ** min(turn.claim_number - 1, 10))
        with suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), seconds)
            await self._hand_back(turn)

    async def _hand_back(self, turn: Turn) -> None:
        try:
            with suppress(TurnLostError):  # or it has ended
                await self._turns.hand_back(turn, turn.partial_text)
        except StoreError as error:
            log.error("turn %s cannot be handed back, so another worker continues it: %s", turn.id, format_error(error))
