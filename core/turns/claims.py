"""Claims of turns: abandoned turns first, then the next turn of each idle session.

To claim a turn is to write this worker's id into the turn's row, so that no other worker runs the turn. A turn is
active until it ends. An active turn is abandoned if its worker is gone, and a session is idle without an active turn.

A read finds the messages, and a transaction gives them to new turns if they still wait: no message is claimed twice.
PostgreSQL: the claim locks the rows of abandoned turns and of sessions, and skips what others have locked, so that
workers never wait for each other. SQLite: one transaction writes at a time.

A turn of which a row cannot be read is claimed to show the error (`Turn.fault`), and the other turns are claimed as
usual. If no message of its session can be read, so that its address is unknown, it gets the state `failed`.
"""

import hashlib
import logging
import time
import uuid
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from itertools import groupby, takewhile
from math import inf
from sys import maxsize
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from core.errors import UnreadableRowError
from core.messages.inbox_message import InboxMessage, InboxOutcome
from core.messages.trigger import TRIGGER_KINDS
from core.observability.secret_redaction import format_error
from core.sessions.agent_routing import AgentRouter
from core.sessions.resume import resume_run
from core.store.database import Database
from core.store.errors import name_row
from core.store.schema import human_requests, inbox, sessions, turns
from core.store.workers.lease import Lease, has_no_live_owner
from core.turns.queries import (
    get_requesting_run,
    get_turn_messages,
    get_turn_row,
    is_active,
    is_idle,
    is_waiting,
    list_readable_messages,
    parse_inbox_message,
    prepare_rerun,
)
from core.turns.turn import CancelReason, Turn
from core.usage.meter import UsageMeter

log = logging.getLogger(__name__)

#: Columns of `turns` that have the same name in `Turn`.
SHARED_COLUMNS = ("id", "generation", "kind", "origin", "run", "model", "agent")

#: Seconds after which a waiting message may have got the "queued" reaction from the platform adapter.
QUEUED_REACTION_SECONDS = 0.2

#: The most messages that one turn answers.
MAX_MESSAGES = 20

#: The most tries of a claim, while other workers claim what it has found.
MAX_TRIES = 3


@dataclass(frozen=True, slots=True)
class _Candidate:
    """An idle session with the messages that its next turn may answer, oldest first.

    Attributes:
        session: a row with the columns `session`, `model`, `agent`, `has_question` and `is_triggered`.
        may_have_followers: whether further messages of the session may wait.
    """

    session: sa.Row[Any]
    turn_id: str
    message_ids: list[int]
    may_have_followers: bool


async def claim_turns(
    database: Database,
    lease: Lease,
    agents: AgentRouter,
    limit: int,
    *,
    running: Collection[str],
    served: Mapping[str, int],
    triggered_limit: int = maxsize,
) -> list[Turn]:
    """Claim abandoned turns, then a new turn for each idle session with messages; return them in this order.

    People's own messages come before entries that no person wrote (see `core.messages.trigger`), in each session and
    over all sessions.

    Without anything to claim, the database is only read.

    Args:
        running: the ids of the turns that this worker runs now: they are not claimed.
        served: by author id, a number that is higher the later a turn last began for that author. New turns begin round
            robin over authors, the lowest number first; an author without a number comes before all others. A session
            counts for the author of its oldest waiting message, and the first session of each author comes before the
            second one of anybody.
        triggered_limit: the most new turns that no message began.
    """
    claimed = list[Turn]()
    for _ in range(MAX_TRIES):
        parameters = {
            "worker": lease.worker_id,
            "may_take_over": lease.may_take_over,
            "now": time.time(),
            "running": [*running, *(turn.id for turn in claimed)],
            "served": dict(served),
            "limit": limit - len(claimed),
        }
        rows = await database.run(_select_claimable(database.engine.dialect.name), **parameters)
        candidates = _limit_triggered(
            _list_candidates(rows), triggered_limit - sum(turn.is_triggered for turn in claimed)
        )
        if not (rows[0].has_abandoned or candidates):
            break
        with suppress(IntegrityError):  # another worker began a turn of one of the sessions
            async with database.write() as connection:
                resumed = await _claim_abandoned(connection, parameters) if rows[0].has_abandoned else []
                candidates = candidates[: limit - len(claimed) - len(resumed)]
                began = await _claim_waiting(connection, lease.worker_id, agents, candidates) if candidates else []
            claimed += resumed + began
            if len(began) == len(candidates):
                break
    return claimed


