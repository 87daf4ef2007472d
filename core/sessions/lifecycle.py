"""Session lifecycle: create, lock, reset, delete, and move to another app."""

import logging
import time
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from core.messages.identity import current_author
from core.sessions.agent_routing import AgentRouter
from core.sessions.codec import list_blob_digests, parse_event
from core.store.database import Database
from core.store.schema import (
    IS_RUNNING_JOB,
    artifacts,
    blobs,
    feedback,
    human_requests,
    jobs,
    memories,
    messages,
    prompts,
    schedules,
    sessions,
    state,
    tool_calls,
    turns,
)

log = logging.getLogger(__name__)


async def lock_session_row(connection: AsyncConnection, session_id: str | None) -> int | None:
    """Lock a session's row until the transaction ends, and return the session's generation.

    SQLite has no row locks: there, a transaction of `Database.write` excludes all other writes.
    """
    row = await find_session_row(connection, session_id, for_update=True)
    return None if row is None else int(row.generation)


async def begin_generation(connection: AsyncConnection, session_id: str) -> int | None:
    """Reset a session: delete its data, and return the number of the new generation.

    ADK's state of the app and of the user stays. Writes of runs that began in the former generation fail from now on.
    """
    await connection.execute(
        sa.update(sessions)
        .where(sessions.c.id == session_id)
        .values(generation=sessions.c.generation + 1, updated_at=time.time())
    )
    await delete_session_data(connection, session_id)
    row = await find_session_row(connection, session_id)
    return None if row is None else int(row.generation)


def new_session_row(session_id: str, app: str, user_id: str) -> dict[str, Any]:
    """Return the columns without defaults of a new `sessions` row; `user_id` is its place."""
    now = time.time()
    return {"id": session_id, "app": app, "user_id": user_id, "created_at": now, "updated_at": now}


_FIND_SESSION = sa.select(sessions).where(sessions.c.id == sa.bindparam("session_id", type_=sa.Text))
_LOCK_SESSION = _FIND_SESSION.with_for_update()


async def find_session_row(
    connection: AsyncConnection, session_id: str | None, *, for_update: bool = False
) -> sa.Row[Any] | None:
    """Return the `sessions` row of a session; `for_update` locks it, as `lock_session_row` does."""
    query = _LOCK_SESSION if for_update else _FIND_SESSION
    return (await connection.execute(query, {"session_id": session_id})).one_or_none()


async def delete_session_data(connection: AsyncConnection, session_id: str) -> None:
    """Delete a session's rows in all tables but `sessions`, `inbox` and `turns`; artifacts of its place stay.

    Its background jobs are cancelled, and lose their message: their tickets then say that they are cancelled.
    """
    session_turns = sa.select(turns.c.id).where(turns.c.session == session_id)
    await connection.execute(sa.delete(feedback).where(feedback.c.turn.in_(session_turns)))
    await delete_prompts(connection, turns.c.session == session_id)
    await connection.execute(sa.delete(human_requests).where(human_requests.c.session == session_id))
    await connection.execute(sa.delete(messages).where(messages.c.session == session_id))
    await connection.execute(sa.delete(blobs).where(blobs.c.session == session_id))
    session_files = (artifacts.c.scope == "session") & (artifacts.c.owner == session_id)
    await connection.execute(sa.delete(artifacts).where(session_files))
    await connection.execute(sa.delete(tool_calls).where(tool_calls.c.session == session_id))
    await connection.execute(sa.delete(memories).where(memories.c.session == session_id))
    await connection.execute(sa.delete(schedules).where(schedules.c.session == session_id))
    cancelled = {"state": "cancelled", "finished_at": time.time(), "owner": None, "message": None}
    await connection.execute(sa.update(jobs).where(jobs.c.session == session_id, IS_RUNNING_JOB).values(cancelled))
    await connection.execute(sa.delete(state).where(state.c.scope == "session", state.c.owner == session_id))


async def delete_prompts(connection: AsyncConnection, condition: sa.ColumnElement[bool]) -> None:
    """Delete the stored prompts of matching `turns`; their rows stay, and tell that there were prompts."""
    its_prompts = prompts.c.turn.in_(sa.select(turns.c.id).where(condition)) & prompts.c.ciphertext.is_not(None)
    await connection.execute(sa.update(prompts).where(its_prompts).values(ciphertext=None))


def is_turn_at(place: str) -> sa.ColumnElement[bool]:
    """Return the SQL condition that a turn's session is at a place (`sessions.user_id`)."""
    return turns.c.session.in_(sa.select(sessions.c.id).where(sessions.c.user_id == place))


async def delete_unreferenced_blobs(connection: AsyncConnection, session_id: str) -> None:
    """Delete a session's files in `blobs` to which none of its messages refers."""
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
    """Store all sessions under the default agent's app, and log unconfigured agents.

    The messages stay, and ADK shows them to the model as another agent's. ADK's `user:` and `app:` state still belongs
    to the former app. A session keeps its chosen agent: while that agent is not configured, the agent of the place
    answers.
    """
    c = sessions.c
    home = agents.default
    async with database.write() as connection:
        former_apps = (await connection.execute(sa.select(c.app).distinct().where(c.app != home))).scalars().all()
        if former_apps:
            await connection.execute(sa.update(sessions).where(c.app != home).values(app=home))
        counted = sa.select(c.agent, sa.func.count()).where(c.agent.is_not(None)).group_by(c.agent)
        choices = (await connection.execute(counted)).all()
    for name in former_apps:
        if name not in agents.profiles and current_author(name) != home:
            log.warning("agent %s takes over the conversations of %s, which is not configured anymore", home, name)
    for name, count in choices:
        if name not in agents.profiles:
            log.warning(
                "agent %s, chosen in %d conversations, is not configured anymore: their places' agents answer",
                name,
                count,
            )
