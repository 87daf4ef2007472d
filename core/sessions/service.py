"""ADK's session service over the database: sessions, state, events and search."""

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Collection, Sequence
from copy import copy
from datetime import UTC, datetime
from functools import partial
from typing import Any, NamedTuple, TypeVar

import sqlalchemy as sa
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events.event import Event
from google.adk.sessions import BaseSessionService, Session
from google.adk.sessions.base_session_service import GetSessionConfig, ListSessionsResponse
from sqlalchemy.exc import IntegrityError

from core.concurrency.retry import retry_store
from core.errors import StoreError, UnreadableRowError
from core.models.tokens import TokenCounter
from core.observability.secret_redaction import RunSecrets
from core.sessions import state as scopes
from core.sessions.codec import (
    NEWEST_FIRST,
    SEARCHABLE_ROLES,
    USER_ROLES,
    count_media_bytes,
    encode_event,
    has_word,
    is_in_session,
    is_state_only,
    measure_event,
    parse_event,
)
from core.sessions.history import DEFAULT_MAX_TURNS, is_user_message, repair_history, split_responses
from core.sessions.lifecycle import delete_session_data, find_session_row, new_session_row
from core.sessions.prompt_text import AttributedPrompt
from core.sessions.reader import HistoryLoader, read_snapshot
from core.sessions.writer import EventWriter, StoredSession
from core.store.database import Database
from core.store.schema import messages, sessions, state

T = TypeVar("T")

_NO_EVENTS = GetSessionConfig(num_recent_events=0)

_LARGE_MEDIA_BYTES = 256 * 1024  # an event with more bytes of files is encoded in a thread, off the event loop


class FoundMessage(NamedTuple):
    """Message that a search of a session found.

    Attributes:
        sent_at: the time in ISO 8601 in UTC, to the minute.
        role: `user` or `assistant`.
    """

    sent_at: str
    role: str
    text: str


