"""Turns: runs of the agent on their way to an answer, from the claim to the last message shown.

`STEPS` says what becomes of a turn. One that failed stays so. To try it again is a turn of its own, of the kind
`retry`: it answers the same messages, in the reply of the one that failed, and goes on with what that one's run has
stored.

A session has at most one turn that is `queued`, `running` or `answered`: the database holds it to that.

A turn belongs to the worker that has claimed it, for as long as that one's lease lasts. Then any worker may claim it,
answers the same messages, and goes on with what was stored and shown. What the former one still writes is refused.

What becomes of a turn is written again when the database fails in passing. When it fails for longer, the error
goes to whoever wrote, and the turn is claimed again when the database is back.
"""

import asyncio
import logging
import time
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, takewhile
from typing import Any, Literal

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from core.errors import StoreError, TurnLostError
from core.inbound import Inbound
from core.lease import Lease
from core.sessions.reopening import reopen
from core.store.database import Database
from core.store.notices import Notices
from core.store.schema import inbox, sessions, turns

log = logging.getLogger(__name__)

#: Seconds to wait before what the database did not take is written again; after the last one it is given up.
PAUSES = (0.1, 0.5, 2.0, 5.0, 10.0, 15.0, 20.0, 20.0, 20.0)

#: How many messages one turn answers at most.
MESSAGES = 20

State = Literal["queued", "running", "answered", "done", "failed", "cancelled"]
Ended = Literal["done", "failed", "cancelled"]
Kind = Literal["message", "retry"]


#: From which state to which a turn may go, and when it does.
STEPS: Mapping[tuple[State, State], str] = {
    ("running", "answered"): "the final text is kept",
    ("answered", "done"): "it is shown",
    ("answered", "failed"): "it cannot be shown",
    ("answered", "cancelled"): "a reset",
    ("running", "failed"): "an apology is shown",
    ("running", "cancelled"): "a reset, a stop",
    ("running", "queued"): "its worker hands it back",
    ("queued", "running"): "another one claims it",
}


def is_under_way(table: sa.FromClause) -> sa.ColumnElement[bool]:
    """Whether a turn has not ended."""
    return table.c.state.in_(("queued", "running", "answered"))


def is_waiting(table: sa.FromClause) -> sa.ColumnElement[bool]:
    """Whether a message of the inbox is still to be taken by a turn."""
    return table.c.turn.is_(None) & table.c.outcome.is_(None)


@dataclass(frozen=True, slots=True)
class Turn:
    """One run.

    Attributes:
        id: short enough to be told to a user, who can quote it to an operator.
        messages: what it answers: all that waited when it was claimed for the first time, as it was said.
        kind: whether it is the first to answer its messages, or a `retry` of one that failed.
        origin: the turn that was the first to answer its messages, under whose id the reply is found and what the
            run has stored: a retry goes on with both.
        attempt: how often it was claimed from a worker that was gone, and one more.
        is_resumed: whether it was claimed before.
        chunks: the platform's ids of the reply's messages as far as they stand.
        text: the final text, once it is kept.
        cancel: why it is to be ended, if it is.
    """

    id: str
    session_id: str
    generation: int
    messages: tuple[Inbound, ...]
    kind: Kind
    origin: str
    attempt: int = 1
    is_resumed: bool = False
    chunks: tuple[str, ...] = ()
    text: str | None = None
    cancel: str | None = None

    @property
    def inbound(self) -> Inbound:
        """The newest of its messages: the one that the reply answers."""
        return self.messages[-1]


