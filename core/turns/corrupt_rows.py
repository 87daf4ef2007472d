"""Damage: rows of turns and messages that cannot be read. None of them keeps others from being answered, and the
conversation that it belongs to says so, if its ids or anything else can be read that tells where that is.
"""

import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from core.inbox_message import Inbound
from core.secret_redaction import traced
from core.store.database import Database
from core.store.errors import Unreadable, store_errors
from core.store.schema import inbox, sessions, turns
from core.turns.queries import answered_by, is_under_way, is_waiting, readable
from core.usage.meter import Meter

log = logging.getLogger(__name__)

#: The error of a turn that is under way, and of which there is not all to be read that it takes to run it.
DAMAGED = "its rows cannot be read"

#: Among how many of the newest messages of a session one is looked for that can be read.
_NEWEST = 20

#: Finds out, by the ids of a message whose words and address are lost, where it is answered; none if they do not tell.
Locate = Callable[[Inbound], Inbound | None]


def see_sound(rows: Sequence[sa.Row[Any]]) -> None:
    """See that turns can be run by what their rows hold.

    Raises:
        ValueError: one cannot.
    """
    for row in rows:
        chunks, numbers = row.chunks or [], (row.generation, row.claims, row.attempt, row.created_at)
        if not (isinstance(chunks, list) and all(isinstance(chunk, str) for chunk in chunks)):
            raise ValueError(f"turn {row.id}: its messages are no list of names")
        if not all(isinstance(number, int | float) for number in numbers):
            raise ValueError(f"turn {row.id}: it is counted in words")
        Meter(row.id, row.usage, begun_at=row.created_at)


@asynccontextmanager
async def spared(connection: AsyncConnection, id_: str, damaged: set[str]) -> AsyncIterator[None]:
    """What is done in a transaction for one of many, such as a turn: if a row cannot be read for it, nothing of it is
    done, its id is one of the `damaged`, and the others go on.
    """
    try:
        with store_errors():
            async with connection.begin_nested():
                yield
    except Unreadable as error:
        log.error("what was stored of %s cannot be read: %s", id_, traced(error))
        damaged.add(id_)


async def put_right(database: Database, is_ours: sa.ColumnElement[bool]) -> int:
    """Have the rows that cannot be read, of turns and of messages that are to be taken up, or answered once more, and
    of their sessions, hold what can be: not what they held.

    Args:
        is_ours: of which turns.

    Returns:
        How many there were.
    """
    left = sa.select(turns.c.id).where(is_under_way(turns), is_ours)
    spoken = sa.select(sessions.c.id).join(inbox, inbox.c.session == sessions.c.id).where(is_waiting(inbox)).distinct()
    asking = inbox.alias("asking")
    again = sa.select(asking.c.parent).where(is_waiting(asking), asking.c.parent.is_not(None))
    # what is answered once more bears the name of the turn that was the first to answer it
    origins = sa.select(turns.c.origin).where(turns.c.id.in_(left) | turns.c.id.in_(again))
    said = sa.select(inbox.c.id).where(is_waiting(inbox) | inbox.c.turn.in_(origins))
    return (
        await _put_right(database, turns, left, _new_turn, lambda row: see_sound([row]))
        + await _put_right(database, inbox, said, _new_message, _see_sound_message)
        + await _put_right(database, sessions, spoken, lambda: {"model": None, "agent": None}, lambda _row: None)
    )


async def _put_right(
    database: Database,
    table: sa.Table,
    which: sa.Select[Any],
    new: Callable[[], Mapping[str, Any]],
    see: Callable[[sa.Row[Any]], None],
) -> int:
    async with database.read() as connection:
        ids = (await connection.execute(which)).scalars().all()
    damaged = [id_ for id_ in ids if not await _is_sound(database, sa.select(table).where(table.c.id == id_), see)]
    if damaged:
        log.error("the %s %s cannot be read: what is said of them goes on without", table.name, damaged)
        async with database.write() as connection:
            await connection.execute(sa.update(table).where(table.c.id.in_(damaged)).values(**new()))
    return len(damaged)