def _is_abandoned(dialect: str) -> sa.ColumnElement[bool]:
    """Return the SQL condition that a turn is active, and no live worker runs it.

    The turns that this worker runs (`running`) are not abandoned, even if the lease expired while the process was
    blocked. The parameters are `worker`, `may_take_over` (see `Lease.may_take_over`), `now` and `running` (JSON).
    """
    running = sa.select(_json_values(dialect, "running").c.value)
    now = Database.clock(dialect, sa.bindparam("now", type_=sa.Double))
    has_ended = has_no_live_owner(turns.c.owner, sa.bindparam("may_take_over", type_=sa.Boolean), now)
    is_own = turns.c.owner == sa.bindparam("worker", type_=sa.Text)
    return is_active(turns) & turns.c.id.not_in(running) & (is_own | has_ended)


@cache
def _select_abandoned(dialect: str) -> sa.Select[Any]:
    """Return the query that locks abandoned turns, the oldest first."""
    query = sa.select(turns).where(_is_abandoned(dialect)).order_by(turns.c.created_at)
    return query.limit(sa.bindparam("limit", type_=sa.Integer)).with_for_update(skip_locked=True)


async def _claim_abandoned(connection: AsyncConnection, parameters: Mapping[str, Any]) -> list[Turn]:
    """Claim abandoned turns, and return them, the oldest first."""
    worker = parameters["worker"]
    resumed = list[Turn]()
    for row in (await connection.execute(_select_abandoned(connection.dialect.name), parameters)).all():
        try:
            with name_row("turns", row.id):
                resumed.append(await _resumed_turn(connection, worker, row))
        except UnreadableRowError as error:
            turn = await _failing_turn(connection, row.id, row, row.origin, error)
            if turn.messages:
                resumed.append(replace(turn, is_resumed=True, may_have_queued_reaction=True))
            else:
                failed = sa.update(turns).where(turns.c.id == row.id)
                await connection.execute(failed.values(_failed_columns(error)))
    if resumed:
        claimed = {
            "owner": worker,
            "claim_number": turns.c.claim_number + 1,
            "attempt": turns.c.attempt + sa.case((turns.c.owner != worker, 1), else_=0),
            "state": sa.case((turns.c.state == "queued", "running"), else_=turns.c.state),
            "text": sa.case((turns.c.state == "answered", turns.c.text), else_=None),
        }
        is_resumed = turns.c.id.in_([turn.id for turn in resumed])
        update = sa.update(turns).where(is_resumed).values(claimed).returning(turns.c.id, turns.c.claim_number)
        numbers = {row.id: row.claim_number for row in await connection.execute(update)}
        resumed = [replace(turn, claim_number=numbers[turn.id]) for turn in resumed]
    return resumed


async def _resumed_turn(connection: AsyncConnection, worker: str, row: sa.Row[Any]) -> Turn:
    """Return an abandoned turn for its next claim, which the caller stores in the turn's row.

    The stored ADK events of the turn's run are moved to the end of the history, unless the final text is stored.

    Raises:
        UnreadableRowError: a row of the turn cannot be read.
    """
    if not (messages := await get_turn_messages(connection, row.origin)):
        raise UnreadableRowError(f"row {row.id} of turns has no message")
    is_answered = row.state == "answered"
    if not is_answered:
        await resume_run(connection, row.session, row.run or row.origin)
    return Turn(
        **{name: getattr(row, name) for name in SHARED_COLUMNS},
        session_id=row.session,
        messages=messages,
        attempt=row.attempt + (row.owner not in (None, worker)),  # a turn that was handed back has no owner
        is_resumed=True,
        may_have_queued_reaction=True,
        message_ids=tuple(row.chunks or ()),
        text=row.text if is_answered else None,
        partial_text="" if is_answered else row.text or "",
        cancel=row.cancel_reason and CancelReason(row.cancel_reason),
        meter=UsageMeter(row.id, row.usage, started_at=row.created_at),
    )


