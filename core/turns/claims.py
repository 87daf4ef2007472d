"""Claims of turns: abandoned turns first, then the next turn of each idle session.

To claim a turn is to write this worker's id into the turn's row, so that no other worker runs the turn. A turn is
active until it ends. An active turn is abandoned if its worker is gone, and a session is idle without an active turn.

PostgreSQL: the claim locks the rows of abandoned turns and of sessions, and skips what others have locked, so that
workers never wait for each other. Each claim locks a session before it reads the messages that wait there: no message
is claimed twice. SQLite: one transaction writes at a time.

A row that cannot be parsed is logged, and the other rows are claimed: an unreadable message gets the outcome
`unreadable`, an unreadable turn the state `failed`. If only the stored history cannot be parsed, the turn is claimed as
damaged, and its reply says so (`Turn.is_damaged`).
"""

import logging
import time
import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import takewhile
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from core.inbox_message import InboxMessage, InboxOutcome
from core.sessions.resume import resume_run
from core.sessions.routing import AgentRouter
from core.store.database import Database
from core.store.errors import collect_unreadable
from core.store.schema import human_requests, inbox, sessions, turns
from core.turns.queries import (
    get_messages_of_turns,
    get_requesting_run,
    get_turn_row,
    is_active,
    is_idle,
    is_waiting,
    parse_inbox_message,
    prepare_rerun,
)
from core.turns.turn import CancelReason, Turn
from core.usage.meter import UsageMeter
from core.workers.lease import Lease

log = logging.getLogger(__name__)

#: Columns of `turns` that have the same name in `Turn`.
SHARED_COLUMNS = ("id", "generation", "kind", "origin", "run", "model", "agent")

#: The text in `turns.error` of an active turn whose stored rows cannot be parsed.
DAMAGED = "its rows cannot be read"

#: Seconds after which a waiting message may have got the "queued" reaction from the channel adapter.
QUEUED_REACTION_SECONDS = 0.2

#: The most messages that one turn answers.
MAX_MESSAGES = 20


class _QueuedMessage(NamedTuple):
    """An `inbox` row that no turn has claimed, with the message in its JSON."""

    row: sa.Row[Any]
    message: InboxMessage


_WAITING = inbox.alias("waiting")
_HAS_WAITING = sa.exists().where(is_waiting(_WAITING), is_idle(_WAITING.c.session)).label("has_waiting")


async def claim_turns(
    database: Database,
    lease: Lease,
    agents: AgentRouter,
    limit: int,
    *,
    running: Collection[str],
    served: Mapping[str, int],
) -> list[Turn]:
    """Claim abandoned turns, then a new turn for each idle session with messages.

    A turn that cannot be parsed gets the state `failed`, and such a message the outcome `unreadable`; neither is in the
    result. Without anything to claim, the database is only read.

    Args:
        lease: the lease of the worker that gets the turns.
        agents: decides which agent answers a new turn.
        limit: the most turns.
        running: the ids of the turns that this worker runs now: they are not claimed.
        served: by author id, a number that is higher the later a turn last began for that author. New turns begin
            round robin over authors, the lowest number first; an author without a number comes before all others.

    Returns:
        The claimed turns, abandoned ones first.

    Raises:
        IntegrityError: another worker began a turn of one of the sessions; nothing is claimed.
        StoreError: the database cannot be used.
    """
    has_abandoned = sa.exists().where(_is_abandoned(lease, running)).label("has_abandoned")
    async with database.read() as connection:
        found = (await connection.execute(sa.select(has_abandoned, _HAS_WAITING))).one()
    if not (found.has_abandoned or found.has_waiting):
        return []
    async with database.write() as connection:
        resumed = await _claim_abandoned(connection, lease, limit, running) if found.has_abandoned else []
        return [*resumed, *await _claim_waiting(connection, lease.worker_id, agents, limit - len(resumed), served)]


def _is_abandoned(lease: Lease, running: Collection[str]) -> sa.ColumnElement[bool]:
    """Return the SQL condition that a turn is active, and no live worker runs it.

    Args:
        lease: the lease of this worker.
        running: the ids of the turns that this worker runs. They are not abandoned, even if the lease expired while
            the process was blocked.
    """
    has_no_runner = (turns.c.owner == lease.worker_id) | lease.has_no_live_worker(turns.c.owner)
    return is_active(turns) & turns.c.id.not_in(running) & has_no_runner