class Turns:
    """The `turns` table, as one worker sees it."""

    def __init__(self, database: Database, lease: Lease, *, pauses: Sequence[float] = PAUSES) -> None:
        self._database = database
        self._lease = lease
        self._notices = Notices(database)
        self._pauses = pauses

    async def claim(self, limit: int, *, running: Collection[str] = ()) -> list[Turn]:
        """Take up turns that nobody runs, and begin the next one of each session that has messages waiting and no
        turn under way.

        Args:
            limit: no more than so many.
            running: the turns that this worker runs.
        """
        try:
            async with self._database.write() as connection:
                resumed = await self._resume(connection, limit, running)
                return [*resumed, *await self._begin(connection, limit - len(resumed))]
        except IntegrityError:  # another worker was quicker with one of the sessions
            return []

    async def running(self) -> dict[str, str | None]:
        """The turns that are this worker's, and why they are to be ended, if they are."""
        query = sa.select(turns.c.id, turns.c.cancel).where(is_under_way(turns), turns.c.owner == self._lease.worker)
        async with self._database.read() as connection:
            return {row.id: row.cancel for row in await connection.execute(query)}

    async def shown(self, turn: Turn, chunks: Sequence[str]) -> None:
        """Keep the ids of the reply's messages.

        Raises:
            TurnLostError: another worker has taken the turn.
        """
        await self._write(turn, ("running", "answered"), chunks=list(chunks))

    async def answered(self, turn: Turn, text: str, usage: Mapping[str, Any]) -> None:
        """Keep the final text before it is shown.

        Raises:
            TurnLostError: another worker has taken the turn.
        """
        await self._write(turn, _before("answered"), state="answered", text=text, usage=dict(usage))

    async def hand_back(self, turn: Turn) -> None:
        """Leave the turn to whoever claims it next; that it was tried does not count.

        Raises:
            TurnLostError: another worker has taken the turn.
        """
        state = sa.case((turns.c.state == "running", "queued"), else_=turns.c.state)
        await self._write(turn, ("running", "answered"), state=state, owner=None, attempt=0)

    async def cancel(self, connection: AsyncConnection, session_id: str, reason: str) -> str | None:
        """Have the turn that is under way in a session ended, whoever runs it, as a part of the caller's transaction.

        Returns:
            Its id, if there is one.
        """
        here = (turns.c.session == session_id) & is_under_way(turns)
        asked = sa.update(turns).where(here).values(cancel=reason).returning(turns.c.id)
        turn_id: str | None = (await connection.execute(asked)).scalar_one_or_none()
        if turn_id is not None:
            await self._notices.post(connection, f"{turn_id} {reason}")
        return turn_id

    async def announce(self, connection: AsyncConnection) -> None:
        """Tell all workers that something waits, once the transaction is committed."""
        await self._notices.post(connection, "")

    async def hear(self, *, on_waiting: Callable[[], None], on_cancelled: Callable[[str, str], None]) -> None:
        """Hear of what waits, and of the turns that are to be ended, by id and reason, from all workers. Until
        cancelled.
        """

        def heard(text: str) -> None:
            turn_id, _, reason = text.partition(" ")
            if reason:
                on_cancelled(turn_id, reason)
            else:
                on_waiting()

        await self._notices.hear(heard)

    async def end(self, turn: Turn, state: Ended, *, error: str | None = None) -> None:
        """End the turn, and with it the messages that it answered. If the session was reset meanwhile, what was
        said is forgotten.

        Args:
            error: for operators: what went wrong, free of secrets.

        Raises:
            TurnLostError: another worker has taken the turn.
        """
        text = sa.case((_is_over(turns), None), else_=turns.c.text)
        await self._write(turn, _before(state), state=state, error=error, finished_at=time.time(), text=text)

    async def _write(self, turn: Turn, states: Collection[State], **values: Any) -> None:
        """Write of a turn that is in one of the states."""
        for pause in self._pauses:
            try:
                return await self._execute(turn, states, values)
            except TurnLostError:
                raise
            except StoreError as error:
                log.warning("a turn cannot be written (%s); trying again in %s s", error, pause)
                await asyncio.sleep(pause)
        return await self._execute(turn, states, values)

    async def _execute(self, turn: Turn, states: Collection[State], values: Mapping[str, Any]) -> None:
        ours = (turns.c.owner == self._lease.worker) & (turns.c.attempt == turn.attempt) & turns.c.state.in_(states)
        update = sa.update(turns).where(turns.c.id == turn.id, ours).values(**values).returning(_is_over(turns))
        async with self._database.write() as connection:
            row = (await connection.execute(update)).one_or_none()
            if row is None:
                raise TurnLostError(f"turn {turn.id} is another worker's")
            if row[0] and "finished_at" in values:
                answered = inbox.c.turn.in_((turn.id, turn.origin))
                await connection.execute(sa.update(inbox).where(answered).values(inbound=None))

    async def _resume(self, connection: AsyncConnection, limit: int, running: Collection[str]) -> list[Turn]:
        lost = (turns.c.owner == self._lease.worker) & turns.c.id.not_in(running)
        query = (
            sa.select(turns)
            .where(is_under_way(turns), lost | self._lease.is_gone(turns.c.owner))
            .order_by(turns.c.created_at)
            .limit(limit)
            .with_for_update(skip_locked=True)
        )
        rows = (await connection.execute(query)).all()
        if not rows:
            return []
        taken = {
            "owner": self._lease.worker,
            "attempt": turns.c.attempt + 1,
            "state": sa.case((turns.c.state == "queued", "running"), else_=turns.c.state),
        }
        await connection.execute(sa.update(turns).where(turns.c.id.in_([row.id for row in rows])).values(**taken))
        said = await _said(connection, {row.origin for row in rows})
        if damaged := [row.id for row in rows if row.origin not in said]:
            log.error("the messages of the turns %s cannot be read: they have failed", ", ".join(damaged))
            values = {"state": "failed", "error": "its messages cannot be read", "finished_at": time.time()}
            await connection.execute(sa.update(turns).where(turns.c.id.in_(damaged)).values(**values))
            rows = [row for row in rows if row.origin in said]
        for row in rows:
            if row.state != "answered":
                await reopen(connection, row.session, row.origin)
        return [
            Turn(
                id=row.id,
                session_id=row.session,
                generation=row.generation,
                messages=said[row.origin],
                kind=row.kind,
                origin=row.origin,
                attempt=row.attempt + 1,
                is_resumed=True,
                chunks=tuple(row.chunks or ()),
                text=row.text,
                cancel=row.cancel,
            )
            for row in rows
        ]

    async def _begin(self, connection: AsyncConnection, limit: int) -> list[Turn]:
        begun = []
        for batch in await _batches(connection, limit):
            first = batch[0]
            turn_id = uuid.uuid4().hex[:10]
            failed = None
            if first.parent is not None:
                failed = (await connection.execute(sa.select(turns).where(turns.c.id == first.parent))).one()
            turn = Turn(
                id=turn_id,
                session_id=first.session,
                generation=first.generation,
                messages=tuple(Inbound.from_json(row.inbound) for row in batch),
                kind="retry" if failed else "message",
                origin=failed.origin if failed else turn_id,
                chunks=tuple(failed.chunks or ()) if failed else (),
            )
            await connection.execute(
                sa.insert(turns).values(
                    id=turn.id,
                    session=turn.session_id,
                    generation=turn.generation,
                    kind=turn.kind,
                    parent=first.parent,
                    origin=turn.origin,
                    state="running",
                    owner=self._lease.worker,
                    chunks=list(turn.chunks),
                    created_at=time.time(),
                )
            )
            taken = sa.update(inbox).where(inbox.c.id.in_([row.id for row in batch]))
            await connection.execute(taken.values(turn=turn.id))
            if failed:
                await reopen(connection, turn.session_id, turn.origin)
                turn = replace(turn, messages=(await _said(connection, {turn.origin}))[turn.origin])
            begun.append(turn)
        return begun


