"""The inbox: stores each message before the platform gets its acknowledgement."""

from collections.abc import Collection
from functools import cache
from math import inf
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from core.inbox.edits import ClaimedMessage, DeleteResult, EditResult, delete_message, edit_message
from core.messages.inbox_message import AcceptResult, InboxMessage, InboxOutcome
from core.privacy.redaction import delete_message_files
from core.sessions.lifecycle import begin_generation, lock_session_row, new_session_row
from core.store.database import Database, Rows
from core.store.notify import build_notification
from core.store.schema import inbox, sessions, turns
from core.store.upsert import build_insert, insert_or_ignore
from core.turns.queries import (
    RerunKind,
    has_message,
    is_active,
    is_waiting,
    list_readable_messages,
    message_columns,
    record_message,
)
from core.turns.rerun import RerunDenial, create_rerun_message
from core.turns.store import TurnStore
from core.turns.turn import CancelReason, TurnKind
from core.turns.worker import Worker
from core.usage.user_rate_limits import NO_RATE_LIMITS, RateLimitDenial, UserRateLimiter

#: Result of a request for a rerun: the message to answer again, or the denial.
RerunResult = tuple[AcceptResult, InboxMessage] | RerunDenial | RateLimitDenial


class InboxStore:
    """Store of accepted messages, in the table `inbox`, each once by its event key.

    The event key is the same for each delivery of a message. `accept` and `reset_session` raise at once if the database
    is unavailable: Slack waits 3 s for the acknowledgement, and delivers the message again. A platform sends a button
    press only once, so `request_rerun` retries for at most `RETRY_TIMEOUT_SECONDS`: see `retry_store`.
    """

    def __init__(
        self,
        database: Database,
        turns: TurnStore,
        worker: Worker,
        *,
        rates: UserRateLimiter = NO_RATE_LIMITS,
    ) -> None:
        self._database = database
        self._turns = turns
        self._worker = worker
        self._rates = rates

    async def accept(self, inbound: InboxMessage) -> AcceptResult | RateLimitDenial:
        """Store a message once, with its session, and make the worker claim turns.

        A new message that exceeds a user rate limit is not stored.

        Raises:
            StoreError: the message is not stored, so that the platform must not get its acknowledgement.
        """
        row = self._build_row(inbound)
        insert = _build_insert(self._database.engine.dialect.name)
        if not self._rates and (inserted := await self._database.run(insert, **row)):
            accepted = _get_result(inserted)
        else:
            async with self._database.write() as connection:
                if not await has_message(connection, inbound.event_key):
                    # in the transaction of the insert: concurrent messages must not pass the limit together
                    limited = await self._rates.find_denial(
                        connection, author=inbound.author, place=inbound.place, sent_at=inbound.sent_at
                    )
                    if limited is not None:
                        return limited
                    new_session = new_session_row(inbound.session_id, self._turns.agents.default, inbound.place)
                    await insert_or_ignore(connection, sessions, new_session)
                accepted = await self._insert(connection, row)
        if accepted is not AcceptResult.DUPLICATE:
            self._worker.wake(inbound.session_id)
        return accepted

    async def find_limit_denial(self, event_key: str, *, author: str, place: str) -> RateLimitDenial | None:
        """Return the user rate limit that a message would exceed now, unless it is stored already; store nothing."""
        if not self._rates:
            return None
        async with self._database.read() as connection:
            if await has_message(connection, event_key):
                return None
            return await self._rates.find_denial(connection, author=author, place=place)

    async def has_message(self, event_key: str) -> bool:
        """Return whether the inbox has a row with this event key, whatever its outcome."""
        async with self._database.read() as connection:
            return await has_message(connection, event_key)

    async def request_rerun(self, turn_id: str, *, author: str | None, kind: RerunKind) -> RerunResult:
        """Store a request to answer the messages of a turn again, at most once per turn.

        It wakes the workers. A `retry` is answered after all messages that wait in the session. The kinds `regenerate`
        and `revise` are denied if a newer message or turn follows. A `revise` also cancels the running turn, which has
        the old text. An accepted request deletes the approvals and questions of the turn to people.

        Args:
            author: the platform's id of the person who asks; None for an operator. The request is denied unless they
                wrote one of the messages.

        Returns:
            A `RateLimitDenial`, which is checked first; or a `RerunDenial`. Otherwise the `AcceptResult` of the
            request, and its message, a copy of the newest message of the turn. For `DUPLICATE`, the message is not
            stored: a request for this turn waits or runs.
        """

        async def work(connection: AsyncConnection) -> tuple[RerunResult, str | None]:
            if author and self._rates and (until := await self._get_limit_end(connection, turn_id, author)) is not None:
                return RateLimitDenial(until), None
            message = await create_rerun_message(connection, turn_id, author=author, kind=kind)
            if isinstance(message, RerunDenial):
                return message, None
            accepted = await self._insert(connection, self._build_row(message, kind=kind, parent=turn_id))
            stopped = None
            if kind == "revise" and accepted is not AcceptResult.DUPLICATE:
                stopped = await self._turns.request_cancel(connection, message.session_id, CancelReason.STOP)
            return (accepted, message), stopped

        accepted, stopped = await self._database.write_with_retries(work, operation=f"{kind} of turn {turn_id}")
        self._worker.cancel_and_wake(stopped, CancelReason.STOP)
        return accepted

    async def _get_limit_end(self, connection: AsyncConnection, turn_id: str, author: str) -> float | None:
        """Return the time until which a person, or the place of a turn's session, exceeds a user rate limit."""
        query = sa.select(sessions.c.user_id).join(turns, turns.c.session == sessions.c.id).where(turns.c.id == turn_id)
        place = (await connection.execute(query)).scalar_one_or_none() or ""
        return await self._rates.get_limit_end(connection, author=author, place=place)

    async def edit_message(self, event_key: str, text: str, *, is_mention: bool = False) -> EditResult | ClaimedMessage:
        """Store the new text of an edited message: see `core.inbox.edits.edit_message`; make the worker claim turns."""
        async with self._database.write() as connection:
            revised = await edit_message(connection, event_key, text, is_mention=is_mention)
            await self._turns.notify_workers(connection)  # a claim skips a session whose row is locked
        self._worker.wake()
        return revised

    async def delete_message(self, event_key: str) -> DeleteResult | ClaimedMessage:
        """Delete the stored text and files of a message that its author deleted on the platform.

        The files are also deleted from the prompts of other messages: see `core.inbox.edits.delete_message` for the
        rest.
        """
        async with self._database.write() as connection:
            withdrawn = await delete_message(connection, event_key, self._turns)
            await delete_message_files(connection, event_key)
            await self._turns.notify_workers(connection)
        ended = withdrawn.turn_id if isinstance(withdrawn, ClaimedMessage) and withdrawn.is_turn_cancelled else None
        self._worker.cancel_and_wake(ended, CancelReason.MESSAGE_DELETED)
        return withdrawn

    async def has_newer_command(self, inbound: InboxMessage, *, names: Collection[str]) -> bool:
        """Return whether one of these commands was sent later in a message's session, by any author."""
        later = (inbox.c.session == inbound.session_id) & (inbox.c.sent_at > inbound.sent_at)
        is_command = inbox.c.outcome.in_((InboxOutcome.COMMAND, InboxOutcome.HANDLED))
        given = sa.exists().where(later, is_command, inbox.c.kind.in_(names))
        async with self._database.read() as connection:
            return bool(await connection.scalar(sa.select(given)))

    async def reset_session(
        self, inbound: InboxMessage, *, until: float = inf
    ) -> list[InboxMessage] | RerunDenial | None:
        """Reset a session: delete its history, and begin a new generation of the session.

        The request is stored in the inbox. Messages that wait get the outcome `dropped`, the active turn is cancelled,
        and the texts of earlier messages and turns are deleted. Messages that were sent after `until` wait on in the
        new generation.

        Returns:
            The dropped messages, maybe none. None if the request was stored before. `RerunDenial.SUPERSEDED` if a turn
            has claimed a message that was sent after `until`: nothing is reset.
        """
        async with self._database.write() as connection:
            # PostgreSQL: the lock makes later messages wait for the reset
            await lock_session_row(connection, inbound.session_id)
            await self._turns.notify_workers(connection)
            if not await record_message(connection, inbound, InboxOutcome.RESET, kind="reset"):
                return None
            if await _has_later_turn(connection, inbound, until):
                update = sa.update(inbox).where(inbox.c.event_key == inbound.event_key)
                await connection.execute(update.values(outcome=InboxOutcome.SUPERSEDED))
                return RerunDenial.SUPERSEDED
            # lock turns before messages, as a claim does: the same order everywhere prevents deadlocks
            running_turn = await self._turns.request_cancel(connection, inbound.session_id, CancelReason.RESET)
            dropped = await self._begin_generation(connection, inbound.session_id, until)
        self._worker.cancel_and_wake(running_turn, CancelReason.RESET)
        return dropped

    async def has_session(self, session_id: str) -> bool:
        query = sa.select(sessions.c.id).where(sessions.c.id == session_id)
        async with self._database.read() as connection:
            return (await connection.execute(query)).first() is not None

    def _build_row(
        self, inbound: InboxMessage, *, kind: TurnKind = "message", parent: str | None = None
    ) -> dict[str, Any]:
        row = {"message": inbound.to_json(), "kind": kind, "parent": parent, "worker": self._turns.worker_id}
        return message_columns(inbound, generation=None) | row  # the statement reads the generation

    async def _insert(self, connection: AsyncConnection, row: dict[str, Any]) -> AcceptResult:
        inserted = (await connection.execute(_build_insert(connection.dialect.name), row)).all()
        if not inserted:
            await self._turns.notify_workers(connection)  # a claim skips a session whose row is locked
        return _get_result(inserted)

    async def _begin_generation(self, connection: AsyncConnection, session_id: str, until: float) -> list[InboxMessage]:
        """Begin a new generation of a session, delete the data of the former one, and return the dropped messages.

        The history is deleted, and so are the texts of ended turns and of their messages. The texts of an active turn
        stay until it ends. Waiting messages get the outcome `dropped`, except messages that were sent after `until` and
        are not requests for reruns: these move to the new generation.
        """
        ended = (turns.c.session == session_id) & ~is_active(turns)  # the text of an active turn is deleted at its end
        await connection.execute(sa.update(turns).where(ended).values(text=None, run_record=None))
        generation = await begin_generation(connection, session_id)
        in_session = inbox.c.session == session_id
        later = in_session & is_waiting(inbox) & (inbox.c.sent_at > until) & inbox.c.parent.is_(None)
        await connection.execute(sa.update(inbox).where(later).values(generation=generation))
        waiting = in_session & is_waiting(inbox) & (inbox.c.generation != generation)
        dropped = (await connection.execute(sa.select(inbox.c.message).where(waiting))).scalars().all()
        await connection.execute(sa.update(inbox).where(waiting).values(outcome=InboxOutcome.DROPPED))
        is_needed = sa.exists().where(
            turns.c.session == session_id, is_active(turns), inbox.c.turn.in_((turns.c.id, turns.c.origin))
        )
        ended = in_session & ~is_waiting(inbox) & ~is_needed
        await connection.execute(sa.update(inbox).where(ended).values(message=None, edited_message=None))
        return list_readable_messages(dropped)