async def _claim_abandoned(
    connection: AsyncConnection, lease: Lease, limit: int, running: Collection[str]
) -> list[Turn]:
    """Claim at most `limit` abandoned turns, and return them, the oldest first.

    A turn whose row or messages cannot be parsed gets the state `failed`.

    Args:
        lease: the lease of this worker.
        running: the ids of the turns that this worker runs now: they are not claimed.
    """
    query = (
        sa.select(turns)
        .where(_is_abandoned(lease, running))
        .order_by(turns.c.created_at)
        .limit(limit)
        .with_for_update(skip_locked=True)
    )
    resumed, damaged = list[Turn](), set[str]()
    for row in (await connection.execute(query)).all():
        with collect_unreadable(row.id, damaged):
            resumed.append(await _resumed_turn(connection, lease.worker_id, row))
    if damaged:
        failed = {"state": "failed", "error": DAMAGED, "finished_at": time.time()}
        await connection.execute(sa.update(turns).where(turns.c.id.in_(damaged)).values(failed))
    if resumed:
        claimed = {
            "owner": lease.worker_id,
            "claim_number": turns.c.claim_number + 1,
            "attempt": turns.c.attempt + sa.case((turns.c.owner != lease.worker_id, 1), else_=0),
            "state": sa.case((turns.c.state == "queued", "running"), else_=turns.c.state),
            "text": sa.case((turns.c.state == "answered", turns.c.text), else_=None),
        }
        is_resumed = turns.c.id.in_([turn.id for turn in resumed])
        await connection.execute(sa.update(turns).where(is_resumed).values(claimed))
    return resumed


async def _resumed_turn(connection: AsyncConnection, worker: str, row: sa.Row[Any]) -> Turn:
    """Return an abandoned turn for its next claim, with messages and partial text.

    The caller stores the claim in the turn's row. The stored ADK events of the turn's run are moved to the end of the
    history, unless the final text is stored.

    Args:
        worker: the id of the worker that claims the turn.
        row: the row of `turns` before this claim.

    Raises:
        ValueError: no message of the turn can be parsed.
    """
    messages = (await get_messages_of_turns(connection, {row.origin})).get(row.origin)
    if not messages:
        raise ValueError("its messages cannot be read")
    is_answered = row.state == "answered"
    damaged = {row.id} if row.error == DAMAGED else set[str]()
    if not is_answered and not damaged:
        with collect_unreadable(row.id, damaged):
            await resume_run(connection, row.session, row.run or row.origin)
    return Turn(
        **{name: getattr(row, name) for name in SHARED_COLUMNS},
        session_id=row.session,
        messages=messages,
        claim_number=row.claim_number + 1,
        attempt=row.attempt + (row.owner not in (None, worker)),  # a turn that was handed back has no owner
        is_resumed=True,
        may_have_queued_reaction=True,
        chunks=tuple(row.chunks or ()),
        text=row.text if is_answered else None,
        partial_text="" if is_answered else row.text or "",
        cancel=row.cancel_reason and CancelReason(row.cancel_reason),
        is_damaged=bool(damaged),
        meter=UsageMeter(row.id, row.usage, started_at=row.created_at),
    )


async def _claim_waiting(
    connection: AsyncConnection, worker: str, agents: AgentRouter, limit: int, served: Mapping[str, int]
) -> list[Turn]:
    """Insert and return turns for at most `limit` idle sessions with messages.

    Args:
        worker: the id of the worker that claims the turns.
        agents: decides which agent answers a turn.
        served: as for `claim_turns`.
    """
    locked = await _lock_sessions(connection, limit, served)
    waiting = await _read_waiting(connection, list(locked))
    new_turns = list[tuple[Turn, list[_QueuedMessage]]]()
    for session_id, queued in waiting.items():
        batch = _select_batch(queued)
        if (turn := await _next_turn(connection, locked[session_id], batch, agents)) is not None:
            new_turns.append((turn, batch))
    if not new_turns:
        return []
    new = [
        {
            **{name: getattr(turn, name) for name in SHARED_COLUMNS},
            "session": turn.session_id,
            "parent": batch[0].row.parent,
            "state": "running",
            "owner": worker,
            "chunks": list(turn.chunks),
            "created_at": time.time(),
            "error": DAMAGED if turn.is_damaged else None,
        }
        for turn, batch in new_turns
    ]
    await connection.execute(sa.insert(turns), new)
    claimed = [{"message_id": queued.row.id, "turn_id": turn.id} for turn, batch in new_turns for queued in batch]
    await connection.execute(_SET_TURN, claimed)
    return [turn for turn, _ in new_turns]


