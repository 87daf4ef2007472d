"""Turns in the database: claims, writes by the owning worker, cancellation, end.

`core.store.turn_states` has the states of a turn and their order. A turn that has ended is never run again: a rerun of
its messages is a new turn in the same reply. A `retry` continues from the stored events of the failed turn, a
`regenerate` answers the same prompt again, and a `revise` answers the edited prompt. A turn of the kind `decision`
continues a run that asked people for approvals or answers, and has a reply of its own.

A session has at most one turn that is `queued`, `running` or `answered`: an index of the database ensures it.

A turn belongs to the worker that has claimed it, while the lease of that worker lasts. After that, any worker may claim
the turn, answers the same messages, and continues from the stored events. Later writes of the former
worker fail. `Turn.attempt` counts up when another worker claims the turn after a lease expired, so that a turn that
kills its workers is given up. It does not count up for a turn that was handed back, or that its own worker claims
again.

Writes and reads of a turn are retried while the database fails. If it fails longer, the caller gets the error, and the
turn is claimed again when the database is back.
"""

import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import count
from sys import maxsize
from typing import Any

import sqlalchemy as sa
from cachetools import LRUCache
from sqlalchemy.ext.asyncio import AsyncConnection

from core.observability import tracing
from core.sessions.agent_routing import AgentRouter
from core.sessions.resume import discard_run, is_prompt_stored
from core.store.database import Database
from core.store.notify import NotificationBus
from core.store.schema import inbox, messages, turns
from core.store.turn_states import EndState, State, states_before
from core.store.workers.fencing import OWNS_TURN, FencingToken
from core.store.workers.lease import Lease
from core.turns.claims import claim_turns
from core.turns.queries import RunAuthors, get_run_authors, is_active
from core.turns.turn import CancelReason, Turn

log = logging.getLogger(__name__)

#: The most people whose last start of a turn a worker remembers; other people come first in the round robin.
MAX_SERVED = 1_000


def _update_turn(returning: sa.ColumnElement[Any] = turns.c.id, **values: Any) -> sa.Update:
    """Return the `UPDATE` of a turn that this worker owns, in one of some states.

    The bind parameters are those of `OWNS_TURN`, and `states`. Without a matching turn it changes and returns no row.
    """
    is_writable = OWNS_TURN & turns.c.state.in_(sa.bindparam("states", expanding=True))
    return sa.update(turns).where(is_writable).values(values).returning(returning)


def _parameter(column: sa.Column[Any]) -> sa.BindParameter[Any]:
    return sa.bindparam(f"new_{column.name}", type_=column.type)


def _to_parameters(fence: FencingToken, states: Collection[State], values: Mapping[str, Any]) -> dict[str, Any]:
    return {**fence.values, "states": states, **{f"new_{column}": value for column, value in values.items()}}


_IS_RESET = turns.c.cancel_reason == CancelReason.RESET
_IS_DELETED = turns.c.cancel_reason == CancelReason.MESSAGE_DELETED

# Statements of every turn, built once: that takes longer than to run them.
_SAVE_CHUNKS = _update_turn(chunks=_parameter(turns.c.chunks))
_SAVE_ANSWER = _update_turn(
    state="answered",
    text=_parameter(turns.c.text),
    usage=_parameter(turns.c.usage),
    run_record=_parameter(turns.c.run_record),
)
_END = _update_turn(
    returning=turns.c.cancel_reason,
    state=_parameter(turns.c.state),
    error=_parameter(turns.c.error),
    finished_at=_parameter(turns.c.finished_at),
    usage=sa.func.coalesce(_parameter(turns.c.usage), turns.c.usage),
    text=sa.case((_IS_RESET, None), else_=turns.c.text),
    run_record=sa.case(
        (_IS_RESET | _IS_DELETED, None), else_=sa.func.coalesce(_parameter(turns.c.run_record), turns.c.run_record)
    ),
)
#: `_END` of a turn without a cancel reason: nothing else is written then, so it needs no transaction.
_END_UNCANCELLED = _END.where(turns.c.cancel_reason.is_(None))

Json = Mapping[str, Any]


