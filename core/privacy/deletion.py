"""Deletion of stored data: a session, a user's data, or everything before a date.

Running turns are cancelled first. Each session is deleted in one transaction. The event keys of deleted inbox messages
stay (tombstones), so that neither a second delivery nor a backfill stores the messages again.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from core.errors import UnreadableRowError
from core.messages.inbox_message import InboxOutcome
from core.privacy.deletion_queries import (
    TOMBSTONE_PREFIX,
    delete_old_runs,
    delete_session,
    delete_user_records,
    has_active_turn,
    has_later_turns,
    has_queued_messages,
    lock_or_create_session,
    tombstone_messages,
)
from core.privacy.known_users import KnownUser, count_records, find_users
from core.privacy.redaction import find_sessions_of, is_only_author, load_redaction, redact_session
from core.sessions.lifecycle import (
    begin_generation,
    delete_prompts,
    delete_unreferenced_blobs,
    find_session_row,
    is_turn_at,
    lock_session_row,
)
from core.store.database import Database
from core.store.errors import name_row
from core.store.notify import NotificationBus
from core.store.schema import artifacts, blobs, inbox, messages, sessions, spending, turns, workers
from core.turns.queries import is_active, is_waiting
from core.turns.turn import CancelReason
from core.usage.meter import utc_day
from core.usage.prices import Prices
from core.usage.spending_ledger import redact_person, redact_rows

#: The most seconds that a deletion waits for cancelled turns, and the seconds between two checks.
CANCEL_TIMEOUT_SECONDS = 15.0
CHECK_SECONDS = 0.1

#: The most sessions per query that counts rows: a statement may have at most 32,767 parameters.
BATCH_SIZE = 500

#: Attempts to redact a session in which new turns keep starting.
REDACTION_ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class DeletionRequest:
    """The data to delete: exactly one attribute is set.

    Attributes:
        user_id: delete the data of the user with this platform id.
        before: delete messages and turns that are older than this time.
    """

    session_id: str = ""
    user_id: str = ""
    before: float = 0.0


@dataclass(frozen=True, slots=True)
class DeletionPreview:
    """The stored data that a deletion request concerns; false if there is none.

    Attributes:
        partial_sessions: the ids of the sessions of which a part is to be deleted.
        messages: the number of rows of `messages` in all these sessions, also of those that stay.
        files: the number of stored files in all these sessions.
        records: the number of rows about the user outside of sessions, such as spending and feedback.
    """

    sessions: tuple[str, ...]
    partial_sessions: tuple[str, ...]
    messages: int
    files: int
    records: int = 0

    def __bool__(self) -> bool:
        return bool(self.sessions or self.partial_sessions or self.records)


@dataclass(slots=True)
class DeletionResult:
    """Counts of the rows that a deletion has deleted or changed.

    Attributes:
        conversations: the number of deleted sessions.
        changed: the number of sessions of which a part was deleted.
        redacted: the number of messages from which the user's texts and names were removed.
        records: the number of rows about the user outside of sessions that were deleted or redacted.
    """

    conversations: int = 0
    changed: int = 0
    messages: int = 0
    redacted: int = 0
    files: int = 0
    records: int = 0


class DeletionService:
    """Service that deletes sessions, the data of users, and old data.

    The cost of deleted turns is first stored in the table `spending`, by `prices` if the turn has none yet. It stays
    there without the user's id and name.

    Args:
        delete_sign_ins: deletes the sign-ins of a user's id at other services, and revokes them there; None if the
            secrets of sign-ins cannot be decrypted, which are then only deleted.
    """

    def __init__(
        self,
        database: Database,
        prices: Prices,
        *,
        delete_sign_ins: Callable[[str], Awaitable[object]] | None = None,
    ) -> None:
        self._database = database
        self._prices = prices
        self._delete_sign_ins = delete_sign_ins
        self._notices = NotificationBus(database)

    async def preview(self, request: DeletionRequest) -> DeletionPreview:
        """Count the stored data that a request would delete; delete nothing."""
        sessions, partial_sessions = await self.list_sessions(request)
        session_ids = [*sessions, *partial_sessions]
        message_count = 0
        file_count = 0
        async with self._database.read() as connection:
            for start in range(0, len(session_ids), BATCH_SIZE):
                batch = session_ids[start : start + BATCH_SIZE]
                message_count += await _count(connection, messages, batch)
                file_count += await _count_files(connection, batch)
            records = await count_records(connection, request.user_id) if request.user_id else 0
        return DeletionPreview(tuple(sessions), tuple(partial_sessions), message_count, file_count, records)

    async def find_users(self, text: str) -> list[KnownUser]:
        """Return the users with stored data by name or id: see `core.privacy.known_users.find_users`."""
        async with self._database.read() as connection:
            return await find_users(connection, text)

    async def list_sessions(self, request: DeletionRequest) -> tuple[list[str], list[str]]:
        """Return two lists of session ids: to delete as a whole, and to delete in part.

        By the attribute of the request: `session_id`: that session if it is stored; no others. `user_id`: the sessions
        in which only the user wrote to the bot; and all others with data of the user. `before`: the sessions that were
        not used since; and those with some older messages.
        """
        async with self._database.read() as connection:
            if request.session_id:
                return await _list_existing(connection, request.session_id), []
            if request.user_id:
                return await find_sessions_of(connection, request.user_id)
            return await _list_old(connection, request.before)

    async def delete(self, request: DeletionRequest, *, pause: float = 0.0) -> DeletionResult:
        """Delete the data of a request, one session after the other.

        With `session_id` or `user_id`, the active turn of each session is first cancelled. The deletion waits for its
        end, at most `CANCEL_TIMEOUT_SECONDS`, and goes on. With `user_id`, only the user's texts, names and id are
        removed from sessions that others share. All prompts at the places of these sessions are deleted. The user's
        sign-ins are deleted first. Ratings and denial notices are deleted, and their id and names are removed from
        decisions and `spending`. With
        `before`, all ids and names of people are removed from older rows of `spending`.

        Args:
            pause: seconds between two sessions.

        Raises:
            StoreError: some of the data could not be deleted; the same request deletes the rest.
            UnreadableRowError: rows of these sessions cannot be read, and only the data of the others was deleted.
        """
        result = DeletionResult()
        user_id = request.user_id
        sessions, partial_sessions = await self.list_sessions(request)
        if user_id:
            async with self._database.read() as connection:
                result.records = await count_records(connection, user_id)
            if self._delete_sign_ins is not None:
                await self._delete_sign_ins(user_id)
        errors = list[str]()
        for session_id in [*sessions, *partial_sessions]:
            try:
                with name_row("sessions", session_id):
                    if request.before:
                        await self._delete_before(session_id, request.before, result)
                    elif session_id in partial_sessions or not await self._delete_session(session_id, user_id, result):
                        await self._redact(session_id, user_id, result)
            except UnreadableRowError as error:
                errors.append(f"{error} (session {session_id})")
            await asyncio.sleep(pause)
        async with self._database.write() as connection:
            if user_id and not errors:  # the records lead to the sessions with the rest
                await redact_person(connection, self._prices, user_id)
                await delete_user_records(connection, user_id)
            if request.before:
                await redact_rows(connection, spending.c.day < utc_day(request.before))
        if errors:
            raise UnreadableRowError(f"not all was deleted: {'; '.join(errors)}; delete these sessions as a whole")
        return result

    @asynccontextmanager
    async def _lock(self, session_id: str, result: DeletionResult) -> AsyncIterator[AsyncConnection]:
        """Lock a session in a transaction, and add what was deleted to `result` after the commit."""
        batch = [session_id]
        async with self._database.write() as connection:
            await lock_session_row(connection, session_id)
            before = await _count(connection, messages, batch), await _count_files(connection, batch)
            yield connection
            after = await _count(connection, messages, batch), await _count_files(connection, batch)
        result.messages += before[0] - after[0]
        result.files += before[1] - after[1]

    async def _delete_session(self, session_id: str, only_author: str, result: DeletionResult) -> bool:
        """Cancel the running turn of a session, wait for its end, and delete the session.

        After `CANCEL_TIMEOUT_SECONDS`, the session is deleted even if the turn runs on. Waiting messages are dropped;
        later ones begin a new session with the same id. False if somebody other than `only_author` wrote there: nothing
        is deleted then.
        """
        started_at = time.time()
        async with self._lock(session_id, result) as connection:
            row = await lock_or_create_session(connection, session_id)
            if only_author and row is not None and not await is_only_author(connection, session_id, only_author):
                return False
            if only_author and row is not None:  # the place's state and memories may quote the user
                await delete_prompts(connection, is_turn_at(row.user_id))
            if row is None or not await has_active_turn(connection, session_id):
                await delete_session(connection, self._prices, session_id, row, reset_at=started_at)
                result.conversations += 1
                return True
            cancelled = await self._cancel_turns(connection, session_id, CancelReason.RESET)
            queued = (inbox.c.session == session_id) & is_waiting(inbox)
            await connection.execute(sa.update(inbox).where(queued).values(outcome=InboxOutcome.DROPPED))
            generation = await begin_generation(connection, session_id)
            await connection.execute(sa.delete(artifacts).where(artifacts.c.session == session_id))
        await self._wait_for_turns(cancelled)
        async with self._lock(session_id, result) as connection:
            row = await find_session_row(connection, session_id, for_update=True)
            # a smaller generation is that of another session, which began after this one was deleted elsewhere
            if row is not None and generation is not None and row.generation >= generation:
                await delete_session(
                    connection, self._prices, session_id, row, reset_at=started_at, before_generation=generation
                )
        result.conversations += 1
        return True

    async def _delete_before(self, session_id: str, before: float, result: DeletionResult) -> None:
        """Delete the old runs of a session; the whole one if it is unused since, not busy and without later turns."""
        async with self._lock(session_id, result) as connection:
            if (row := await find_session_row(connection, session_id, for_update=True)) is None:
                return
            is_old = await connection.scalar(sa.select(_is_older_than(before)).where(sessions.c.id == session_id))
            is_busy = await has_active_turn(connection, session_id) or await has_queued_messages(connection, session_id)
            if is_old and not is_busy and not await has_later_turns(connection, session_id):
                await delete_session(connection, self._prices, session_id, row, reset_at=before)
                result.conversations += 1
            else:
                await delete_old_runs(connection, self._prices, session_id, before)
                result.changed += 1

    async def _redact(self, session_id: str, user_id: str, result: DeletionResult) -> None:
        """Remove a user's texts, names and id from a session that others share.

        Running turns of the session are cancelled first, since they may have read the user's messages. After
        `REDACTION_ATTEMPTS` attempts, a running turn does not prevent the redaction.
        """
        for remaining in reversed(range(REDACTION_ATTEMPTS)):
            # only once: messages that the user sends during the redaction are answered
            await self._stop(session_id, user_id if remaining == REDACTION_ATTEMPTS - 1 else None)
            async with self._lock(session_id, result) as connection:
                if remaining and await has_active_turn(connection, session_id):
                    continue
                await redact_person(connection, self._prices, user_id)
                redaction = await load_redaction(connection, session_id, user_id)
                result.redacted += await redact_session(connection, session_id, redaction)
                await delete_unreferenced_blobs(connection, session_id)
            result.changed += 1
            return

    async def _stop(self, session_id: str, user_id: str | None) -> None:
        """Cancel the active turns of a session, and wait; delete the waiting messages of `user_id`."""
        async with self._database.write() as connection:
            await lock_session_row(connection, session_id)
            cancelled = await self._cancel_turns(connection, session_id, CancelReason.STOP)
            queued = (inbox.c.session == session_id) & is_waiting(inbox)
            await tombstone_messages(connection, queued & (inbox.c.author == user_id))
        await self._wait_for_turns(cancelled)

    async def _cancel_turns(self, connection: AsyncConnection, session_id: str, reason: str) -> Sequence[str]:
        """Store a cancel reason in the active turns of a session, and notify all workers.

        An earlier reason is replaced only by a reset.
        """
        cancel = reason if reason == CancelReason.RESET else sa.func.coalesce(turns.c.cancel_reason, reason)
        update = sa.update(turns).where(turns.c.session == session_id, is_active(turns)).values(cancel_reason=cancel)
        turn_ids: Sequence[str] = (await connection.execute(update.returning(turns.c.id))).scalars().all()
        for turn_id in turn_ids:
            await self._notices.notify(connection, f"{turn_id} {reason}")
        return turn_ids

    async def _wait_for_turns(self, turn_ids: Sequence[str]) -> None:
        """Wait until cancelled turns have ended, at most `CANCEL_TIMEOUT_SECONDS`.

        If no worker is alive, return at once: a later worker ends the turns.
        """
        deadline = time.monotonic() + CANCEL_TIMEOUT_SECONDS
        while time.monotonic() < deadline:
            async with self._database.read() as connection:
                has_worker = sa.exists().where(workers.c.lease_expires_at > self._database.now)
                unfinished = sa.select(turns.c.id).where(turns.c.id.in_(turn_ids), is_active(turns), has_worker)
                if (await connection.execute(unfinished)).first() is None:
                    return
            await asyncio.sleep(CHECK_SECONDS)


async def wipe(database: Database) -> None:
    """Remove deleted data from the files of SQLite, by VACUUM and a WAL checkpoint.

    Nothing happens on PostgreSQL, whose autovacuum overwrites deleted data some time later.

    Raises:
        StoreError: another connection reads the database now; a later call may succeed.
    """
    if database.is_sqlite:
        async with database.read() as connection:
            for statement in ("VACUUM", "PRAGMA wal_checkpoint(TRUNCATE)"):
                await connection.exec_driver_sql(statement)


async def _count(connection: AsyncConnection, table: sa.Table, session_ids: Sequence[str]) -> int:
    return await connection.scalar(sa.select(sa.func.count()).where(table.c.session.in_(session_ids))) or 0


async def _count_files(connection: AsyncConnection, session_ids: Sequence[str]) -> int:
    return await _count(connection, blobs, session_ids) + await _count(connection, artifacts, session_ids)


async def _list_existing(connection: AsyncConnection, session_id: str) -> list[str]:
    tables = (sessions.c.id, messages.c.session, inbox.c.session, turns.c.session)
    queries = [sa.select(column).where(column == session_id).limit(1) for column in tables]
    queries[2] = queries[2].where(inbox.c.event_key.not_like(f"{TOMBSTONE_PREFIX}%"))
    rows = [(await connection.execute(query)).first() for query in queries]
    return [session_id] if any(rows) else []


async def _list_old(connection: AsyncConnection, before: float) -> tuple[list[str], list[str]]:
    oldest = sa.select(sa.func.min(messages.c.created_at)).where(messages.c.session == sessions.c.id).scalar_subquery()
    is_whole = _is_older_than(before)
    query = sa.select(sessions.c.id, is_whole).where(is_whole | (oldest < before)).order_by(sessions.c.id)
    rows = (await connection.execute(query)).all()
    return [id_ for id_, whole in rows if whole], [id_ for id_, whole in rows if not whole]


def _is_older_than(before: float) -> sa.ColumnElement[bool]:
    newest = sa.select(sa.func.max(messages.c.created_at)).where(messages.c.session == sessions.c.id).scalar_subquery()
    received = sa.select(sa.func.max(inbox.c.sent_at)).where(inbox.c.session == sessions.c.id).scalar_subquery()
    is_used = (sa.func.coalesce(newest, 0.0) >= before) | (sa.func.coalesce(received, 0.0) >= before)
    return ~is_used & (sessions.c.updated_at < before)
