"""The inbox: each message is stored before the platform gets its acknowledgement."""

import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from enum import Enum, auto
from functools import cache
from math import inf
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from core.concurrency.retry import retry_store
from core.inbox.edits import ClaimedMessage, DeleteResult, EditResult, delete_message, edit_message
from core.inbox_message import InboxMessage, InboxOutcome
from core.sessions.lifecycle import begin_generation
from core.store.database import Database
from core.store.fast_path import Statement
from core.store.notify import CHANNEL
from core.store.schema import inbox, sessions, turns
from core.store.upsert import build_insert
from core.turns.queries import RerunKind, has_message, is_active, is_waiting, parse_inbox_message, record_message
from core.turns.rerun import RerunDenied, create_rerun_message
from core.turns.store import TurnStore
from core.turns.turn import CancelReason, TurnKind
from core.turns.worker import Worker
from core.usage.user_rate_limits import NO_RATE_LIMITS, RateLimitDenial, UserRateLimiter

T = TypeVar("T")


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
        self._agents = turns.agents
        self._worker = worker
        self._rates = rates

    async def accept(self, inbound: InboxMessage) -> AcceptResult | RateLimitDenial:
        """Store a message once, and wake the worker.

        If the message exceeds a user rate limit, only its key is stored.

        Raises:
            StoreError: it is not stored: the platform must not get its acknowledgement.
        """

        async def work(connection: AsyncConnection) -> AcceptResult | RateLimitDenial:
            # in the transaction of the insert: concurrent messages must not pass the limit together
            limited = await self._find_rate_limit(connection, inbound.event_key, inbound.author, inbound.place)
            if limited is not None:
                await record_message(connection, inbound, InboxOutcome.RATE_LIMITED)
                return limited
            return await self._insert(connection, inbound)

        if self._rates:
            accepted = await self._write(work)
        else:
            accepted = _to_result(await self._database.run(_INSERT, **self._insert_parameters(inbound)))
        if accepted in (AcceptResult.NEXT, AcceptResult.WAITING):
            self._worker.wake()
        return accepted

    async def _find_rate_limit(
        self, connection: AsyncConnection, event_key: str, author: str, place: str
    ) -> RateLimitDenial | None:
        if await has_message(connection, event_key):
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
        if not self._rates:
            return None
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
            await self._turns.notify_workers(connection)
            return (accepted, message), stopped

        operation = f"{kind} of turn {turn_id}"
        accepted, stopped = await retry_store(lambda: self._write(work), operation=operation)
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

        async def work(connection: AsyncConnection) -> EditResult | ClaimedMessage:
            revised = await edit_message(connection, event_key, text, is_mention=is_mention)
            await self._turns.notify_workers(connection)  # a claim skips a session whose row is locked
            return revised

        revised = await self._write(work)
        self._worker.wake()
        return revised

    async def delete_message(self, event_key: str) -> DeleteResult | ClaimedMessage:
        """Delete the text of a message that its author deleted.

        A running turn that answers no other message is cancelled.

        Raises:
            StoreError: nothing was changed.
        """

        async def work(connection: AsyncConnection) -> DeleteResult | ClaimedMessage:
            withdrawn = await delete_message(connection, event_key, self._turns)
            await self._turns.notify_workers(connection)
            return withdrawn

        withdrawn = await self._write(work)
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

        async def work(connection: AsyncConnection) -> tuple[list[InboxMessage], str | None] | RerunDenied | None:
            if await self._insert(connection, inbound, outcome=InboxOutcome.RESET) is AcceptResult.DUPLICATE:
                return None
            if await _has_later_turn(connection, inbound, until):
                update = sa.update(inbox).where(inbox.c.event_key == inbound.event_key)
                await connection.execute(update.values(outcome=InboxOutcome.SUPERSEDED))
                return RerunDenied.SUPERSEDED
            # lock turns before messages, as a claim does: the same order everywhere prevents deadlocks
            running_turn = await self._turns.request_cancel(connection, inbound.session_id, CancelReason.RESET)
            return await self._begin_generation(connection, inbound.session_id, until), running_turn

        done = await self._write(work)
        if done is None or isinstance(done, RerunDenied):
            return done
        dropped, running_turn = done
        self._worker.cancel_and_wake(running_turn, CancelReason.RESET)
        return dropped

    async def has_session(self, session_id: str) -> bool:
        """Return whether a session is stored."""
        query = sa.select(sessions.c.id).where(sessions.c.id == session_id)
        async with self._database.read() as connection:
            return (await connection.execute(query)).first() is not None

    async def _write(self, work: Callable[[AsyncConnection], Awaitable[T]]) -> T:
        async with self._database.write() as connection:
            return await work(connection)

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
        values = {**self._insert_parameters(inbound), "kind": kind, "parent": parent, "outcome": outcome}
        first, *others = _build_inserts(connection.dialect.name)
        rows = (await connection.execute(first, values)).all()
        for statement in others:
            await connection.execute(statement, values)
        return _to_result(rows)

    def _insert_parameters(self, inbound: InboxMessage) -> dict[str, Any]:
        """Return the parameters of the statements of `_build_inserts` for a message."""
        return {
            "event_key": inbound.event_key,
            "session": inbound.session_id,
            "place": inbound.place,
            "author": inbound.author,
            "message": inbound.to_json(),
            "sent_at": inbound.sent_at,
            "accepted_at": time.time(),
            "kind": "message",
            "parent": None,
            "outcome": None,
            "app": self._agents.default,
            "worker": self._turns.worker_id,
        }

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