_SET_TURN = sa.update(inbox).where(inbox.c.id == sa.bindparam("message_id")).values(turn=sa.bindparam("turn_id"))


async def _lock_sessions(connection: AsyncConnection, limit: int, served: Mapping[str, int]) -> dict[str, sa.Row[Any]]:
    """Lock at most `limit` idle sessions with waiting messages, and return their rows.

    The dict has a row by session id, in a round robin over people. A row has `id`, `generation`, `model`, `agent` and
    `has_question`: whether a question of an agent to a person is stored. The first session of each person comes
    before the second one of anybody. In each round, the lowest number in `served` comes first; a person without a
    number comes before all others. A session counts for the author of its oldest waiting message.

    Args:
        served: by author id, a number that is higher the later a turn last began for that author.
    """
    if limit <= 0:
        return {}
    query = _select_claimable(connection.dialect.name)
    rows: sa.Result[Any] = await connection.execute(query, {"served": dict(served), "limit": limit})
    return {row.id: row for row in rows}


@cache
def _select_claimable(dialect: str) -> sa.Select[Any]:
    """Return the query that locks the idle sessions with waiting messages.

    The parameters are `served` (numbers by author id, as JSON) and `limit`. The query is cached: SQLAlchemy takes
    longer to build it than the database to run it.

    Args:
        dialect: `sqlite` or `postgresql`.
    """
    head = inbox.alias("head")
    first = sa.func.min(_WAITING.c.id).label("first")
    heads = (
        sa.select(_WAITING.c.session, first).where(is_waiting(_WAITING)).group_by(_WAITING.c.session).subquery("heads")
    )
    known = _json_items(dialect, "served")
    round_ = sa.func.row_number().over(partition_by=head.c.author, order_by=heads.c.first)
    served_at = sa.func.coalesce(sa.cast(known.c.value, sa.Integer), 0)
    found = (
        sa.select(heads.c.session, heads.c.first, round_.label("round"), served_at.label("served_at"))
        .join(head, head.c.id == heads.c.first)
        .outerjoin(known, known.c.key == head.c.author)
        .where(is_idle(heads.c.session))
        .subquery("waiting_sessions")
    )
    is_question = (human_requests.c.session == sessions.c.id) & (human_requests.c.kind == "question")
    has_question = sa.exists().where(is_question).label("has_question")
    return (
        sa.select(sessions.c.id, sessions.c.generation, sessions.c.model, sessions.c.agent, has_question)
        .join(found, found.c.session == sessions.c.id)
        .order_by(found.c.round, found.c.served_at, found.c.first)
        .limit(sa.bindparam("limit", type_=sa.Integer))
        .with_for_update(skip_locked=True, of=sessions)
    )


def _json_items(dialect: str, parameter: str) -> sa.TableValuedAlias:
    """Return an SQL table with the `key` and `value` of each item of a JSON object.

    Args:
        dialect: `sqlite` or `postgresql`.
        parameter: the name of the bind parameter with the JSON object.
    """
    expand = sa.func.json_each_text if dialect == "postgresql" else sa.func.json_each
    items = expand(sa.bindparam(parameter, type_=sa.JSON))
    return items.table_valued("key", sa.column("value", sa.Text), name=parameter)


