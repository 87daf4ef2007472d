"""Approvals: tool calls that wait for a person's decision.

The approvers are a tuple: `author` (of the message that led to the call), `others` (anybody else), and the values of
`core.identity.permits`. The first decision counts, over all workers. After the last decision of a turn, a message in
its session starts the turn that resumes the run.
"""

import logging
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Literal

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from core.concurrency.retry import retry_store
from core.concurrency.tasks import run_every
from core.identity import AUTHOR, OTHERS, User, is_permitted
from core.inbox_message import InboxMessage
from core.secret_redaction import format_error
from core.sessions import state as scopes
from core.sessions.codec import to_json_value
from core.sessions.lifecycle import lock_session_row
from core.store.database import Database
from core.store.schema import approvals, inbox, sessions, turns
from core.store.turn_states import states_before
from core.store.upsert import insert_new
from core.tools.adk_confirmations import ArgumentPath, ConfirmationRequest, Decision, standing_approval_key
from core.turns.queries import get_inbox_rows, message_columns, parse_message
from core.turns.store import TurnStore
from core.turns.turn import Turn
from core.turns.worker import Worker

log = logging.getLogger(__name__)

HOUR_SECONDS = 3600.0

#: Seconds between two looks for approvals that nobody decided in time.
EXPIRY_INTERVAL_SECONDS = 15.0

Verdict = Literal["approved", "always", "denied", "expired"]


@dataclass(frozen=True, slots=True)
class Approval:
    """Tool call that waits, or waited, for a person's decision.

    Attributes:
        turn_id: the turn that asks.
        askers: the authors of the messages that led to the call.
        approvers: people and roles that may decide.
        message_ids: the platform's ids of the approval messages.
        inbox_message: the newest message that led to the call.
        verdict: None until a decision.
        decider: the name of the approver.
        decided_at: seconds since the epoch.
        app_name: the name of the agent's app.
        secret_paths: the paths of the arguments that the tool's schema marks as secret.
    """

    id: str
    turn_id: str
    session_id: str
    tool: str
    arguments: Any
    hint: str
    askers: frozenset[str]
    approvers: tuple[str, ...]
    may_allow_always: bool
    expires_at: float
    message_ids: tuple[str, ...]
    inbox_message: InboxMessage
    verdict: Verdict | None = None
    decider: str = ""
    decided_at: float = 0.0
    app_name: str = ""
    secret_paths: frozenset[ArgumentPath] = frozenset()

    def may_decide(self, person: User) -> bool:
        is_asker = person.id in self.askers
        return (
            is_permitted(self.approvers, person)
            or (AUTHOR in self.approvers and is_asker)
            or (OTHERS in self.approvers and not is_asker)
        )


@dataclass(frozen=True, slots=True)
class DecisionResult:
    """Result of an attempt to decide.

    Attributes:
        approval: the current approval; None if it does not exist.
        is_first: whether this attempt decided it.
    """

    approval: Approval | None = None
    is_first: bool = False