@cache
def _build_insert(dialect: str) -> sa.Insert:
    """Return the `INSERT` of a message; it returns no row for a stored event key, and without the session.

    Else it notifies the workers, and returns whether the session has an active turn or other waiting messages.
    PostgreSQL: messages that are inserted at the same time do not see each other.
    """
    names = ("event_key", "session", "place", "author", "message", "sent_at", "accepted_at", "kind", "parent")
    values = {name: sa.bindparam(name, type_=inbox.c[name].type) for name in names}
    row = sa.select(*values.values(), sessions.c.generation).where(sessions.c.id == values["session"])
    # PostgreSQL: the lock makes the message wait for a reset, and gives it the generation after that
    insert = build_insert(dialect, inbox).from_select([*names, "generation"], row.with_for_update())
    others = inbox.alias("others")
    in_session = others.c.session == values["session"]
    is_other = others.c.event_key != values["event_key"]
    waits = sa.exists().where(in_session, is_waiting(others), is_other)
    runs = sa.exists().where(turns.c.session == values["session"], is_active(turns))
    notification = [] if dialect == "sqlite" else [build_notification(sa.bindparam("worker", type_=sa.Text))]
    return insert.on_conflict_do_nothing().returning(waits | runs, *notification)


def _get_result(inserted: Rows) -> AcceptResult:
    if not inserted:
        return AcceptResult.DUPLICATE
    return AcceptResult.WAITING if inserted[0][0] else AcceptResult.NEXT


async def _has_later_turn(connection: AsyncConnection, reset: InboxMessage, until: float) -> bool:
    """Return whether a turn has claimed a session's message sent after a time; requests for reruns do not count."""
    later = inbox.c.turn.is_not(None) & inbox.c.parent.is_(None) & (inbox.c.sent_at > until)
    query = sa.select(sa.exists().where(inbox.c.session == reset.session_id, later))
    return bool((await connection.execute(query)).scalar_one())