async def _is_sound(database: Database, query: sa.Select[Any], see: Callable[[sa.Row[Any]], None]) -> bool:
    try:
        async with database.read() as connection:
            for row in await connection.execute(query):
                see(row)
    except Unreadable:
        return False
    return True


def _see_sound_message(row: sa.Row[Any]) -> None:
    if not all(isinstance(number, int | float) for number in (row.generation, row.sent_at, row.accepted_at)):
        raise ValueError(f"message {row.id}: its times are words")


def _life(session: sa.ColumnElement[str]) -> sa.ColumnElement[int]:
    return sa.func.coalesce(sa.select(sessions.c.generation).where(sessions.c.id == session).scalar_subquery(), 1)


def _new_turn() -> Mapping[str, Any]:
    none = dict.fromkeys(("parent", "run", "model", "owner", "cancel", "text", "usage", "receipt"))
    begun = {"kind": "message", "agent": "", "state": "queued", "chunks": [], "attempt": 1, "claims": 1}
    its = {"origin": turns.c.id, "generation": _life(turns.c.session), "created_at": time.time()}
    return {**none, **begun, **its, "error": DAMAGED}


def _new_message() -> Mapping[str, Any]:
    now = time.time()
    none = dict.fromkeys(("inbound", "revised", "parent"))
    its = {"author": "", "kind": "message", "generation": _life(inbox.c.session)}
    return {**none, **its, "sent_at": now, "accepted_at": now}


async def stand_in(
    connection: AsyncConnection, session: str, lost: sa.Row[Any] | None, locate: Locate
) -> Inbound | None:
    """What says where it is told that a message cannot be read: what its ids make of it, or else the newest one of its
    session that can be.
    """
    if lost is not None:
        async with spared(connection, f"message {lost.id}", set()):
            if (located := locate(_by_ids(lost))) is not None:
                return located
    said = sa.select(inbox.c.id).where(inbox.c.session == session, inbox.c.inbound.is_not(None))
    for id_ in (await connection.execute(said.order_by(inbox.c.id.desc()).limit(_NEWEST))).scalars().all():
        async with spared(connection, f"message {id_}", set()):
            one = await connection.scalar(sa.select(inbox.c.inbound).where(inbox.c.id == id_))
            if (message := readable(one)) is not None:
                return message
    return None


def _by_ids(row: sa.Row[Any]) -> Inbound:
    ids = {"event_key": row.event_key, "session_id": row.session, "place": row.place, "author": row.author}
    return Inbound(**ids, channel=row.place.partition(":")[0], address={}, text="", sent_at=row.sent_at)


async def stand_in_for(connection: AsyncConnection, waiting: sa.Row[Any], locate: Locate) -> Inbound | None:
    """What stands in for a message that waits and cannot be read; without it, that one is not answered."""
    log.error("message %s of session %s cannot be read", waiting.id, waiting.session)
    message = await stand_in(connection, waiting.session, waiting, locate)
    if message is None:
        await connection.execute(sa.update(inbox).where(inbox.c.id == waiting.id).values(outcome="unreadable"))
    return message


async def stood_in(
    connection: AsyncConnection, rows: Sequence[sa.Row[Any]], said: dict[str, tuple[Inbound, ...]], locate: Locate
) -> Sequence[sa.Row[Any]]:
    """Give a stand-in to those of the turns of whose messages none can be read.

    Args:
        said: what is answered, by the turns' origins; takes in the stand-ins.

    Returns:
        The turns that have something to answer. The others have failed without a word.
    """
    for row in rows:
        if row.origin not in said:
            lost = await answered_by(connection, row.origin)
            message = await stand_in(connection, row.session, lost[-1] if lost else None, locate)
            state = {"error": DAMAGED} if message else {"error": DAMAGED, "state": "failed", "finished_at": time.time()}
            await connection.execute(sa.update(turns).where(turns.c.id == row.id).values(**state))
            log.error("the messages of the turn %s cannot be read", row.id)
            if message is not None:
                said[row.origin] = (message,)
    return [row for row in rows if row.origin in said]
