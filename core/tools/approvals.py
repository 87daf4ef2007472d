"""Approvals: calls of tools that wait for a person's word.

Who may decide is told by a tuple: `author` (of the message that led to the call), `others` (anybody else), and what
`core.identity.is_permitted` takes. The first decision holds, over all workers. When all is decided that a turn
has asked for, a message of its session says so, and the turn that takes it goes on with the run.
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
    """One call that waits, or has waited, for a person's word.

    Attributes:
        turn_id: the turn that asks.
        askers: the authors of what led to it.
        approvers: who may decide.
        chunks: the platform's ids of the messages that show it.
        inbound: what led to it: the newest of the messages.
        verdict: None as long as nobody has decided.
        decider: the name of who has.
        decided_at: in seconds since the epoch.
        agent: the name of the one whose tool it is.
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
    """What became of the wish to decide.

    Attributes:
        approval: as it stands now; None if it is forgotten.
        is_first: whether this has decided it.
    """

    approval: Approval | None = None
    is_first: bool = False


class ApprovalService:
    """The `approvals` table.

    Args:
        approvers: who may decide where a tool does not say it.
        hours: after so many it is denied.
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
        """Store the final text of a turn that needs approvals, its run record, and the approvals. A turn that was reset
        or stopped meanwhile gets none.

        Returns:
            The approvals of the turn: see `asked`.

        Raises:
            TurnLostError: another worker has taken the turn.
        """
        fence = self._turns.fencing_token(turn)

        async def work() -> list[Approval]:
            async with self._database.write() as connection:
                generation = await lock_session_row(connection, turn.session_id)
                here = fence.owns_turn & turns.c.state.in_(states_before("answered"))
                new = {"text": text, "usage": dict(usage), "run_record": receipt, "state": "answered"}
                kept = sa.update(turns).where(here).values(new).returning(turns.c.cancel_reason)
                if (row := (await connection.execute(kept)).one_or_none()) is None:
                    raise fence.lost_error
                if generation == turn.generation and row.cancel_reason is None:
                    await self._insert_approvals(connection, turn, confirmations)
                return await _select_approvals(connection, approvals.c.turn == turn.id)

        return await retry_store(work, what=f"turn {turn.id}")

    async def _insert_approvals(
        self, connection: AsyncConnection, turn: Turn, confirmations: Sequence[ConfirmationRequest]
    ) -> None:
        earlier = sa.select(approvals.c.authors).where(
            approvals.c.session == turn.session_id, approvals.c.run.in_({ask.run for ask in confirmations})
        )
        states_before = {asker for askers in (await connection.execute(earlier)).scalars() for asker in askers}
        askers = sorted({message.author for message in turn.messages} | states_before)
        now = time.time()
        for ask in confirmations:
            approvers = self._approvers if ask.approvers is None else ask.approvers
            row = {
                "id": uuid.uuid5(uuid.NAMESPACE_OID, f"{turn.id} {ask.confirmation_id}").hex[:16],
                "turn": turn.id,
                "session": turn.session_id,
                "generation": turn.generation,
                "run": ask.run,
                "confirmation_call_id": ask.confirmation_id,
                "tool_call_id": ask.tool_call_id,
                "tool": ask.tool,
                "arguments": to_json_value(dict(ask.arguments)),
                "arguments_hash": ask.arguments_hash,
                "hint": ask.hint,
                "authors": askers,
                "approvers": list(approvers),
                # who must not decide for himself would have decided for himself with the next call
                "can_allow_always": ask.may_allow_always and OTHERS not in approvers,
                "secret_paths": [list(path) for path in ask.secret_paths],
                "requested_at": now,
                "expires_at": now + self._expiry_hours * HOUR_SECONDS,
                "chunks": [],
            }
            await insert_new(connection, approvals, row)

    async def list_of_turn(self, turn_id: str) -> list[Approval]:
        """What a turn has asked for, in its order.

        Raises:
            StoreError: the database cannot be read.
        """
        async with self._database.read() as connection:
            return await _select_approvals(connection, approvals.c.turn == turn_id)

    async def list_open(self, *, session_id: str = "", event_key: str = "") -> list[Approval]:
        """What waits for a decision in a session, or has come of the message with that key.

        Raises:
            StoreError: the database cannot be read.
        """
        here = approvals.c.session == session_id
        if event_key:
            here = turns.c.origin.in_(sa.select(inbox.c.turn).where(inbox.c.event_key == event_key))
        async with self._database.read() as connection:
            return await _select_approvals(connection, here & approvals.c.decision.is_(None))

    async def save_message_ids(self, id_: str, message_ids: Sequence[str], address: Mapping[str, Any]) -> None:
        """Keep the ids of the messages that show one, and where is shown what comes of it.

        Raises:
            StoreError: they could not be kept.
        """
        async with self._database.write() as connection:
            kept = (
                sa.update(approvals)
                .where(approvals.c.id == id_)
                .values(chunks=list(message_ids), address=dict(address))
            )
            await connection.execute(kept)

    async def list_decisions(self, origin: str) -> list[Decision]:
        """What was decided of all that the turn was asking for which a turn of this origin goes on.

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
        """Decide, if nobody has, and if this person may.

        Raises:
            StoreError: it could not be kept, however often that was tried.
        """

        async def work() -> DecisionResult:
            async with self._database.write() as connection:
                return await self._decide(connection, id_, verdict, person)

        decided = await retry_store(work, what=f"approval {id_}")
        self._worker.wake()
        return decided

    async def deny_expired(self) -> list[Approval]:
        """Deny what nobody has decided in time.

        Returns:
            What was denied.

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
        found = await _select_approvals(connection, approvals.c.id == id_)
        if not found:
            return DecisionResult()
        (approval,) = found
        now = time.time()
        if approval.verdict is None and approval.expires_at < now:
            verdict, person = "expired", None
        may = person is None or (approval.may_decide(person) and (verdict != "always" or approval.may_allow_always))
        if approval.verdict is not None or not may:
            return DecisionResult(approval)
        by = {"decided_by": person and person.id, "decided_by_name": person and person.name, "decided_at": now}
        this = sa.update(approvals).where(approvals.c.id == id_)
        await connection.execute(this.values(decision=verdict, **by))
        if verdict == "always":
            of = scopes.get_scope_owners("", "", approval.session_id)
            told = {"by": person and person.id, "at": datetime.fromtimestamp(now, UTC).isoformat(timespec="seconds")}
            await scopes.write_state(connection, of, {standing_approval_key(approval.app_name, approval.tool): told})
        await self._queue_next_turn(connection, approval, now)
        decider = person.name if person else ""
        return DecisionResult(replace(approval, verdict=verdict, decider=decider, decided_at=now), is_first=True)

    async def _queue_next_turn(self, connection: AsyncConnection, approval: Approval, now: float) -> None:
        """Have the run go on, if nothing else that its turn asks for is to be decided."""
        open_ = sa.exists().where(approvals.c.turn == approval.turn_id, approvals.c.decision.is_(None))
        if (await connection.execute(sa.select(open_))).scalar_one():
            return
        key = f"approval:{approval.id}"
        where = sa.select(approvals.c.address).where(approvals.c.id == approval.id)
        address = (await connection.execute(where)).scalar_one() or approval.inbox_message.address
        said = replace(approval.inbox_message, event_key=key, address=address, text="", attachments=(), sent_at=now)
        generation = sa.select(sessions.c.generation).where(sessions.c.id == approval.session_id).scalar_subquery()
        row = message_columns(said, (await connection.execute(sa.select(generation))).scalar_one())
        more = {"message": said.to_json(), "kind": "approval", "parent": approval.turn_id}
        await insert_new(connection, inbox, row | more)
        await self._turns.notify_workers(connection)


async def _select_approvals(connection: AsyncConnection, where: sa.ColumnElement[bool]) -> list[Approval]:
    query = sa.select(approvals, turns.c.origin, turns.c.agent).join(turns, turns.c.id == approvals.c.turn)
    rows = (await connection.execute(query.where(where).order_by(approvals.c.requested_at, approvals.c.id))).all()
    found = []
    for row in rows:
        said = [
            message for of in await get_inbox_rows(connection, row.origin) if (message := parse_message(of.message))
        ]
        try:
            found += [_to_approval(row, said[-1])] if said else []
        except TypeError as error:
            log.error("the request %s cannot be read: %s", row.id, format_error(error))
    return found


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