def _before(state: State) -> set[State]:
    """Where a turn may come from, and the state itself: what is written twice is no fault."""
    return {source for source, target in STEPS if target == state} | {state}


def _is_over(table: sa.Table) -> sa.ColumnElement[bool]:
    """Whether a row is of a generation that a reset has ended."""
    now = sa.select(sessions.c.generation).where(sessions.c.id == table.c.session)
    return table.c.generation < now.correlate(table).scalar_subquery()


async def _batches(connection: AsyncConnection, limit: int) -> list[list[sa.Row[Any]]]:
    """What waits in each session that is free, oldest first, as far as one turn answers it. The sessions are kept from
    other workers until the end of the transaction.
    """
    busy, waiting = turns.alias("busy"), inbox.alias("waiting")
    heads = (
        sa.select(waiting.c.session, sa.func.min(waiting.c.id).label("first"))
        .where(is_waiting(waiting))
        .group_by(waiting.c.session)
        .subquery("heads")
    )
    free = (
        sa.select(sessions.c.id)
        .join(heads, heads.c.session == sessions.c.id)
        .where(~sa.exists().where(busy.c.session == sessions.c.id, is_under_way(busy)))
        .order_by(heads.c.first)
        .limit(limit)
        .with_for_update(skip_locked=True, of=sessions)
    )
    ids = (await connection.execute(free)).scalars().all() if limit > 0 else []
    if not ids:
        return []
    # what another worker took before the sessions were kept from it is not there any more
    rows = (
        sa.select(inbox)
        .where(is_waiting(inbox), inbox.c.session.in_(ids))
        .order_by(inbox.c.session, inbox.c.sent_at, inbox.c.id)
    )
    readable = await _readable(connection, (await connection.execute(rows)).all())
    grouped = groupby(readable, key=lambda row: row.session)
    batches = {session: _answered_together(list(of)) for session, of in grouped}
    return [batches[session] for session in ids if session in batches]


async def _readable(connection: AsyncConnection, waiting: Sequence[sa.Row[Any]]) -> list[sa.Row[Any]]:
    """The messages that can be read. The others are set aside, so that their sessions go on."""
    damaged = {row.id: row.session for row in waiting if _message(row.inbound) is None}
    for id_, session in damaged.items():
        log.error("message %s of session %s cannot be read, and is not answered", id_, session)
    if damaged:
        await connection.execute(sa.update(inbox).where(inbox.c.id.in_(damaged)).values(outcome="unreadable"))
    return [row for row in waiting if row.id not in damaged]


def _message(said: object) -> Inbound | None:
    try:
        return Inbound.from_json(said)
    except ValueError:
        return None


def _answered_together(waiting: list[sa.Row[Any]]) -> list[sa.Row[Any]]:
    """The oldest, and those behind it up to the next one that is a turn of its own."""
    first, *others = waiting
    if first.parent is not None:
        return [first]
    return [first, *takewhile(lambda row: row.parent is None, others)][:MESSAGES]


async def _said(connection: AsyncConnection, turn_ids: Collection[str]) -> dict[str, tuple[Inbound, ...]]:
    """The messages that turns answer."""
    query = (
        sa.select(inbox.c.turn, inbox.c.inbound)
        .where(inbox.c.turn.in_(turn_ids))
        .order_by(inbox.c.turn, inbox.c.sent_at, inbox.c.id)
    )
    rows = (await connection.execute(query)).all()
    by_turn = groupby(rows, key=lambda row: row.turn)
    said = {turn: tuple(message for row in of if (message := _message(row.inbound))) for turn, of in by_turn}
    return {turn: messages for turn, messages in said.items() if messages}
