"""Turns: runs of the agent on their way to an answer, from the claim to the last message shown.

    running ──> answered ──> done          the final text is kept, then shown
       │            ├──────> failed        it could not be shown
       │            └──────> cancelled     a reset came before it was shown
       ├──────────> failed                 an apology was shown; also when the process was stopped
       └──────────> cancelled              a reset ended it

A turn that failed stays so. To try it again is a turn of its own, of the kind `retry`: it answers the same message, in
the reply of the one that failed, and goes on with what that one's run has stored.

A session has at most one turn that is `running` or `answered`: the database holds it to that.

What becomes of a turn is written again when the database fails in passing. When it fails for longer, the error
goes to whoever wrote; the turn stays as it was, its session waits, and the next start of the process takes the
turn up (`Turns.left_over`): what was answered is shown, and for what was not the user gets an apology.
"""

import asyncio
import logging
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from core.errors import StoreError
from core.inbound import Inbound
from core.sessions.reopening import reopen
from core.store.database import Database
from core.store.schema import inbox, sessions, turns

log = logging.getLogger(__name__)

#: Seconds to wait before what the database did not take is written again; after the last one it is given up.
PAUSES = (0.1, 0.5, 2.0, 5.0)

Ended = Literal["done", "failed", "cancelled"]
Kind = Literal["message", "retry"]


def is_under_way(table: sa.FromClause) -> sa.ColumnElement[bool]:
    """Whether a turn has not ended."""
    return table.c.state.in_(("running", "answered"))


@dataclass(frozen=True, slots=True)
class Turn:
    """One run.

    Attributes:
        id: short enough to be told to a user, who can quote it to an operator.
        kind: whether it is the first to answer its message, or a `retry` of one that failed.
        origin: the turn that was the first to answer its message, under whose id the reply is found and what the
            run has stored: a retry goes on with both.
        chunks: the platform's ids of the reply's messages as far as they stand.
        text: the final text, once it is kept.
    """

    id: str
    session_id: str
    generation: int
    inbound: Inbound
    kind: Kind
    origin: str
    chunks: tuple[str, ...] = ()
    text: str | None = None


class Turns:
    """The `turns` table."""

    def __init__(self, database: Database, *, pauses: Sequence[float] = PAUSES) -> None:
        self._database = database
        self._pauses = pauses

    async def claim(self, limit: int) -> list[Turn]:
        """Begin the next turn of each session that has a message waiting and no turn under way.

        Args:
            limit: begin no more than so many.
        """
        async with self._database.write() as connection:
            waiting = (await connection.execute(_heads(limit))).all()
            claimed = [await _begin(connection, row) for row in waiting]
        return [turn for turn in claimed if turn is not None]

    async def left_over(self) -> list[Turn]:
        """The turns that a process which is gone has not ended."""
        query = (
            sa.select(turns, inbox.c.inbound)
            .join(inbox, inbox.c.turn == turns.c.id)
            .where(is_under_way(turns))
            .order_by(turns.c.created_at)
        )
        async with self._database.read() as connection:
            return [
                Turn(
                    id=row.id,
                    session_id=row.session,
                    generation=row.generation,
                    inbound=Inbound.from_json(row.inbound),
                    kind=row.kind,
                    origin=row.origin,
                    chunks=tuple(row.chunks),
                    text=row.text,
                )
                for row in await connection.execute(query)
            ]

    async def shown(self, turn_id: str, chunks: Sequence[str]) -> None:
        """Keep the ids of the reply's messages."""
        await self._write(_turn(turn_id).values(chunks=list(chunks)))

    async def answered(self, turn_id: str, text: str, usage: Mapping[str, Any]) -> None:
        """Keep the final text before it is shown."""
        await self._write(_turn(turn_id).values(state="answered", text=text, usage=dict(usage)))

    async def end(self, turn_id: str, state: Ended, *, error: str | None = None) -> None:
        """End the turn, and with it the message that it answered. If the session was reset meanwhile, what was
        said is forgotten.

        Args:
            error: for operators: what went wrong, free of secrets.
        """
        answered = sa.update(inbox).where(inbox.c.turn == turn_id)
        await self._write(
            _turn(turn_id).values(state=state, error=error, finished_at=time.time()),
            _turn(turn_id).where(_is_over(turns)).values(text=None),
            answered.values(outcome=state),
            answered.where(_is_over(inbox)).values(inbound=None),
        )

    async def _write(self, *statements: sa.Update) -> None:
        """Execute all of the statements or none."""
        for pause in self._pauses:
            try:
                return await self._execute(statements)
            except StoreError as error:
                log.warning("a turn cannot be written (%s); trying again in %s s", error, pause)
                await asyncio.sleep(pause)
        return await self._execute(statements)

    async def _execute(self, statements: Sequence[sa.Update]) -> None:
        async with self._database.write() as connection:
            for statement in statements:
                await connection.execute(statement)


def _turn(turn_id: str) -> sa.Update:
    return sa.update(turns).where(turns.c.id == turn_id)


def _is_over(table: sa.Table) -> sa.ColumnElement[bool]:
    """Whether a row is of a generation that a reset has ended."""
    now = sa.select(sessions.c.generation).where(sessions.c.id == table.c.session).scalar_subquery()
    return table.c.generation < now


def _heads(limit: int) -> sa.Select[Any]:
    """The oldest waiting message of each session that is free."""
    earlier, busy = inbox.alias("earlier"), turns.alias("busy")
    waiting = inbox.c.turn.is_(None) & inbox.c.outcome.is_(None)
    is_before = (earlier.c.sent_at < inbox.c.sent_at) | (
        (earlier.c.sent_at == inbox.c.sent_at) & (earlier.c.id < inbox.c.id)
    )
    has_earlier = sa.exists().where(
        earlier.c.session == inbox.c.session,
        earlier.c.turn.is_(None),
        earlier.c.outcome.is_(None),
        is_before,
    )
    is_busy = sa.exists().where(busy.c.session == inbox.c.session, is_under_way(busy))
    return sa.select(inbox).where(waiting, ~has_earlier, ~is_busy).order_by(inbox.c.id).limit(limit)


async def _begin(connection: AsyncConnection, row: sa.Row[Any]) -> Turn | None:
    turn_id = uuid.uuid4().hex[:10]
    failed = None
    if row.parent is not None:
        failed = (await connection.execute(sa.select(turns).where(turns.c.id == row.parent))).one()
    turn = Turn(
        id=turn_id,
        session_id=row.session,
        generation=row.generation,
        inbound=Inbound.from_json(row.inbound),
        kind="retry" if failed else "message",
        origin=failed.origin if failed else turn_id,
        chunks=tuple(failed.chunks) if failed else (),
    )
    try:
        async with connection.begin_nested():
            await connection.execute(
                sa.insert(turns).values(
                    id=turn.id,
                    session=turn.session_id,
                    generation=turn.generation,
                    kind=turn.kind,
                    parent=row.parent,
                    origin=turn.origin,
                    state="running",
                    chunks=list(turn.chunks),
                    created_at=time.time(),
                )
            )
            await connection.execute(sa.update(inbox).where(inbox.c.id == row.id).values(turn=turn.id))
            if failed:
                await reopen(connection, turn.session_id, turn.origin)
    except IntegrityError:  # another worker was quicker with this session
        return None
    return turn
