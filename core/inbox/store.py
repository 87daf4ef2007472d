"""The inbox: each message is stored before the platform gets its acknowledgement."""

from collections.abc import Collection
from enum import Enum, auto
from math import inf

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from core.inbox.edits import ClaimedMessage, DeleteResult, EditResult, delete_message, edit_message
from core.inbox_message import InboxMessage, InboxOutcome
from core.sessions.lifecycle import begin_generation, lock_session_row, new_session_row
from core.store.database import Database
from core.store.schema import inbox, sessions, turns
from core.store.upsert import build_insert, insert_new
from core.turns.queries import (
    RerunKind,
    has_message,
    is_active,
    is_waiting,
    message_columns,
    parse_inbox_message,
    record_message,
)
from core.turns.rerun import RerunDenied, create_rerun_message
from core.turns.store import TurnStore
from core.turns.turn import CancelReason, TurnKind
from core.turns.worker import Worker
from core.usage.user_rate_limits import NO_RATE_LIMITS, RateLimitDenial, UserRateLimiter


class AcceptResult(Enum):
    """Result of accepting a message.

    Attributes:
        NEXT: stored; a turn begins as soon as a worker is free.
        WAITING: stored; other messages of the session come first.
        DUPLICATE: it was stored before, and nothing changes.
    """

    NEXT = auto()
    WAITING = auto()
    DUPLICATE = auto()


#: Result of a rerun request.
RerunResult = tuple[AcceptResult, InboxMessage] | RerunDenied | RateLimitDenial