class TurnStore:
    """Reads and writes of the `turns` table by one worker.

    A write to a turn raises `TurnLostError` once another worker has claimed that turn. Methods with a `turn` are
    retried while the database is unavailable; after 90 s they raise `StoreError`.
    """

    def __init__(self, database: Database, lease: Lease, agents: AgentRouter) -> None:
        self._database = database
        self._lease = lease
        self.agents = agents
        self._notices = NotificationBus(database)
        self._served: LRUCache[str, int] = LRUCache(MAX_SERVED)  # by author, the number of the newest turn
        self._turn_numbers = count(1)

    @property
    def worker_id(self) -> str:
        return self._lease.worker_id

    def fencing_token(self, turn: Turn) -> FencingToken:
        return FencingToken(turn.id, self._lease.worker_id, turn.claim_number)

    async def claim(self, limit: int, *, running: Collection[str] = (), triggered_limit: int = maxsize) -> list[Turn]:
        """Claim abandoned turns, except those of `running`, and a new turn for each idle session with messages.

        New turns begin round robin over people: many prompts of one person delay another person by at most one turn.
        At most `triggered_limit` new turns are such that no message began.
        """
        claimed = await claim_turns(
            self._database,
            self._lease,
            self.agents,
            limit,
            running=running,
            served=self._served,
            triggered_limit=triggered_limit,
        )
        for turn in claimed:
            number = next(self._turn_numbers)
            self._served.update((message.author, number) for message in turn.messages)
        return claimed

    async def list_owned(self) -> dict[str, CancelReason | None]:
        """Return the cancel reason of each active turn that this worker owns, by turn id.

        A worker owns a turn from its claim until it hands the turn back, or another worker claims the turn.
        """
        owned = sa.select(turns.c.id, turns.c.cancel_reason).where(
            is_active(turns), turns.c.owner == self._lease.worker_id
        )
        async with self._database.read() as connection:
            return {
                row.id: row.cancel_reason and CancelReason(row.cancel_reason) for row in await connection.execute(owned)
            }

    async def check_owned(self, turn: Turn) -> None:
        """Raise `TurnLostError` if another worker has claimed the turn.

        The row of the turn is read only if this worker's lease may have ended: see `Lease.may_have_ended`.
        """
        if self._lease.may_have_ended:
            await self._database.read_with_retries(self.fencing_token(turn).check, operation=f"turn {turn.id}")

    async def has_stored_prompt(self, turn: Turn) -> bool:
        """Return whether the history has the user message of the run `turn.origin`."""
        marked = sa.select(is_prompt_stored(turn.session_id, turn.generation, turn.origin))
        return bool(
            await self._database.read_with_retries(
                lambda connection: connection.scalar(marked), operation=f"turn {turn.id}"
            )
        )

    async def list_history_files(self, turn: Turn) -> set[str]:
        """Return the platform's ids of the files in the history of a turn's session that no summary covers."""
        c = messages.c
        in_session = messages.c.session == turn.session_id
        summarized = sa.select(sa.func.coalesce(sa.func.max(c.summarized_id), 0)).where(in_session)
        query = sa.select(c.files).where(in_session, c.generation == turn.generation, c.files.is_not(None))
        rows = await self._database.run_with_retries(
            query.where(c.id > summarized.scalar_subquery()), operation=f"turn {turn.id}"
        )
        return {file["id"] for row in rows for file in row.files}

    async def get_prompt_authors(self, turn: Turn) -> set[str] | None:
        """Return the platform's ids of the authors of the stored user message of the run `turn.origin`.

        If its authors are unknown, the result has those of the turn.
        """
        is_prompt = messages.c.role == "user", messages.c.invocation_id == turn.origin
        in_generation = messages.c.session == turn.session_id, messages.c.generation == turn.generation
        query = sa.select(messages.c.attribution).where(*in_generation, *is_prompt).order_by(messages.c.id).limit(1)
        rows = await self._database.run_with_retries(query, operation=f"turn {turn.id}")
        if not rows:
            return None
        attribution = rows[0].attribution
        known = {author for author, _ in attribution["parts"] if author} if attribution else set[str]()
        return known or {message.author for message in turn.messages}

    async def get_run_authors(self, turn: Turn) -> RunAuthors:
        """Return the people whose words are in a turn's run: see `core.turns.queries.get_run_authors`."""
        run = turn.run_id
        return await self._database.read_with_retries(
            lambda connection: get_run_authors(connection, turn.session_id, run), operation=f"turn {turn.id}"
        )

    async def save_message_ids(self, turn: Turn, chunks: Sequence[str]) -> None:
        """Replace the stored ids of the messages that show the reply, in their order."""
        await self._update(turn, ("running", "answered"), _SAVE_CHUNKS, chunks=list(chunks))

    async def save_answer(
        self, turn: Turn, text: str, usage: Mapping[str, Any], run_record: Json | None = None
    ) -> None:
        """Store the final text and set the state to `answered`, before the text is shown."""
        values = {"text": text, "usage": dict(usage), "run_record": run_record}
        await self._update(turn, states_before("answered"), _SAVE_ANSWER, **values)

    async def hand_back(self, turn: Turn, text: str = "") -> None:
        """Release the turn, so that any worker may claim it; notify the other workers.

        A running turn gets the state `queued`; a turn with a final text stays `answered`. The next claim counts no
        attempt. `text` is what the reply shows so far, stored for the next worker; a stored final text stays.
        """
        is_running = turns.c.state == "running"
        release = _update_turn(
            usage=turn.meter.to_json() or turns.c.usage,
            text=sa.case((is_running, text or None), else_=turns.c.text),
            state=sa.case((is_running, "queued"), else_=turns.c.state),
            owner=None,
        )
        await self._update(turn, ("running", "answered"), release)
        tracing.record_turn_end("handed back")
        await self._notices.notify_now(self._lease.worker_id)

    async def request_cancel(self, connection: AsyncConnection, session_id: str, reason: CancelReason) -> str | None:
        """Store a cancel reason in the active turn of a session, notify all workers, and return the turn's id.

        Both happen in the caller's transaction; the worker that runs the turn then cancels it. An earlier reason is
        replaced only by `RESET`. `STOP` does not cancel a turn with a stored final text. The id is also returned if the
        turn had this reason before.
        """
        condition = (turns.c.session == session_id) & is_active(turns)
        if reason != CancelReason.RESET:  # a reset is never replaced
            condition &= turns.c.cancel_reason.is_(None) | (turns.c.cancel_reason == reason)
        if reason == CancelReason.STOP:  # a turn with its final text cannot be stopped
            condition &= turns.c.state != "answered"
        marked = sa.update(turns).where(condition).values(cancel_reason=reason).returning(turns.c.id)
        turn_id: str | None = (await connection.execute(marked)).scalar_one_or_none()
        if turn_id is not None:
            await self._notices.notify(connection, f"{turn_id} {reason}")
        return turn_id

    async def notify_workers(self, connection: AsyncConnection) -> None:
        """Notify the other workers that messages wait, once the transaction is committed."""
        await self._notices.notify(connection, self._lease.worker_id)

    async def listen(
        self, *, on_waiting: Callable[[], None], on_cancelled: Callable[[str, CancelReason], None]
    ) -> None:
        """Receive the notifications of all workers until cancelled; on SQLite return at once.

        This worker's own notifications that messages wait are ignored. `on_waiting` is called when messages or turns
        may wait for a claim, or when notifications may have been lost.
        """

        def on_notification(text: str) -> None:
            id_, _, reason = text.partition(" ")
            if reason:
                on_cancelled(id_, CancelReason(reason))
            elif id_ != self._lease.worker_id:
                on_waiting()

        await self._notices.listen(on_notification)

    async def end(
        self, turn: Turn, state: EndState, *, error: str | None = None, run_record: Json | None = None
    ) -> None:
        """Store the end of the turn: its state, usage, error and run record.

        The usage is that of `turn.meter`; for `done`, the stored one stays. If the cancel reason of the turn is
        `RESET`, its text, its run record and the texts of its messages are deleted. For `MESSAGE_DELETED`, its run
        record is deleted, and if `state` is `cancelled`, the stored ADK events of its run as well. The `error` is for
        operators, free of secrets. Without a `run_record` the stored one stays.

        Raises:
            TurnLostError: another worker has claimed the turn, or it has ended in another state.
        """
        usage = turn.meter.to_json() if state != "done" else None  # a final text is stored
        fence = self.fencing_token(turn)
        new = {
            "state": state,
            "error": error,
            "usage": usage or None,
            "run_record": run_record,
            "finished_at": time.time(),
        }
        parameters = _to_parameters(fence, states_before(state), new)

        async def work(connection: AsyncConnection) -> None:
            row = (await connection.execute(_END, parameters)).one_or_none()
            if row is None:
                raise fence.lost_error
            if row.cancel_reason == CancelReason.RESET:
                answered = inbox.c.turn.in_((turn.id, turn.origin))
                await connection.execute(sa.update(inbox).where(answered).values(message=None, edited_message=None))
            elif row.cancel_reason == CancelReason.MESSAGE_DELETED and state == "cancelled":
                await discard_run(connection, turn.session_id, turn.origin, keep_prompt=False)

        operation = f"turn {turn.id}"
        if not await self._database.run_with_retries(_END_UNCANCELLED, operation=operation, **parameters):
            await self._database.write_with_retries(work, operation=operation)
        tracing.record_turn_end(state, error)

    async def _update(self, turn: Turn, states: Collection[State], update: sa.Update, **values: Any) -> None:
        fence = self.fencing_token(turn)
        parameters = _to_parameters(fence, states, values)
        if not await self._database.run_with_retries(update, operation=f"turn {turn.id}", **parameters):
            raise fence.lost_error
