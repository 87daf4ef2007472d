"""Session lifecycle: create, lock, reset, and reassign to another agent."""

import logging
import time
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from core.identity import current_author
from core.sessions.codec import list_blob_digests, parse_event
from core.sessions.routing import AgentRouter
from core.store.database import Database
from core.store.schema import (
    approvals,
    artifacts,
    blobs,
    feedback,
    memories,
    messages,
    sessions,
    state,
    tool_calls,
    turns,
)

log = logging.getLogger(__name__)


async def lock_session_row(connection: AsyncConnection, session_id: str | None) -> int | None:
    """Keep a session from all others until the end of the transaction, if it is there.

    Returns:
        Its generation.
    """
    row = await find_session_row(connection, session_id, for_update=True)
    return None if row is None else int(row.generation)


async def begin_generation(connection: AsyncConnection, session_id: str) -> int | None:
    """Start a session over: its messages, its own state and its bytes go; what the app and the user have for state
    stays. Whatever still runs on it can store nothing more.

    Returns:
        The new generation; None if there is no such session.
    """
    await connection.execute(
        sa.update(sessions)
        .where(sessions.c.id == session_id)
        .values(generation=sessions.c.generation + 1, updated_at=time.time())
    )
    await delete_session_data(connection, session_id)
    row = await find_session_row(connection, session_id)
    return None if row is None else int(row.generation)


async def insert_session(connection: AsyncConnection, *, app: str, user_id: str, session_id: str) -> sa.Row[Any]:
    """A new session's row.

    Raises:
        IntegrityError: there is one with that id.
    """
    now = time.time()
    insert = sa.insert(sessions).returning(sessions)
    new = {"id": session_id, "app": app, "user_id": user_id, "created_at": now, "updated_at": now}
    row: sa.Row[Any] = (await connection.execute(insert, new)).one()
    return row


async def find_session_row(
    connection: AsyncConnection, session_id: str | None, *, for_update: bool = False
) -> sa.Row[Any] | None:
    """A session's row, if it is there; `is_kept` from all others until the end of the transaction."""
    query = sa.select(sessions).where(sessions.c.id == session_id)
    return (await connection.execute(query.with_for_update() if for_update else query)).one_or_none()


async def delete_session_data(connection: AsyncConnection, session_id: str) -> None:
    """Delete all that is stored of a session in this life, but for what was said and waits, and its turns."""
    its_turns = sa.select(turns.c.id).where(turns.c.session == session_id)
    await connection.execute(sa.delete(feedback).where(feedback.c.turn.in_(its_turns)))
    await connection.execute(sa.delete(approvals).where(approvals.c.session == session_id))
    await connection.execute(sa.delete(messages).where(messages.c.session == session_id))
    await connection.execute(sa.delete(blobs).where(blobs.c.session == session_id))
    its_files = (artifacts.c.scope == "session") & (artifacts.c.owner == session_id)
    await connection.execute(sa.delete(artifacts).where(its_files))
    await connection.execute(sa.delete(tool_calls).where(tool_calls.c.session == session_id))
    await connection.execute(sa.delete(memories).where(memories.c.session == session_id))
    await connection.execute(sa.delete(state).where(state.c.scope == "session", state.c.owner == session_id))


async def delete_unreferenced_blobs(connection: AsyncConnection, session_id: str) -> None:
    """Delete the bytes that no message of a session refers to any more."""
    stored = sa.select(blobs.c.hash).where(blobs.c.session == session_id)
    unused = set((await connection.execute(stored)).scalars())
    if not unused:
        return
    query = sa.select(messages.c.id, messages.c.event).where(messages.c.session == session_id)
    for id_, json in await connection.execute(query.where(messages.c.event.contains('"data"'))):
        if (event := parse_event(json, id_)) is not None:
            unused -= list_blob_digests(event)
    await connection.execute(sa.delete(blobs).where(blobs.c.session == session_id, blobs.c.hash.in_(unused)))


async def reassign_sessions(database: Database, agents: AgentRouter) -> None:
    """Have the agents that run now go on with the conversations of those that do not.

    Nothing of a conversation is lost: what was said by the agent before is there, and ADK has the new one read it
    as another agent's words. What its tools kept for a place or for all (`user:` and `app:` in ADK's state) stays its
    own. A conversation for which one was chosen that is gone is answered by the one of its place; the choice stays, and
    holds again when that one is back.
    """
    c, home = sessions.c, agents.default
    async with database.write() as connection:
        gone = (await connection.execute(sa.select(c.app).distinct().where(c.app != home))).scalars().all()
        if gone:
            await connection.execute(sa.update(sessions).where(c.app != home).values(app=home))
        counted = sa.select(c.agent, sa.func.count()).where(c.agent.is_not(None)).group_by(c.agent)
        chosen = (await connection.execute(counted)).all()
    for name in gone:
        if name not in agents.profiles and current_author(name) != home:
            log.warning("%s goes on with the conversations of %s, which does not run any more", home, name)
    for name, count in chosen:
        if name not in agents.profiles:
            log.warning("%s was chosen for %d conversations, and is gone: their places' agents answer", name, count)