class InboxStore:
    """Store of accepted messages, in the table `inbox`, each once by its event key.

    `accept` and `reset_session` raise at once while the database is unavailable: Slack waits 3 s for its
    acknowledgement, and delivers again. A button press comes once, after its acknowledgement: `request_rerun` retries.

    Args:
        worker: is woken when a message is stored.
        rates: limits of messages per person and place.
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
        """Store a message once, and wake the worker.

        If the message exceeds a user rate limit, only its key is stored.

        Raises:
            StoreError: it is not stored: the platform must not get its acknowledgement.
        """
        async with self._database.write() as connection:
            # in the transaction of the insert: concurrent messages must not pass the limit together
            limited = await self._find_rate_limit(connection, inbound.event_key, inbound.author, inbound.place)
            if limited is not None:
                await record_message(connection, inbound, InboxOutcome.RATE_LIMITED)
                return limited
            accepted = await self._insert(connection, inbound)
        if accepted is not AcceptResult.DUPLICATE:
            self._worker.wake()
        return accepted

    async def _find_rate_limit(
        self, connection: AsyncConnection, event_key: str, author: str, place: str
    ) -> RateLimitDenial | None:
        if not self._rates or await has_message(connection, event_key):
            return None
        until = await self._rates.limited_until(connection, author=author, place=place)
        return None if until is None else RateLimitDenial(until)

    async def find_rate_limit(self, event_key: str, *, author: str, place: str) -> RateLimitDenial | None:
        """Return the user rate limit that a new message would exceed now, if there is one.

        A message that is stored already exceeds none.

        Args:
            author: the platform's id of the author.
            place: as `InboxMessage.place`.

        Raises:
            StoreError: the database cannot be read.
        """
        async with self._database.read() as connection:
            return await self._find_rate_limit(connection, event_key, author, place)

    async def has_message(self, event_key: str) -> bool:
        """Return whether the inbox has a row with this event key, whatever its outcome.

        Raises:
            StoreError: the database cannot be read.
        """
        async with self._database.read() as connection:
            return await has_message(connection, event_key)

    async def request_rerun(self, turn_id: str, *, author: str | None, kind: RerunKind) -> RerunResult:
        """Store a request to answer the messages of a turn again, at most once per turn.

        A `retry` comes after all messages that wait in the session; the others are denied if a message follows.
        `revise` also stops a turn that still answers the old text.

        Args:
            author: the platform's id of the person who asks, an author of the messages; None for an operator.

        Returns:
            The result with the message that is answered again; or the reason why the request is denied.

        Raises:
            StoreError: it could not be stored, after all retries.
        """

        async def work(connection: AsyncConnection) -> tuple[RerunResult, str | None]:
            if author and self._rates and (until := await self._limited_until(connection, turn_id, author)) is not None:
                return RateLimitDenial(until), None
            message = await create_rerun_message(connection, turn_id, author=author, kind=kind)
            if isinstance(message, RerunDenied):
                return message, None
            accepted = await self._insert(connection, message, kind=kind, parent=turn_id)
            stopped = None
            if kind == "revise" and accepted is not AcceptResult.DUPLICATE:
                stopped = await self._turns.request_cancel(connection, message.session_id, CancelReason.STOP)
            return (accepted, message), stopped

        accepted, stopped = await self._database.write_with_retries(work, operation=f"{kind} of turn {turn_id}")
        self._worker.cancel_and_wake(stopped, CancelReason.STOP)
        return accepted

    async def _limited_until(self, connection: AsyncConnection, turn_id: str, author: str) -> float | None:
        """Return when a person may write again at a turn's place; None if they may now."""
        query = sa.select(sessions.c.user_id).join(turns, turns.c.session == sessions.c.id).where(turns.c.id == turn_id)
        place = (await connection.execute(query)).scalar_one_or_none() or ""
        return await self._rates.limited_until(connection, author=author, place=place)

    async def edit_message(self, event_key: str, text: str, *, is_mention: bool = False) -> EditResult | ClaimedMessage:
        """Store the new text of an edited message, and wake the worker.

        See `core.inbox.edits.edit_message` for the arguments.

        Raises:
            StoreError: nothing was changed.
        """
        async with self._database.write() as connection:
            revised = await edit_message(connection, event_key, text, is_mention=is_mention)
            await self._turns.notify_workers(connection)  # a claim skips a session whose row is locked
        self._worker.wake()
        return revised

    async def delete_message(self, event_key: str) -> DeleteResult | ClaimedMessage:
        """Delete the text of a message that its author deleted.

        A running turn that answers no other message is cancelled.

        Raises:
            StoreError: nothing was changed.
        """
        async with self._database.write() as connection:
            withdrawn = await delete_message(connection, event_key, self._turns)
            await self._turns.notify_workers(connection)
        ended = withdrawn.turn_id if isinstance(withdrawn, ClaimedMessage) and withdrawn.is_turn_cancelled else None
        self._worker.cancel_and_wake(ended, CancelReason.MESSAGE_DELETED)
        return withdrawn

    async def record_command(
        self, inbound: InboxMessage, name: str, *, outcome: InboxOutcome = InboxOutcome.COMMAND
    ) -> bool:
        """Store that a message was a command, without its text.

        Args:
            name: the name of the command.

        Returns:
            Whether the message is new.

        Raises:
            StoreError: it could not be stored.
        """
        async with self._database.write() as connection:
            return await record_message(connection, inbound, outcome, kind=name)

    async def has_newer_command(self, inbound: InboxMessage, *, names: Collection[str]) -> bool:
        """Return whether one of these commands came after a message, in its session.

        Raises:
            StoreError: the database cannot be read.
        """
        later = (inbox.c.session == inbound.session_id) & (inbox.c.sent_at > inbound.sent_at)
        given = sa.exists().where(later, inbox.c.outcome == InboxOutcome.COMMAND, inbox.c.kind.in_(names))
        async with self._database.read() as connection:
            return bool(await connection.scalar(sa.select(given)))

    async def reset_session(
        self, inbound: InboxMessage, *, until: float = inf
    ) -> list[InboxMessage] | RerunDenied | None:
        """Store a reset and begin a new generation of its session, without history.

        Messages that wait are dropped, and the active turn is cancelled.

        Args:
            inbound: the message that asks for the reset.
            until: seconds since the epoch; messages that were sent later stay. If a turn has one of them, nothing is
                reset.

        Returns:
            The dropped messages; None for a duplicate; `SUPERSEDED` if the reset comes too late.

        Raises:
            StoreError: nothing was changed.
        """
        async with self._database.write() as connection:
            if await self._insert(connection, inbound, outcome=InboxOutcome.RESET) is AcceptResult.DUPLICATE:
                return None
            if await _has_later_turn(connection, inbound, until):
                update = sa.update(inbox).where(inbox.c.event_key == inbound.event_key)
                await connection.execute(update.values(outcome=InboxOutcome.SUPERSEDED))
                return RerunDenied.SUPERSEDED
            # lock turns before messages, as a claim does: the same order everywhere prevents deadlocks
            running_turn = await self._turns.request_cancel(connection, inbound.session_id, CancelReason.RESET)
            dropped = await self._begin_generation(connection, inbound.session_id, until)
        self._worker.cancel_and_wake(running_turn, CancelReason.RESET)
        return dropped

    async def has_session(self, session_id: str) -> bool:
        """Return whether a session is stored."""
        query = sa.select(sessions.c.id).where(sessions.c.id == session_id)
        async with self._database.read() as connection:
            return (await connection.execute(query)).first() is not None

    async def _insert(
        self,
        connection: AsyncConnection,
        inbound: InboxMessage,
        *,
        kind: TurnKind = "message",
        parent: str | None = None,
        outcome: InboxOutcome | None = None,
    ) -> AcceptResult:
        """Insert a message and its session, in the caller's transaction.

        Args:
            kind: `message`, or the kind of a rerun.
            parent: the turn that a rerun repeats.
            outcome: the reason why no turn answers the message; None if one will.
        """
        # PostgreSQL: the lock makes the message wait for a reset, and gives it the generation after that
        generation = await lock_session_row(connection, inbound.session_id)
        row = message_columns(inbound, generation or 1) | {"message": inbound.to_json()}
        row |= {"kind": kind, "parent": parent, "outcome": outcome}
        insert = build_insert(connection.dialect.name, inbox).values(row).on_conflict_do_nothing()
        id_ = (await connection.execute(insert.returning(inbox.c.id))).scalar_one_or_none()
        if id_ is None:
            return AcceptResult.DUPLICATE
        if generation is None:
            new = new_session_row(inbound.session_id, self._turns.agents.default, inbound.place)
            await insert_new(connection, sessions, new)
        await self._turns.notify_workers(connection)
        in_session = inbox.c.session == inbound.session_id
        waits = sa.exists().where(in_session, is_waiting(inbox), inbox.c.id != id_)
        runs = sa.exists().where(turns.c.session == inbound.session_id, is_active(turns))
        is_behind = await connection.scalar(sa.select(waits | runs))
        return AcceptResult.WAITING if is_behind else AcceptResult.NEXT

    async def _begin_generation(self, connection: AsyncConnection, session_id: str, until: float) -> list[InboxMessage]:
        """Begin a new generation of a session, and delete the texts of its ended turns.

        Messages that wait and were sent after `until` belong to the new generation, except reruns.

        Returns:
            The other messages that waited; they are dropped.
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
        return [message for data in dropped if (message := parse_inbox_message(data))]


async def _has_later_turn(connection: AsyncConnection, reset: InboxMessage, until: float) -> bool:
    """Return whether a turn of the session has a message that was sent after `until`."""
    later = inbox.c.turn.is_not(None) & inbox.c.parent.is_(None) & (inbox.c.sent_at > until)
    query = sa.select(sa.exists().where(inbox.c.session == reset.session_id, later))
    return bool((await connection.execute(query)).scalar_one())