async def _read_waiting(connection: AsyncConnection, session_ids: Sequence[str]) -> dict[str, list[_QueuedMessage]]:
    """Return the messages that wait in locked sessions, oldest first, by session id.

    Sessions without waiting messages, and sessions in which another worker has begun a turn, are left out. Messages
    that cannot be parsed are logged, and get the outcome `unreadable`.

    Args:
        session_ids: the sessions whose rows the transaction has locked.
    """
    if not session_ids:
        return {}
    waits = inbox.c.session.in_(session_ids) & is_waiting(inbox) & is_idle(inbox.c.session)
    query = sa.select(inbox).where(waits).order_by(inbox.c.sent_at, inbox.c.id)
    found, damaged = {session: list[_QueuedMessage]() for session in session_ids}, list[int]()
    for row in await connection.execute(query):
        if (message := parse_inbox_message(row.message)) is None:
            damaged.append(row.id)
        else:
            found[row.session].append(_QueuedMessage(row, message))
    if damaged:
        log.error("the messages %s cannot be read", damaged)
        unreadable = sa.update(inbox).where(inbox.c.id.in_(damaged)).values(outcome=InboxOutcome.UNREADABLE)
        await connection.execute(unreadable)
    return {session: queued for session, queued in found.items() if queued}


def _select_batch(waiting: list[_QueuedMessage]) -> list[_QueuedMessage]:
    """Return the waiting messages that the next turn of a session answers.

    These are the oldest ones, at most `MAX_MESSAGES`, up to the next request for a rerun. A request for a rerun gets a
    turn of its own.

    Args:
        waiting: all messages that wait in one session, oldest first; not empty.
    """
    first, *others = waiting
    if first.row.parent is not None:
        return [first]
    return [first, *takewhile(lambda queued: queued.row.parent is None, others)][:MAX_MESSAGES]


async def _next_turn(
    connection: AsyncConnection, session: sa.Row[Any], batch: Sequence[_QueuedMessage], agents: AgentRouter
) -> Turn | None:
    """Return the new turn that answers a batch of messages, for the caller to insert.

    The batch may be the request to retry a turn that has its answer by now. Such a request gets the outcome
    `superseded`, and the result is None. If the turn to repeat or continue is deleted, the new turn is of the kind
    `message`.

    Args:
        session: the locked row of the session, from `_lock_sessions`.
        batch: the messages, oldest first; or one request for a rerun, or one decision of people.
        agents: decides which agent answers.
    """
    first, messages = batch[0].row, tuple(queued.message for queued in batch)
    turn_id, agent = new_turn_id(), agents.resolve_agent(session.agent, messages[-1].location_names)
    turn = Turn(
        turn_id,
        session.id,
        session.generation,
        messages,
        "message",
        turn_id,
        model=session.model,
        agent=agent,
        may_answer_question=session.has_question,
        may_have_queued_reaction=time.time() - first.accepted_at > QUEUED_REACTION_SECONDS,
    )
    if first.parent is None:
        return turn
    damaged = set[str]()
    with collect_unreadable(turn.id, damaged):
        if (parent := await get_turn_row(connection, first.parent)) is None:
            return turn
        if first.kind == "retry" and parent.state == "done":  # the turn got its answer meanwhile
            await connection.execute(
                sa.update(inbox).where(inbox.c.id == first.id).values(outcome=InboxOutcome.SUPERSEDED)
            )
            return None
        turn = await _to_rerun(connection, turn, parent, first.kind)
    return replace(turn, is_damaged=bool(damaged))


async def _to_rerun(connection: AsyncConnection, turn: Turn, parent: sa.Row[Any], kind: Any) -> Turn:
    """Return a new turn with the run, messages and reply of the turn that it repeats.

    A turn of the kind `decision` gets only the run and the agent of the turn that asked people. For a rerun, the stored
    ADK events of the run are moved to the end of the history (`retry`), or deleted.

    Args:
        turn: the new turn.
        parent: the row of the turn that the new one repeats, or that asked people for decisions.
        kind: `decision`, or a `RerunKind`; the new turn gets the kind that `prepare_rerun` returns for it.
    """
    if kind == "decision":
        return replace(turn, kind="decision", run=await get_requesting_run(connection, parent), agent=parent.agent)
    kind = await prepare_rerun(connection, parent, kind)
    return replace(
        turn,
        kind=kind,
        origin=parent.origin,
        run=parent.run,
        messages=(await get_messages_of_turns(connection, {parent.origin})).get(parent.origin, turn.messages),
        chunks=tuple(parent.chunks or ()),
        agent=parent.agent if kind == "retry" else turn.agent,
    )


def new_turn_id() -> str:
    """Return a random turn id of ten hexadecimal digits: users can quote it."""
    return uuid.uuid4().hex[:10]