class ApprovalService:
    """Approvals in the `approvals` table.

    Args:
        approvers: people and roles that may decide if the tool names none.
        expiry_hours: hours until an approval is denied.
    """

    def __init__(
        self,
        database: Database,
        turns: TurnStore,
        worker: Worker,
        *,
        approvers: Sequence[str] = (AUTHOR,),
        expiry_hours: float = 24.0,
    ) -> None:
        self._database = database
        self._turns = turns
        self._worker = worker
        self._approvers = tuple(approvers)
        self._expiry_hours = expiry_hours

    async def save_answer(
        self,
        turn: Turn,
        text: str,
        usage: Mapping[str, Any],
        confirmations: Sequence[ConfirmationRequest],
        receipt: Mapping[str, Any] | None = None,
    ) -> list[Approval]:
        """Store the answer of a turn with its run record and its approvals.

        A turn that was reset or stopped meanwhile gets no approvals.

        Returns:
            The approvals of the turn, as `list_of_turn`.

        Raises:
            TurnLostError: another worker has taken the turn.
        """
        fence = self._turns.fencing_token(turn)

        async def work() -> list[Approval]:
            async with self._database.write() as connection:
                generation = await lock_session_row(connection, turn.session_id)
                can_answer = fence.owns_turn & turns.c.state.in_(states_before("answered"))
                values = {"text": text, "usage": dict(usage), "run_record": receipt, "state": "answered"}
                update = sa.update(turns).where(can_answer).values(values).returning(turns.c.cancel_reason)
                if (row := (await connection.execute(update)).one_or_none()) is None:
                    raise fence.lost_error
                if generation == turn.generation and row.cancel_reason is None:
                    await self._insert_approvals(connection, turn, confirmations)
                return await _select_approvals(connection, approvals.c.turn == turn.id)

        return await retry_store(work, what=f"turn {turn.id}")

    async def _insert_approvals(
        self, connection: AsyncConnection, turn: Turn, confirmations: Sequence[ConfirmationRequest]
    ) -> None:
        earlier = sa.select(approvals.c.authors).where(
            approvals.c.session == turn.session_id, approvals.c.run.in_({request.run for request in confirmations})
        )
        earlier_askers = {asker for askers in (await connection.execute(earlier)).scalars() for asker in askers}
        askers = sorted({message.author for message in turn.messages} | earlier_askers)
        now = time.time()
        for request in confirmations:
            approvers = self._approvers if request.approvers is None else request.approvers
            row = {
                "id": uuid.uuid5(uuid.NAMESPACE_OID, f"{turn.id} {request.confirmation_id}").hex[:16],
                "turn": turn.id,
                "session": turn.session_id,
                "generation": turn.generation,
                "run": request.run,
                "confirmation_call_id": request.confirmation_id,
                "tool_call_id": request.tool_call_id,
                "tool": request.tool,
                "arguments": to_json_value(dict(request.arguments)),
                "arguments_hash": request.arguments_hash,
                "hint": request.hint,
                "authors": askers,
                "approvers": list(approvers),
                # a standing approval would let authors decide for themselves
                "can_allow_always": request.may_allow_always and OTHERS not in approvers,
                "secret_paths": [list(path) for path in request.secret_paths],
                "requested_at": now,
                "expires_at": now + self._expiry_hours * HOUR_SECONDS,
                "chunks": [],
            }
            await insert_new(connection, approvals, row)

    async def list_of_turn(self, turn_id: str) -> list[Approval]:
        """Return the approvals of a turn, in their order.

        Raises:
            StoreError: the database cannot be read.
        """
        async with self._database.read() as connection:
            return await _select_approvals(connection, approvals.c.turn == turn_id)

    async def list_open(self, *, session_id: str = "", event_key: str = "") -> list[Approval]:
        """Return the undecided approvals of a session, or of the message with an event key.

        Raises:
            StoreError: the database cannot be read.
        """
        condition = approvals.c.session == session_id
        if event_key:
            condition = turns.c.origin.in_(sa.select(inbox.c.turn).where(inbox.c.event_key == event_key))
        async with self._database.read() as connection:
            return await _select_approvals(connection, condition & approvals.c.decision.is_(None))

    async def save_message_ids(self, id_: str, message_ids: Sequence[str], address: Mapping[str, Any]) -> None:
        """Save the message ids of an approval, and the address for the next turn's reply.

        Raises:
            StoreError: the database cannot be written.
        """
        async with self._database.write() as connection:
            update = (
                sa.update(approvals)
                .where(approvals.c.id == id_)
                .values(chunks=list(message_ids), address=dict(address))
            )
            await connection.execute(update)

    async def list_decisions(self, origin: str) -> list[Decision]:
        """Return the decisions on the turn that a turn of this origin resumes.

        Raises:
            StoreError: the database cannot be read.
        """
        asking = sa.select(inbox.c.parent).where(inbox.c.turn == origin, inbox.c.kind == "approval")
        query = sa.select(approvals).where(approvals.c.turn.in_(asking), approvals.c.decision.is_not(None))

        async def work() -> Sequence[sa.Row[Any]]:
            async with self._database.read() as connection:
                return (await connection.execute(query.order_by(approvals.c.requested_at, approvals.c.id))).all()

        rows = await retry_store(work, what=f"what was decided for turn {origin}")
        return [
            Decision(row.confirmation_call_id, row.arguments_hash, row.decision in ("approved", "always"))
            for row in rows
        ]

    async def decide(self, id_: str, person: User, verdict: Verdict) -> DecisionResult:
        """Decide an approval if it is open and the person may decide.

        Raises:
            StoreError: the database cannot be written after all retries.
        """

        async def work() -> DecisionResult:
            async with self._database.write() as connection:
                return await self._decide(connection, id_, verdict, person)

        decided = await retry_store(work, what=f"approval {id_}")
        self._worker.wake()
        return decided

    async def deny_expired(self) -> list[Approval]:
        """Deny the approvals that nobody decided in time, and return them.

        Raises:
            StoreError: the database cannot be used.
        """
        late = approvals.c.decision.is_(None) & (approvals.c.expires_at < time.time())
        async with self._database.read() as connection:
            ids = (await connection.execute(sa.select(approvals.c.id).where(late))).scalars().all()
        expired = []
        for id_ in ids:
            async with self._database.write() as connection:
                decided = await self._decide(connection, id_, "expired", None)
            if decided.is_first and decided.approval is not None:
                expired.append(decided.approval)
        if expired:
            self._worker.wake()
        return expired

    async def run_expiry(self, show: Callable[[Approval], Awaitable[None]]) -> None:
        """Deny the approvals that nobody decided in time, and call `show` with each of them, until cancelled."""

        async def expire() -> None:
            for approval in await self.deny_expired():
                try:
                    await show(approval)
                except Exception as error:
                    log.warning("an expired approval cannot be shown as denied: %s", format_error(error))

        await run_every(EXPIRY_INTERVAL_SECONDS, expire, what="approvals that nobody decided in time cannot be denied")

    async def _decide(
        self, connection: AsyncConnection, id_: str, verdict: Verdict, person: User | None
    ) -> DecisionResult:
        session = sa.select(approvals.c.session).where(approvals.c.id == id_)
        await lock_session_row(connection, (await connection.execute(session)).scalar_one_or_none())
        matches = await _select_approvals(connection, approvals.c.id == id_)
        if not matches:
            return DecisionResult()
        (approval,) = matches
        now = time.time()
        if approval.verdict is None and approval.expires_at < now:
            verdict, person = "expired", None
        is_permitted = person is None or (
            approval.may_decide(person) and (verdict != "always" or approval.may_allow_always)
        )
        if approval.verdict is not None or not is_permitted:
            return DecisionResult(approval)
        by = {"decided_by": person and person.id, "decided_by_name": person and person.name, "decided_at": now}
        this = sa.update(approvals).where(approvals.c.id == id_)
        await connection.execute(this.values(decision=verdict, **by))
        if verdict == "always":
            of = scopes.get_scope_owners("", "", approval.session_id)
            standing = {
                "by": person and person.id,
                "at": datetime.fromtimestamp(now, UTC).isoformat(timespec="seconds"),
            }
            await scopes.write_state(
                connection, of, {standing_approval_key(approval.app_name, approval.tool): standing}
            )
        await self._queue_next_turn(connection, approval, now)
        decider = person.name if person else ""
        return DecisionResult(replace(approval, verdict=verdict, decider=decider, decided_at=now), is_first=True)

    async def _queue_next_turn(self, connection: AsyncConnection, approval: Approval, now: float) -> None:
        """Queue a new turn that resumes the paused run, once all its approvals are decided."""
        open_ = sa.exists().where(approvals.c.turn == approval.turn_id, approvals.c.decision.is_(None))
        if (await connection.execute(sa.select(open_))).scalar_one():
            return
        key = f"approval:{approval.id}"
        where = sa.select(approvals.c.address).where(approvals.c.id == approval.id)
        address = (await connection.execute(where)).scalar_one() or approval.inbox_message.address
        message = replace(approval.inbox_message, event_key=key, address=address, text="", attachments=(), sent_at=now)
        generation = sa.select(sessions.c.generation).where(sessions.c.id == approval.session_id).scalar_subquery()
        row = message_columns(message, (await connection.execute(sa.select(generation))).scalar_one())
        values = {"message": message.to_json(), "kind": "approval", "parent": approval.turn_id}
        await insert_new(connection, inbox, row | values)
        await self._turns.notify_workers(connection)