def _to_result(rows: Sequence[Sequence[Any]]) -> AcceptResult:
    """Return the result of accepting a message, from the rows that `_build_inserts` returns."""
    if not rows:
        return AcceptResult.DUPLICATE
    return AcceptResult.WAITING if rows[0][0] else AcceptResult.NEXT


@cache
def _build_inserts(dialect: str) -> tuple[sa.Insert, ...]:
    """Return the statements that insert a message and its session, each once.

    The first one returns a row for a new message: whether others of its session come before it. PostgreSQL: one
    statement, which waits for whoever has locked the session, so that the message gets the generation after a reset.
    """
    is_postgres = dialect == "postgresql"
    new = {name: sa.bindparam(name, type_=inbox.c[name].type) for name in _INSERTED}
    key, session, accepted_at = new["event_key"], new["session"], new["accepted_at"]
    stored = sa.select(sessions.c.generation).where(sessions.c.id == session)
    generation = stored.with_for_update().cte("stored") if is_postgres else stored.subquery("stored")
    columns = [sa.func.coalesce(sa.select(generation.c.generation).scalar_subquery(), 1), *new.values()]
    insert = (
        build_insert(dialect, inbox).from_select(["generation", *new], sa.select(*columns)).on_conflict_do_nothing()
    )
    others = inbox.alias("others")
    waits = sa.exists().where(others.c.session == session, is_waiting(others), others.c.event_key != key)
    is_behind = waits | sa.exists().where(turns.c.session == session, is_active(turns))
    new_session = sa.select(session, sa.bindparam("app", type_=sa.Text), new["place"], accepted_at, accepted_at)
    is_stored = sa.exists().where(inbox.c.event_key == key)
    is_new = inbox.c.accepted_at == accepted_at
    begin = build_insert(dialect, sessions).from_select(
        ["id", "app", "user_id", "created_at", "updated_at"],
        new_session.where(~is_stored if is_postgres else is_stored.where(is_new)),
    )
    begin = begin.on_conflict_do_nothing()
    if not is_postgres:
        return insert.returning(is_behind), begin
    notified = sa.func.pg_notify(CHANNEL, sa.bindparam("worker", type_=sa.Text))
    return (insert.returning(is_behind, notified).add_cte(begin.cte("begun")),)


#: Columns of `inbox` that are given to `_build_inserts`.
_INSERTED = (
    "event_key",
    "session",
    "place",
    "author",
    "message",
    "sent_at",
    "accepted_at",
    "kind",
    "parent",
    "outcome",
)

_INSERT = Statement(_build_inserts)


async def _has_later_turn(connection: AsyncConnection, reset: InboxMessage, until: float) -> bool:
    """Return whether a turn of the session has a message that was sent after `until`."""
    later = inbox.c.turn.is_not(None) & inbox.c.parent.is_(None) & (inbox.c.sent_at > until)
    query = sa.select(sa.exists().where(inbox.c.session == reset.session_id, later))
    return bool((await connection.execute(query)).scalar_one())
