"""What is deleted in one transaction: a conversation, or what nothing needs any more of one."""

import time
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from core.privacy.person_redaction import Person
from core.sessions import state as scopes
from core.sessions.lifecycle import forget
from core.sessions.resume import correction_of
from core.store.schema import (
    approvals,
    artifacts,
    feedback,
    inbox,
    memories,
    messages,
    refusals,
    sessions,
    spending,
    state,
    turns,
)
from core.store.upsert import insert_new
from core.turns.queries import is_active, is_waiting
from core.usage.prices import Prices
from core.usage.spending import count_all, forget_people, is_of

#: What the inbox says of a message of which it keeps nothing but the key.
FORGOTTEN = "forgotten"


async def hold(connection: AsyncConnection, session_id: str) -> sa.Row[Any] | None:
    """Keep a session from all others until the end of the transaction, if it is there."""
    query = sa.select(sessions.c.id, sessions.c.user_id, sessions.c.generation).where(sessions.c.id == session_id)
    held: Any = await connection.execute(query.with_for_update())
    row: sa.Row[Any] | None = held.one_or_none()
    return row


async def occupy(connection: AsyncConnection, session_id: str) -> sa.Row[Any] | None:
    """The same of one that is to be deleted: if it is not there, nobody begins it until the end of the transaction,
    which has to delete it all the same.
    """
    now = time.time()
    nobodys = {"id": session_id, "app": "", "user_id": "", "created_at": now, "updated_at": now}
    while (row := await hold(connection, session_id)) is None:
        await insert_new(connection, sessions, nobodys)
    return row if row.user_id else None


async def has_running(connection: AsyncConnection, session_id: str) -> bool:
    """Whether a turn is under way in a session."""
    query = sa.select(turns.c.id).where(turns.c.session == session_id, is_active(turns))
    return (await connection.execute(query)).first() is not None


async def has_waiting(connection: AsyncConnection, session_id: str) -> bool:
    """Whether something waits in a session to be taken by a turn."""
    query = sa.select(inbox.c.id).where(inbox.c.session == session_id, is_waiting(inbox))
    return (await connection.execute(query)).first() is not None


async def delete(
    connection: AsyncConnection,
    prices: Prices,
    session_id: str,
    row: sa.Row[Any] | None,
    *,
    said_by: float,
    before: int | None = None,
) -> None:
    """Delete a conversation.

    Args:
        prices: what models cost.
        row: what `hold` has returned.
        said_by: what was said until then (seconds since the epoch) is not to be read again.
        before: a generation that stays, if anything was said in it; what is stored of those before is gone by now, but
            for turns and what they answer.
    """
    here, said = turns.c.session == session_id, inbox.c.session == session_id
    its_turns = here if before is None else here & (turns.c.generation < before)
    await connection.execute(
        sa.update(turns).where(its_turns, turns.c.finished_at.is_(None)).values(finished_at=time.time())
    )
    await count_all(connection, prices, its_turns)
    await connection.execute(sa.delete(feedback).where(feedback.c.turn.in_(sa.select(turns.c.id).where(its_turns))))
    await connection.execute(sa.delete(turns).where(its_turns))
    await bury(connection, said if before is None else said & (inbox.c.generation < before))
    query = sa.select(inbox.c.id).where(said).limit(1)
    if before is None or (await connection.execute(query)).first() is None:
        await forget(connection, session_id)
        await connection.execute(sa.delete(artifacts).where(artifacts.c.session == session_id))
        await connection.execute(sa.delete(sessions).where(sessions.c.id == session_id))
    if row is not None:
        await _leave(connection, row, said_by)


async def bury(connection: AsyncConnection, which: sa.ColumnElement[bool]) -> None:
    """Keep nothing of messages but their keys."""
    nothing = {"session": "", "place": "", "author": "", "inbound": None, "revised": None, "parent": None, "turn": None}
    await connection.execute(sa.update(inbox).where(which).values(**nothing, outcome=FORGOTTEN))


async def _leave(connection: AsyncConnection, session: sa.Row[Any], said_by: float) -> None:
    """Remember that what was said there until then is not to be read again; of a place without any conversation, forget
    what tools have kept for it, and who has spent what there.
    """
    now = time.time()
    mark = {"session": session.id, "place": session.user_id, "author": "", "generation": 1, "outcome": "reset"}
    mark |= {"event_key": f"forgotten:{session.id}:{now}", "sent_at": said_by, "accepted_at": now}
    await connection.execute(sa.insert(inbox).values(mark))
    others = sa.select(sessions.c.id).where(sessions.c.user_id == session.user_id)
    if (await connection.execute(others.limit(1))).first() is None:
        await connection.execute(sa.delete(memories).where(memories.c.user_id == session.user_id))
        await forget_people(connection, spending.c.place == session.user_id)
        for table in (state, artifacts):
            of_place = (table.c.scope == "user") & scopes.is_of(table.c.owner, session.user_id)
            await connection.execute(sa.delete(table).where(of_place))


async def kept_since(connection: AsyncConnection, session_id: str, before: float) -> Sequence[str]:
    """The runs that have begun before and gone on since, and those that wait for a decision."""
    c = messages.c
    waits = c.held.is_not(None) & c.covers.is_(None)
    found = list[set[str]]()
    for which in (c.created_at < before, c.created_at >= before, waits):
        query = sa.select(c.invocation_id).where(c.session == session_id, which).distinct()
        found.append({run.removesuffix(correction_of("")) for run in (await connection.execute(query)).scalars()})
    old, young, waiting = found
    runs = (old & young) | waiting
    return [*runs, *map(correction_of, runs)]


async def forget_of(connection: AsyncConnection, person: Person) -> None:
    """What is kept of a person beside conversations."""
    await connection.execute(sa.delete(feedback).where(feedback.c.author == person.id))
    decided = sa.update(approvals).where(approvals.c.decided_by == person.id)
    await connection.execute(decided.values(decided_by=None, decider=None))
    await connection.execute(sa.delete(refusals).where(is_of(refusals.c.person, person.id)))
    at_work = sa.exists().where(turns.c.origin == inbox.c.turn, is_active(turns))
    await bury(connection, (inbox.c.author == person.id) & ~is_waiting(inbox) & ~at_work)  # it was said since