async def _failing_turn(
    connection: AsyncConnection, turn_id: str, row: sa.Row[Any], origin: str, error: UnreadableRowError
) -> Turn:
    """Return a turn that only shows an error, at the address of its newest readable message.

    If none of its messages can be read, it has the newest one of the session; without any, it has no message.

    Args:
        row: the row of the turn, or of its first message.
    """
    is_other = sa.case((inbox.c.turn == origin, 0), else_=1)
    stored = sa.select(inbox.c.message).where(inbox.c.session == row.session, inbox.c.message.is_not(None))
    newest = stored.order_by(is_other, inbox.c.sent_at.desc()).limit(MAX_MESSAGES)
    readable = list_readable_messages((await connection.execute(newest)).scalars())
    if not readable:
        log.error("turn %s of session %s fails without a reply: %s", turn_id, row.session, format_error(error))
    return Turn(turn_id, row.session, row.generation, tuple(readable[:1]), "message", origin, fault=error)


def _failed_columns(error: UnreadableRowError) -> dict[str, Any]:
    return {"state": "failed", "error": format_error(error), "finished_at": time.time()}


@cache
def _select_claimable(dialect: str) -> sa.Select[Any]:
    """Return the query of idle sessions with their oldest waiting messages.

    Each row has one message: `id`, `parent`, and the `session` with `model`, `agent` and `has_question`: whether a
    question of an agent to a person is stored. At most `MAX_MESSAGES` of a session are read, but all that were sent at
    the same time. The first row also has `has_abandoned`, with nulls in the other columns if no message waits.

    The parameters are those of `_is_abandoned`, `served` (numbers by author id, as JSON) and `limit`. The query is
    cached: SQLAlchemy takes longer to build it than the database to run it.
    """
    abandoned = sa.select(sa.exists().where(_is_abandoned(dialect)).label("has_abandoned")).subquery("abandoned")
    waiting = inbox.alias("waiting")
    head = inbox.alias("head")
    last = inbox.alias("last")
    oldest_message = sa.func.min(sa.case((~_is_triggered(waiting), waiting.c.id)))
    first = sa.func.coalesce(oldest_message, sa.func.min(waiting.c.id)).label("first")
    has_triggered = (sa.func.count(sa.case((_is_triggered(waiting), 1))) > 0).label("has_triggered")
    heads = (
        sa.select(waiting.c.session, first, has_triggered)
        .where(is_waiting(waiting))
        .group_by(waiting.c.session)
        .subquery("heads")
    )
    known = _json_items(dialect, "served")
    round_ = sa.func.row_number().over(partition_by=head.c.author, order_by=heads.c.first)
    served_at = sa.func.coalesce(sa.cast(known.c.value, sa.Integer), 0)
    is_last = sa.case((_is_triggered(head), 1), else_=0).label("is_triggered")
    order = (is_last, round_.label("round"), served_at.label("served_at"), heads.c.first, heads.c.has_triggered)
    queued = (
        sa.select(heads.c.session, *order)
        .join(head, head.c.id == heads.c.first)
        .outerjoin(known, known.c.key == head.c.author)
        .where(is_idle(heads.c.session))
        .subquery("queued")
    )
    q = queued.c
    s = sessions.c
    newest = (
        sa.select(last.c.sent_at)
        .where(last.c.session == s.id, is_waiting(last), _is_triggered(last) == (q.is_triggered == 1))
        .order_by(last.c.sent_at, last.c.id)
        .offset(MAX_MESSAGES - 1)
        .limit(1)
        .scalar_subquery()
    )
    is_question = (human_requests.c.session == s.id) & (human_requests.c.kind == "question")
    found = (
        sa.select(
            s.id.label("session"),
            s.model,
            s.agent,
            sa.exists().where(is_question).label("has_question"),
            sa.func.coalesce(newest, sa.literal(inf, sa.Double)).label("newest"),
            q.is_triggered,
            q.has_triggered,
            q.round,
            q.served_at,
            q.first,
        )
        .join(queued, q.session == s.id)
        .order_by(q.is_triggered, q.round, q.served_at, q.first)
        .limit(sa.bindparam("limit", type_=sa.Integer))
        .subquery("found")
    )
    f = found.c
    is_oldest = (inbox.c.session == f.session) & is_waiting(inbox) & (inbox.c.sent_at <= f.newest)
    is_oldest &= _is_triggered(inbox) == (f.is_triggered == 1)
    session_columns = (f.session, f.model, f.agent, f.has_question, f.is_triggered, f.has_triggered)
    return (
        sa.select(abandoned.c.has_abandoned, *session_columns, inbox.c.id, inbox.c.parent, inbox.c.event_key)
        .select_from(abandoned.outerjoin(found.join(inbox, is_oldest), sa.true()))
        .order_by(f.is_triggered, f.round, f.served_at, f.first, inbox.c.sent_at, inbox.c.id)
    )


