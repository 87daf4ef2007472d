"""ADK's sessions in our database."""

import asyncio
import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events.event import Event
from google.adk.sessions import BaseSessionService, Session
from google.adk.sessions.base_session_service import GetSessionConfig, ListSessionsResponse
from pydantic import PrivateAttr
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from core.errors import SessionResetError, StoreError
from core.sessions import scopes
from core.sessions.history import is_user_message, sendable
from core.sessions.loading import Loader
from core.sessions.record import Row, is_state_only, measured, media_size, stored
from core.store.database import Database
from core.store.schema import blobs, messages, sessions, state, tool_calls
from core.store.upsert import insert_new
from core.tokens import TokenCounter

_HEAVY = 256 * 1024  # bytes of media from which a record is made off the event loop


class StoredSession(Session):
    """A session as it was loaded: what is appended to it belongs to that life of the conversation."""

    _generation: int = PrivateAttr(default=0)
    _created_at: float = PrivateAttr(default=0.0)

    @property
    def generation(self) -> int:
        return self._generation


class SessionService(BaseSessionService):
    """Sessions, their state and their history, over `database`.

    A session's id is unique over all users; asked for under another user or app it is not found.

    Args:
        budget: how many tokens of history are loaded (None or 0: 32,000).
        agent: the root agent's name, for messages that do not tell who said them.
    """

    def __init__(
        self, database: Database, counter: TokenCounter, *, budget: int | None = None, agent: str = ""
    ) -> None:
        self._database = database
        self._counter = counter
        self._budget = budget
        self._agent = agent

    async def create_session(
        self,
        *,
        app_name: str,
        user_id: str,
        state: dict[str, Any] | None = None,
        session_id: str | None = None,
    ) -> Session:
        session_id = session_id or uuid.uuid4().hex
        owners = scopes.owners(app_name, user_id, session_id)
        try:
            async with self._database.write() as connection:
                row = await _begin_life(connection, app=app_name, user_id=user_id, session_id=session_id)
                await scopes.write(connection, owners, state or {})
                return _session(row, await scopes.read(connection, owners))
        except IntegrityError as error:
            raise AlreadyExistsError(f"Session with id {session_id} already exists.") from error

    async def get_session(
        self,
        *,
        app_name: str,
        user_id: str,
        session_id: str,
        config: GetSessionConfig | None = None,
    ) -> Session | None:
        """The session with the newest of its history, as much as the budget and 20 turns allow.

        Of that, `config` picks the newest events, whether or not a model would take them as a history.
        """
        async with self._database.read() as connection:
            row = await _life_of(connection, session_id)
            if row is None or (row.app, row.user_id) != (app_name, user_id):
                return None
            merged = await scopes.read(connection, scopes.owners(app_name, user_id, session_id))
            loader = Loader(connection, session_id, row.generation, self._budget, self._agent)
            wanted = config is None or config.num_recent_events != 0
            events = await loader.load() if wanted else []
        return _session(row, merged, _picked(events, config))

    async def list_sessions(self, *, app_name: str, user_id: str | None = None) -> ListSessionsResponse:
        query = sa.select(sessions).where(sessions.c.app == app_name)
        if user_id is not None:
            query = query.where(sessions.c.user_id == user_id)
        query = query.order_by(sessions.c.updated_at, sessions.c.user_id, sessions.c.id)
        async with self._database.read() as connection:
            rows = (await connection.execute(query)).all()
            owners = [scopes.owners(row.app, row.user_id, row.id) for row in rows]
            known = await scopes.read_all(connection, {pair for of in owners for pair in of.items()})
        return ListSessionsResponse(
            sessions=[
                _session(row, {key: value for pair in of.items() for key, value in known[pair].items()})
                for row, of in zip(rows, owners, strict=True)
            ]
        )

    async def delete_session(self, *, app_name: str, user_id: str, session_id: str) -> None:
        async with self._database.write() as connection:
            row = await _life_of(connection, session_id)
            if row is None or (row.app, row.user_id) != (app_name, user_id):
                return
            await _forget(connection, session_id)
            await connection.execute(sa.delete(sessions).where(sessions.c.id == session_id))

    async def get_user_state(self, *, app_name: str, user_id: str) -> dict[str, Any]:
        owner = ("user", scopes.owners(app_name, user_id, "")["user"])
        async with self._database.read() as connection:
            found = (await scopes.read_all(connection, [owner]))[owner]
        return {key.removeprefix("user:"): value for key, value in found.items()}

    async def append_event(self, session: Session, event: Event) -> Event:
        """Store what an event brings, and let `session` show it.

        Partial events are not stored. Of an event that changes nothing but the state, the state is stored
        and the event is neither a message nor part of the history.

        Raises:
            SessionNotFoundError: the session was deleted.
            SessionResetError: the session was reset after it was loaded; nothing is stored.
        """
        if event.partial:
            return event
        if not isinstance(session, StoredSession):
            raise StoreError("an event can be appended only to a session that came from this service")
        self._apply_temp_state(session, event)
        event = self._trim_temp_delta_state(event)
        if is_state_only(event):
            await self._write(session, event, None)
            self._update_session_state(session, event)
            return event
        event, row = (await asyncio.to_thread(stored, event)) if media_size(event) > _HEAVY else stored(event)
        words, tokens = measured(event)
        await self._write(session, event, row, tokens + await self._counter.count(words))
        self._commit_event_to_session(session, event)
        if is_user_message(event):  # what an earlier turn left open stays unanswered now
            session.events[:] = sendable(session.events)
        return event

    async def reset(self, session_id: str) -> int | None:
        """Start a session over: its messages, its own state and its bytes go; what the app and the user
        have for state stays. Whatever still runs on it can store nothing more.

        Returns:
            The new generation; None if there is no such session.
        """
        async with self._database.write() as connection:
            return await self.begin_generation(connection, session_id)

    async def begin_generation(self, connection: AsyncConnection, session_id: str) -> int | None:
        """`reset`, as a part of the caller's transaction."""
        await connection.execute(
            sa.update(sessions)
            .where(sessions.c.id == session_id)
            .values(generation=sessions.c.generation + 1, updated_at=time.time())
        )
        await _forget(connection, session_id)
        row = await _life_of(connection, session_id)
        return None if row is None else int(row.generation)

    async def _write(self, session: StoredSession, event: Event, row: Row | None, tokens: int = 0) -> None:
        async with self._database.write() as connection:
            await _fence(connection, session, event.timestamp)
            if event.actions.state_delta:
                owners = scopes.owners(session.app_name, session.user_id, session.id)
                await scopes.write(connection, owners, event.actions.state_delta)
            if row is None:
                return
            await _answer_held(connection, session, event)
            await insert_new(
                connection,
                blobs,
                *({"session": session.id, "hash": key, "data": data} for key, data in row.blobs.items()),
            )
            await connection.execute(
                sa.insert(messages).values(
                    session=session.id,
                    generation=session.generation,
                    invocation_id=row.invocation_id,
                    role=row.role,
                    author=row.author,
                    content=row.content,
                    tool_calls=row.tool_calls,
                    tokens=tokens,
                    held=row.held,
                    event=row.event,
                    created_at=row.created_at,
                )
            )
        session.last_update_time = event.timestamp


