"""Loaded ADK sessions, and the writer that stores their new events."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Any

import sqlalchemy as sa
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events.event import Event
from google.adk.sessions import Session
from pydantic import Field
from sqlalchemy.ext.asyncio import AsyncConnection

from core.errors import SessionResetError
from core.observability.secret_redaction import RunSecrets
from core.sessions import state as scopes
from core.sessions.codec import mask_row
from core.sessions.history import HistoryWindow, is_user_message
from core.sessions.lifecycle import find_session_row
from core.sessions.prompt_text import AttributedPrompt, ReadMessages
from core.store import schema
from core.store.database import Database
from core.store.schema import messages, sessions
from core.store.upsert import build_insert, insert_or_ignore
from core.store.workers.fencing import OWNS_TURN, FencingToken, join_owned_turn, lock_session_and_turn


class StoredSession(Session):
    """ADK session that `SessionService` has loaded from the database.

    Attributes:
        generation: 1 plus the number of the session's resets when it was loaded; appended events belong to it.
        fence: the fencing token of the turn whose run appends events.
        prompt: the user messages of that turn, with their authors; None if they are unknown.
        read_messages: returns the messages that the next model call of the run is to read; None for no such messages.
        steering: the messages that the run has read since it was loaded, by event id.
        window: the size and the limits of the loaded history.
        reserved_state: the values of the keys of `core.sessions.state.RESERVED_PREFIX`, which `state` lacks.
        secrets: the secrets of the run, which are masked in the stored events.
        has_secret_prompt: whether the user's message of the run answers a question with a secret field.
    """

    generation: int = Field(default=0, exclude=True)
    fence: FencingToken | None = Field(default=None, exclude=True)
    prompt: AttributedPrompt | None = Field(default=None, exclude=True)
    read_messages: ReadMessages | None = Field(default=None, exclude=True)
    steering: dict[str, AttributedPrompt] = Field(default_factory=dict, exclude=True)
    window: HistoryWindow = Field(default=HistoryWindow(), exclude=True)
    reserved_state: dict[str, Any] = Field(default_factory=dict, exclude=True)
    secrets: RunSecrets = Field(default_factory=RunSecrets, exclude=True)
    has_secret_prompt: bool = Field(default=False, exclude=True)

    def get_prompt(self, event: Event) -> AttributedPrompt | None:
        """Return the turn's prompt, or the message that its run has read, if it is that of an event."""
        prompt = self.steering.get(event.id, self.prompt if is_user_message(event) else None)
        first = next(iter((event.content and event.content.parts) or ()), None)
        return None if prompt is None or first is None or first.text != prompt.text else prompt

    def mask_row(self, event: Event, row: Mapping[str, Any]) -> dict[str, Any]:
        """Return a new event's columns from `encode_event`, with the run's secrets masked."""
        prompt = self.get_prompt(event)
        row = {**row, "attribution": prompt and prompt.to_json(), "files": prompt and prompt.files_to_json()}
        if not (self.has_secret_prompt and is_user_message(event)):
            return mask_row(row, self.secrets)
        masked = (self.prompt or AttributedPrompt((("user", row["content"]),), {})).mask(self.secrets)
        self.secrets.prompts[event.id] = masked.text
        return {**mask_row(row, self.secrets), "attribution": row["attribution"] and masked.to_json()}