def _is_triggered(table: sa.FromClause) -> sa.ColumnElement[bool]:
    return table.c.kind.in_([sa.literal_column(f"'{kind}'") for kind in TRIGGER_KINDS])


@cache
def _take_messages(dialect: str) -> sa.Update:
    """Return the `UPDATE` that gives messages to new turns, if they still wait.

    It locks the sessions, and skips those that other transactions have locked. The parameters are `claims` (the ids of
    the turns by the ids of the messages, as JSON) and `sessions` (their ids, as JSON).
    """
    wanted = sa.select(_json_values(dialect, "sessions").c.value)
    locked = sa.select(sessions.c.id).where(sessions.c.id.in_(wanted)).with_for_update(skip_locked=True).cte("locked")
    claims = _json_items(dialect, "claims")
    is_claimed = (inbox.c.id == sa.cast(claims.c.key, sa.BigInteger)) & (inbox.c.session == locked.c.id)
    return (
        sa.update(inbox)
        .where(is_claimed, is_waiting(inbox), is_idle(inbox.c.session))
        .values(turn=claims.c.value)
        .returning(inbox)
    )


_INSERT_TURNS = sa.insert(turns)


def _json_items(dialect: str, parameter: str) -> sa.TableValuedAlias:
    """Return an SQL table with the `key` and `value` of each item of the JSON object in a bind parameter."""
    expand = sa.func.json_each_text if dialect == "postgresql" else sa.func.json_each
    items = expand(sa.bindparam(parameter, type_=sa.JSON))
    return items.table_valued("key", sa.column("value", sa.Text), name=parameter)


def _json_values(dialect: str, parameter: str) -> sa.TableValuedAlias:
    """Return an SQL table with the `value` of each text of the JSON array in a bind parameter."""
    expand = sa.func.json_array_elements_text if dialect == "postgresql" else sa.func.json_each
    return expand(sa.bindparam(parameter, type_=sa.JSON)).table_valued(sa.column("value", sa.Text), name=parameter)


def _list_candidates(rows: Sequence[sa.Row[Any]]) -> list[_Candidate]:
    """Return the sessions in the rows of `_select_claimable`, each with the messages that its next turn answers.

    These are the oldest ones, at most `MAX_MESSAGES`, up to the next request for a rerun. A request for a rerun gets a
    turn of its own, and so does an entry that no person wrote.
    """
    candidates = list[_Candidate]()
    for _, session_rows in groupby((row for row in rows if row.session is not None), key=lambda row: row.session):
        first, *others = session_rows
        is_alone = first.parent is not None or first.is_triggered
        followers = () if is_alone else takewhile(lambda row: row.parent is None, others)
        batch = [first, *followers][:MAX_MESSAGES]
        may_have_followers = len(batch) <= len(others) or len(batch) == MAX_MESSAGES or first.has_triggered
        turn_id = derive_turn_id(first.event_key) if first.is_triggered else new_turn_id()
        candidates.append(_Candidate(first, turn_id, [row.id for row in batch], may_have_followers))
    return candidates


def _limit_triggered(candidates: Sequence[_Candidate], limit: int) -> list[_Candidate]:
    """Return the candidates without those that no person wrote beyond a limit; these come last."""
    count = sum(not candidate.session.is_triggered for candidate in candidates)
    return list(candidates[: count + max(0, limit)])