async def ensure_session(connection: AsyncConnection, *, app: str, user_id: str, session_id: str) -> int:
    """Make sure that a session is there, and keep it from all others until the end of the transaction.

    Returns:
        Its generation.

    Raises:
        StoreError: the id is another app's or user's.
        IntegrityError: another transaction has just done the same; try again.
    """
    query = sa.select(sessions).where(sessions.c.id == session_id).with_for_update()
    row = (await connection.execute(query)).one_or_none()
    if row is None:
        row = await _begin_life(connection, app=app, user_id=user_id, session_id=session_id)
    if (row.app, row.user_id) != (app, user_id):
        raise StoreError(f"session {session_id} belongs to another app or place")
    return int(row.generation)


async def _begin_life(connection: AsyncConnection, *, app: str, user_id: str, session_id: str) -> sa.Row[Any]:
    now = time.time()
    insert = sa.insert(sessions).returning(sessions)
    new = {"id": session_id, "app": app, "user_id": user_id, "created_at": now, "updated_at": now}
    row: sa.Row[Any] = (await connection.execute(insert, new)).one()
    return row


async def _life_of(connection: AsyncConnection, session_id: str) -> sa.Row[Any] | None:
    return (await connection.execute(sa.select(sessions).where(sessions.c.id == session_id))).one_or_none()


async def _fence(connection: AsyncConnection, session: StoredSession, at: float) -> None:
    """Take hold of the session's row if it still lives the life that was loaded."""
    same_life = (sessions.c.generation == session.generation) & (sessions.c.created_at == session._created_at)
    update = sa.update(sessions).where(sessions.c.id == session.id, same_life).values(updated_at=at)
    if (await connection.execute(update)).rowcount == 1:
        return
    if await _life_of(connection, session.id) is None:
        raise SessionNotFoundError(f"Session not found: {session.id}")
    raise SessionResetError(f"session {session.id} was reset: generation {session.generation} has ended")


async def _answer_held(connection: AsyncConnection, session: StoredSession, event: Event) -> None:
    """Note which of the calls that wait are answered by `event`; a new turn lets go of those that were."""
    answers = {answer.id for answer in event.get_function_responses() if answer.id}
    begins = is_user_message(event)
    if not answers and not begins:
        return
    held = sa.select(messages.c.id, messages.c.held).where(
        messages.c.session == session.id, messages.c.held.is_not(None)
    )
    for id_, calls in (await connection.execute(held)).all():
        if begins and calls and all(calls.values()):
            noted = None
        elif answers & calls.keys():
            noted = {call: done or call in answers for call, done in calls.items()}
        else:
            continue
        await connection.execute(sa.update(messages).where(messages.c.id == id_).values(held=noted))


async def _forget(connection: AsyncConnection, session_id: str) -> None:
    await connection.execute(sa.delete(messages).where(messages.c.session == session_id))
    await connection.execute(sa.delete(blobs).where(blobs.c.session == session_id))
    await connection.execute(sa.delete(tool_calls).where(tool_calls.c.session == session_id))
    await connection.execute(sa.delete(state).where(state.c.scope == "session", state.c.owner == session_id))


def _session(row: sa.Row[Any], merged: Mapping[str, Any], events: Sequence[Event] = ()) -> StoredSession:
    session = StoredSession(
        id=row.id,
        app_name=row.app,
        user_id=row.user_id,
        state=dict(merged),
        events=list(events),
        last_update_time=row.updated_at,
    )
    session._generation = row.generation
    session._created_at = row.created_at
    return session


def _picked(events: list[Event], config: GetSessionConfig | None) -> list[Event]:
    if config is not None and config.after_timestamp is not None:
        events = [event for event in events if event.timestamp >= config.after_timestamp]
    if config is not None and config.num_recent_events is not None:
        events = events[-config.num_recent_events :]
    return events