@dataclass(frozen=True, slots=True)
class EventWriter:
    """Writer of ADK events into the loaded generation of a session.

    A repeated write stores the event only once: the database's answer to the first commit may have been lost.
    """

    database: Database
    session: StoredSession

    async def append(
        self, event: Event, row: Mapping[str, Any] | None = None, blobs: Mapping[str, bytes] = MappingProxyType({})
    ) -> None:
        """Store an event and its state change in one transaction, without retries.

        If the caller is cancelled, the cancellation is raised after the end of the write.

        Args:
            row: the event's columns of `messages`, as from `StoredSession.mask_row`; None to store only the event's
                state change.
            blobs: the bytes of the event's large files, by their SHA-256.

        Raises:
            SessionNotFoundError: the session was deleted.
            SessionResetError: the session was reset; nothing is stored.
            TurnLostError: another worker owns the turn; nothing is stored.
            StoreError: the database cannot be used; the event may be stored, if the answer to the commit was lost.
        """
        writing = asyncio.create_task(self._append(event, row, blobs), name="append")
        try:
            await asyncio.shield(writing)
        except asyncio.CancelledError:
            await asyncio.gather(writing, return_exceptions=True)
            raise

    async def _append(self, event: Event, row: Mapping[str, Any] | None, blobs: Mapping[str, bytes]) -> None:
        values = {"session": self.session.id, "generation": self.session.generation, **(row or {})}
        delta = scopes.remove_reserved(event.actions.state_delta)
        if row and not delta and not blobs and await self._insert_row(event, values):
            return
        session = self.session
        async with self.database.write() as connection:
            await self._lock_session_and_turn(connection, event.timestamp)
            owners = scopes.get_scope_owners(session.app_name, session.user_id, session.id)
            await scopes.write_state(connection, owners, delta)
            if row is None:
                return
            await self._record_answers(connection, event)
            data = ({"session": session.id, "hash": digest, "data": data} for digest, data in blobs.items())
            await insert_or_ignore(connection, schema.blobs, *data)
            await insert_or_ignore(connection, messages, values)

    async def _insert_row(self, event: Event, values: dict[str, Any]) -> bool:
        """Insert a row into `messages` by one SQL statement, for an event without state.

        False if the session was reset, the turn is lost, the event is stored already, or the event may answer open
        long-running calls: nothing is stored then, and the caller has to use a transaction.
        """
        fence = self.session.fence
        may_answer_calls = bool(event.get_function_responses()) or is_user_message(event)
        parameters = {**values, "may_answer_calls": may_answer_calls, **(fence.values if fence else {})}
        insert = _build_insert(self.database.engine.dialect.name, is_fenced=fence is not None)
        return bool(await self.database.run(insert, **parameters))

    async def _lock_session_and_turn(self, connection: AsyncConnection, at: float) -> None:
        session = self.session
        try:
            await lock_session_and_turn(connection, session.id, session.generation, session.fence, key_share=True)
        except SessionResetError:
            if await find_session_row(connection, session.id) is None:
                raise SessionNotFoundError(f"Session not found: {session.id}") from None
            raise
        await connection.execute(sa.update(sessions).where(sessions.c.id == session.id).values(updated_at=at))

    async def _record_answers(self, connection: AsyncConnection, event: Event) -> None:
        """Store that an event's function responses answer long-running calls.

        A user message sets `long_running_calls` to null where all calls are answered: the history's limits apply from
        then on.
        """
        answers = {answer.id for answer in event.get_function_responses() if answer.id}
        begins_turn = is_user_message(event)
        if not answers and not begins_turn:
            return
        in_generation = (messages.c.session == self.session.id) & (messages.c.generation == self.session.generation)
        open_rows = sa.select(messages.c.id, messages.c.long_running_calls).where(
            in_generation, messages.c.long_running_calls.is_not(None)
        )
        for id_, calls in (await connection.execute(open_rows)).all():
            if begins_turn and calls and all(calls.values()):
                new_calls = None
            elif answers & calls.keys():
                new_calls = {call: done or call in answers for call, done in calls.items()}
            else:
                continue
            await connection.execute(
                sa.update(messages).where(messages.c.id == id_).values(long_running_calls=new_calls)
            )


@cache
def _build_insert(dialect: str, *, is_fenced: bool) -> sa.Insert:
    """Return the `INSERT` of one message that locks its session and checks its turn.

    Nothing is inserted if the session was reset, the turn is lost, or the event is stored. The same applies if the
    session has long-running calls that the message may answer (`may_answer_calls`).
    """
    names = [column.name for column in messages.c if column.name not in ("id", "summarized_id")]
    locked = sa.select(sessions.c.id, sessions.c.generation).where(
        sessions.c.id == sa.bindparam("session", type_=sa.Text),
        sessions.c.generation == sa.bindparam("generation", type_=sa.Integer),
    )
    locked = join_owned_turn(locked, OWNS_TURN) if is_fenced else locked
    # PostgreSQL: the row stays locked until the transaction ends. So a reset comes before or after, and the ids of a
    # session's messages are in the order of their commits
    session_row = locked.with_for_update(key_share=True).subquery("locked")
    in_generation = (messages.c.session == session_row.c.id) & (messages.c.generation == session_row.c.generation)
    open_rows = sa.exists().where(in_generation, messages.c.long_running_calls.is_not(None))
    may_answer_calls = sa.bindparam("may_answer_calls", type_=sa.Boolean)
    values = (sa.bindparam(name, type_=messages.c[name].type) for name in names)
    row = sa.select(*values).select_from(session_row).where(sa.not_(sa.and_(may_answer_calls, open_rows)))
    return build_insert(dialect, messages).from_select(names, row).on_conflict_do_nothing().returning(messages.c.id)