async def _select_approvals(connection: AsyncConnection, where: sa.ColumnElement[bool]) -> list[Approval]:
    query = sa.select(approvals, turns.c.origin, turns.c.agent).join(turns, turns.c.id == approvals.c.turn)
    rows = (await connection.execute(query.where(where).order_by(approvals.c.requested_at, approvals.c.id))).all()
    result = []
    for row in rows:
        messages = [
            message for of in await get_inbox_rows(connection, row.origin) if (message := parse_message(of.message))
        ]
        try:
            result += [_to_approval(row, messages[-1])] if messages else []
        except TypeError as error:
            log.error("the request %s cannot be read: %s", row.id, format_error(error))
    return result


def _to_approval(row: sa.Row[Any], inbound: InboxMessage) -> Approval:
    return Approval(
        id=row.id,
        turn_id=row.turn,
        session_id=row.session,
        tool=row.tool,
        arguments=row.arguments,
        hint=row.hint,
        askers=frozenset(row.authors),
        approvers=tuple(row.approvers),
        may_allow_always=row.can_allow_always,
        expires_at=row.expires_at,
        message_ids=tuple(row.chunks),
        inbox_message=inbound,
        verdict=row.decision,
        decider=row.decided_by_name or "",
        app_name=row.agent,
        decided_at=row.decided_at or 0.0,
        secret_paths=frozenset(map(tuple, row.secret_paths)),
    )