class SessionService(BaseSessionService):
    """ADK's session service: sessions, their state and their history in the database.

    A session's id is unique over all users; under another user or app the session is not found.

    Args:
        budget: the most tokens of history that are loaded; None or 0 for 32,000.
        turns: the most turns of history that are loaded. If a session has more, the newest ones are loaded, between
            half of `turns` and `turns`: see `count_sent_turns`.
        agent: the name of the root agent: the author of stored messages without one.
        home_app: the app under which all sessions are stored, so that several agents can answer in one session; None
            for the app of each call. The `app:` and `user:` state always belongs to the app of the call.
    """

    def __init__(
        self,
        database: Database,
        counter: TokenCounter,
        *,
        budget: int | None = None,
        turns: int = DEFAULT_MAX_TURNS,
        agent: str = "",
        home_app: str | None = None,
    ) -> None:
        self._database = database
        self._counter = counter
        self._budget = budget
        self._turns = turns
        self._agent = agent
        self._home_app = home_app
        self._runs = frozenset[str]()
        self._secrets: RunSecrets | None = None

    def bind_run(self, runs: Collection[str], secrets: RunSecrets) -> "SessionService":
        """Return a copy of the service that loads the events of a run with their secrets.

        In all other events, the secrets are masked.

        Args:
            runs: the id of the run, and those of the runs that it continues.
            secrets: the secrets in the loaded events are added; those of the run are masked when events are stored.
        """
        bound = copy(self)
        bound._runs = frozenset(runs)
        bound._secrets = secrets
        return bound

    async def create_session(
        self,
        *,
        app_name: str,
        user_id: str,
        state: dict[str, Any] | None = None,
        session_id: str | None = None,
    ) -> Session:
        session_id = session_id or uuid.uuid4().hex
        try:
            async with self._database.write() as connection:
                row = new_session_row(session_id, self._home_app or app_name, user_id)
                await connection.execute(sa.insert(sessions).values(row))
                owners = scopes.get_scope_owners(app_name, user_id, session_id)
                await scopes.write_state(connection, owners, scopes.remove_reserved(state or {}))
        except IntegrityError as error:
            raise AlreadyExistsError(f"Session with id {session_id} already exists.") from error
        session = await self.get_session(app_name=app_name, user_id=user_id, session_id=session_id, config=_NO_EVENTS)
        if session is None:
            raise SessionNotFoundError(f"Session not found: {session_id}")
        return session

    async def get_session(
        self,
        *,
        app_name: str,
        user_id: str,
        session_id: str,
        config: GetSessionConfig | None = None,
    ) -> Session | None:
        """Return a `StoredSession` with its newest events, within `budget` and `turns`.

        Args:
            config: selects, from the events within the limits, those since its `after_timestamp`, and of these the
                newest `num_recent_events`; 0 loads no events. A model may refuse the selected history, which may begin
                between a tool call and its result.

        Raises:
            StoreError: the database cannot be used, even after retries.
            UnreadableRowError: a stored row of the session cannot be read.
        """

        async def load() -> Session | None:
            snapshot = await read_snapshot(
                self._database, app=app_name, user_id=user_id, session_id=session_id, home_app=self._home_app
            )
            if snapshot is None:
                return None
            state = scopes.remove_reserved(snapshot.state)
            session = StoredSession(
                id=session_id,
                app_name=app_name,
                user_id=user_id,
                state=state,
                reserved_state={key: value for key, value in snapshot.state.items() if key not in state},
                last_update_time=snapshot.updated_at,
                generation=snapshot.generation,
                secrets=RunSecrets() if self._secrets is None else self._secrets,
            )
            if config is None or config.num_recent_events != 0:
                loader = HistoryLoader(
                    self._database,
                    session_id,
                    snapshot,
                    self._budget,
                    self._turns,
                    self._agent,
                    runs=self._runs,
                    secrets=session.secrets,
                )
                events, session.window = await loader.load()
                session.events = _apply_config(events, config)
            return session

        return await self._run_with_retries(load, session_id)

    async def list_sessions(self, *, app_name: str, user_id: str | None = None) -> ListSessionsResponse:
        query = sa.select(sessions.c.user_id, sessions.c.id).where(sessions.c.app == (self._home_app or app_name))
        if user_id is not None:
            query = query.where(sessions.c.user_id == user_id)
        async with self._database.read() as connection:
            rows = (await connection.execute(query.order_by(sessions.c.user_id, sessions.c.id))).all()
        loaded = [
            await self.get_session(app_name=app_name, user_id=row.user_id, session_id=row.id, config=_NO_EVENTS)
            for row in rows
        ]
        existing = filter(None, loaded)  # a session may be deleted meanwhile
        return ListSessionsResponse(sessions=sorted(existing, key=lambda session: session.last_update_time))

    async def delete_session(self, *, app_name: str, user_id: str, session_id: str) -> None:
        async with self._database.write() as connection:
            row = await find_session_row(connection, session_id)
            if row is None or (row.app, row.user_id) != (self._home_app or app_name, user_id):
                return
            await delete_session_data(connection, session_id)
            await connection.execute(sa.delete(sessions).where(sessions.c.id == session_id))

    async def get_user_state(self, *, app_name: str, user_id: str) -> dict[str, Any]:
        owner = scopes.get_scope_owners(app_name, user_id, "")["user"]
        query = sa.select(state.c.key, state.c.value).where(state.c.scope == "user", state.c.owner == owner)
        async with self._database.read() as connection:
            return {row.key: row.value for row in await connection.execute(query)}

    async def append_event(self, session: Session, event: Event) -> Event:
        """Store an event and its state change, and add the event to `session.events`.

        Nothing happens for a partial event, and for an event whose id is in `session.events`. If an event only changes
        the state, the change is stored, but not the event. A user message also repairs `session.events`: see
        `core.sessions.history.repair_history`.

        Returns:
            The event; or a copy without the characters and the temporary state that cannot be stored.

        Raises:
            SessionNotFoundError: the session was never created, or was deleted.
            StoreError: the database cannot be used, or `session` was not loaded by this service.
            SessionResetError: the session was reset after it was loaded; nothing is stored.
            TurnLostError: another worker owns the turn for which the session was loaded; nothing is stored.
            UnreadableRowError: a stored row that the write needs cannot be read.
        """
        if event.partial:
            return event
        if not isinstance(session, StoredSession):
            session_key = {"app_name": session.app_name, "user_id": session.user_id, "session_id": session.id}
            if await self.get_session(**session_key, config=_NO_EVENTS) is None:
                raise SessionNotFoundError(f"Session not found: {session.id}")
            raise StoreError("an event can be appended only to a session that came from this service")
        if any(event.id == known.id for known in reversed(session.events)):
            return event
        self._apply_temp_state(session, event)
        event = self._trim_temp_delta_state(event)
        writer = EventWriter(self._database, session)
        if is_state_only(event):
            await self._run_with_retries(partial(writer.append, event), session.id)
            session.last_update_time = event.timestamp
            self._update_session_state(session, event)
            return event
        event, row, blobs = (
            (await asyncio.to_thread(encode_event, event))
            if count_media_bytes(event) > _LARGE_MEDIA_BYTES
            else encode_event(event)
        )
        words, tokens = measure_event(event)
        row["tokens"] = tokens + await self._counter.count(words)
        row = session.mask_row(event, row)
        await self._run_with_retries(partial(writer.append, event, row, blobs), session.id)
        session.last_update_time = event.timestamp
        self._commit_event_to_session(session, event)
        session.events[-1:] = split_responses(event)
        if is_user_message(event):  # open calls of earlier turns get no response any more
            session.events[:] = repair_history(session.events)
        return event

    async def read_stored_events(self, session: StoredSession, events: Sequence[Event]) -> dict[str, tuple[Event, str]]:
        """Read a run's events as stored: with their original call ids, and secrets unmasked.

        The text beside each event, by event id, has no author names and quotes. Events that are not stored are left
        out. (In a loaded history, repeated call ids are replaced.)

        Args:
            events: events of the run itself and of the runs that it continues.
        """
        c = messages.c
        query = sa.select(c.id, c.event_id, c.event, c.content, c.attribution, c.unmasked).where(
            c.session == session.id, c.event_id.in_([event.id for event in events])
        )
        async with self._database.read() as connection:
            rows = (await connection.execute(query)).all()
        stored_events = dict[str, tuple[Event, str]]()
        for row in rows:
            columns = {**row._mapping, **(row.unmasked or {})}
            if (event := parse_event(columns["event"], row.id)) is not None:
                prompt = AttributedPrompt.from_json(columns["content"], columns["attribution"])
                text = columns["content"] if prompt is None else prompt.unattributed_text
                stored_events[row.event_id] = event, text
        return stored_events

    async def search_messages(self, session: StoredSession, words: Sequence[str], *, limit: int) -> list[FoundMessage]:
        """Return messages of people and agents since the last reset with all words, newest first.

        Case and Unicode's compatible forms are ignored: see `fold_text`. A word may also be part of a longer word.
        Without words, every message matches.
        """
        c = messages.c
        query = (
            sa.select(c.created_at, c.role, c.content)
            .where(is_in_session(session.id), c.generation == session.generation, c.role.in_(SEARCHABLE_ROLES))
            .where(*(has_word(messages, word) for word in words))
            .order_by(*NEWEST_FIRST)
            .limit(limit)
        )
        async with self._database.read() as connection:
            rows = await connection.execute(query)
            return [
                FoundMessage(
                    datetime.fromtimestamp(at, UTC).isoformat(timespec="minutes"),
                    "user" if role in USER_ROLES else role,
                    text,
                )
                for at, role, text in rows
            ]

    async def _run_with_retries(self, work: Callable[[], Awaitable[T]], session_id: str) -> T:
        """Retry `work` while the database is unavailable; an error of parsing is an `UnreadableRowError`."""
        try:
            return await retry_store(work, operation=f"session {session_id}")
        except SessionNotFoundError:  # which is a ValueError too
            raise
        except (ValueError, TypeError, AttributeError) as error:  # a column holds a value of a wrong type
            raise UnreadableRowError(f"a row of session {session_id} cannot be read") from error


def _apply_config(events: list[Event], config: GetSessionConfig | None) -> list[Event]:
    if config is not None and config.after_timestamp is not None:
        events = [event for event in events if event.timestamp >= config.after_timestamp]
    if config is not None and config.num_recent_events is not None:
        events = events[-config.num_recent_events :]
    return events