async def _claim_waiting(
    connection: AsyncConnection, worker: str, agents: AgentRouter, candidates: Sequence[_Candidate]
) -> list[Turn]:
    """Insert and return turns for idle sessions whose messages still wait and no other worker has locked."""
    parameters = {
        "claims": {str(id_): candidate.turn_id for candidate in candidates for id_ in candidate.message_ids},
        "sessions": [candidate.session.session for candidate in candidates],
    }
    taken = await connection.execute(_take_messages(connection.dialect.name), parameters)
    queued = {row.id: row for row in taken}
    new_turns = list[tuple[Turn, str | None]]()
    for candidate in candidates:
        batch = [queued[id_] for id_ in candidate.message_ids if id_ in queued]
        if not batch:
            continue
        turn: Turn | None
        try:
            turn = await _next_turn(connection, candidate, batch, agents)
        except UnreadableRowError as error:
            turn = await _failing_turn(connection, candidate.turn_id, batch[0], candidate.turn_id, error)
        if turn is not None:
            new_turns.append((turn, batch[0].parent))
    if not new_turns:
        return []
    new = [
        {
            **{name: getattr(turn, name) for name in SHARED_COLUMNS},
            "session": turn.session_id,
            "parent": parent,
            "state": "running",
            "owner": worker,
            "chunks": list(turn.message_ids),
            "created_at": time.time(),
            "error": None,
            "finished_at": None,
            **(_failed_columns(turn.fault) if turn.fault is not None and not turn.messages else {}),
        }
        for turn, parent in new_turns
    ]
    await connection.execute(_INSERT_TURNS, new)
    return [turn for turn, _ in new_turns if turn.messages]


async def _next_turn(
    connection: AsyncConnection, candidate: _Candidate, batch: Sequence[sa.Row[Any]], agents: AgentRouter
) -> Turn | None:
    """Return the new turn that answers a batch of messages, for the caller to insert.

    The batch has the oldest messages, or one request for a rerun, or one decision. A request to retry a turn that has
    its answer by now gets the outcome `superseded`, and the result is None. If the turn to repeat or continue is
    deleted, the new turn is of the kind `message`.

    Raises:
        UnreadableRowError: a message, or a row of the turn to repeat, cannot be read.
    """
    session = candidate.session
    turn_id = candidate.turn_id
    first = batch[0]
    messages = tuple(message for row in batch if (message := parse_inbox_message(row.message, row.id)))
    if not messages:
        raise UnreadableRowError(f"row {first.id} of inbox has no message")
    turn = Turn(
        turn_id,
        first.session,
        first.generation,
        messages,
        "message",
        turn_id,
        model=session.model,
        agent=_choose_agent(agents, session, messages[-1]),
        may_answer_question=session.has_question,
        may_have_followers=candidate.may_have_followers,
        may_have_queued_reaction=first.kind not in TRIGGER_KINDS
        and time.time() - first.accepted_at > QUEUED_REACTION_SECONDS,
    )
    if first.parent is None:
        return turn
    if (parent := await get_turn_row(connection, first.parent)) is None:
        return turn
    if first.kind == "retry" and parent.state == "done":  # the turn got its answer meanwhile
        superseded = sa.update(inbox).where(inbox.c.id == first.id)
        await connection.execute(superseded.values(outcome=InboxOutcome.SUPERSEDED, turn=None))
        return None
    with name_row("turns", parent.id):
        return await _to_rerun(connection, turn, parent, first.kind)


def _choose_agent(agents: AgentRouter, session: sa.Row[Any], message: InboxMessage) -> str:
    if message.trigger is not None and message.trigger.agent in agents.profiles:
        return message.trigger.agent
    return agents.resolve_agent(session.agent, message.location_names)


async def _to_rerun(connection: AsyncConnection, turn: Turn, parent: sa.Row[Any], kind: Any) -> Turn:
    """Return a new turn with the run, messages and reply of the turn that it repeats.

    A turn of the kind `decision` gets only the run and the agent of the turn that asked people. For a rerun, the stored
    ADK events of the run are moved or deleted: see `prepare_rerun`.
    """
    if kind == "decision":
        return replace(turn, kind="decision", run=await get_requesting_run(connection, parent), agent=parent.agent)
    kind = await prepare_rerun(connection, parent, kind)
    return replace(
        turn,
        kind=kind,
        origin=parent.origin,
        run=parent.run,
        messages=await get_turn_messages(connection, parent.origin) or turn.messages,
        message_ids=tuple(parent.chunks or ()),
        agent=parent.agent if kind == "retry" else turn.agent,
    )


def derive_turn_id(event_key: str) -> str:
    """Return the id of the turn of an entry that no person wrote: it is known once the entry is stored."""
    return hashlib.sha256(event_key.encode()).hexdigest()[:10]


def new_turn_id() -> str:
    """Return a random turn id of ten hexadecimal digits: users can quote it."""
    return uuid.uuid4().hex[:10]
