"""Claims turns in one transaction: abandoned turns first, then the next turn of each idle session.

A look before it, one statement that locks nothing, keeps a claim with nothing to do from waiting for others.

PostgreSQL: the claim locks the rows of abandoned turns and of sessions, and skips what others have locked, so that
workers never wait for each other. Each claim locks a session before it reads the messages that wait there: no message
is claimed twice. SQLite: one transaction writes at a time.

Each row is parsed here. A row that cannot be read fails its own turn alone: the turn is claimed as damaged, and ends
with a sentence to the author (`Turn.is_damaged`).
"""

import logging
import time
import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from core.inbox_message import Inbound
from core.secret_redaction import traced
from core.sessions.resume import reopen
from core.sessions.routing import Agents
from core.store.database import Database
from core.store.errors import Unreadable, collect_unreadable, store_errors
from core.store.fast_path import Statement
from core.store.schema import inbox, sessions, turns
from core.turns.queries import (
    begin_again,
    is_free,
    is_under_way,
    is_waiting,
    parent_of,
    readable,
    said_to,
    waiting_run,
)
from core.turns.turn import Turn
from core.usage.meter import Meter
from core.workers.lease import Lease

log = logging.getLogger(__name__)

#: Columns of `turns` that have the same name in `Turn`.
SHARED_COLUMNS = ("id", "generation", "kind", "origin", "run", "model", "agent")

#: The error of an active turn whose rows cannot be read.
DAMAGED = "its rows cannot be read"

#: Seconds after which a message may bear the reaction that says that it waits.
QUEUED_REACTION_SECONDS = 0.2

#: The most messages that one turn answers.
MAX_MESSAGES = 20

#: The most people in `ServedPeople`; earlier ones count as never served.
MAX_SERVED = 1_000

#: The most messages of a session among which a readable one is looked for.
_MAX_READ = 20


class ServedPeople:
    """People by when this worker last began a turn for them."""

    def __init__(self) -> None:
        self._served: dict[str, int] = {}
        self._count = 0

    @property
    def order(self) -> Mapping[str, int]:
        return self._served

    def add(self, messages: Iterable[Inbound]) -> None:
        """Note that a turn began that answers these messages."""
        self._count += 1
        for message in messages:
            self._served.pop(message.author, None)
            self._served[message.author] = self._count
        while len(self._served) > MAX_SERVED:
            del self._served[next(iter(self._served))]


@dataclass(frozen=True, slots=True)
class _Session:
    """A locked session: its row, as far as it can be read."""

    generation: int
    model: str | None = None
    agent: str | None = None


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A message that waits; `message` is None if its row cannot be read."""

    id: int
    session: str
    message: Inbound | None = None
    kind: Any = "message"
    parent: str | None = None
    accepted_at: float = 0.0

    @property
    def is_alone(self) -> bool:
        """Return whether the message gets a turn of its own."""
        return self.message is None or self.parent is not None


async def claim(
    database: Database,
    lease: Lease,
    agents: Agents,
    limit: int,
    *,
    running: Collection[str],
    served: Mapping[str, int],
) -> list[Turn]:
    """Claim turns: see `Turns.claim`.

    Args:
        served: people by when they were served, in any ascending numbers.

    Raises:
        IntegrityError: another worker began a turn of one of the sessions; nothing is claimed.
    """
    values = {"worker": lease.worker, "running": list(running), "is_sure": lease.is_sure, "now": time.time()}
    [(has_abandoned, has_waiting)] = await database.run(_LOOK, **values)
    if not (has_abandoned or has_waiting):
        return []
    async with database.write() as connection:
        resumed = await _resume(connection, lease, limit, running) if has_abandoned else []
        return [*resumed, *await _begin(connection, lease.worker, agents, limit - len(resumed), served)]


def _looks(dialect: str) -> sa.Select[Any, Any]:
    """Return whether there are abandoned turns, and whether messages wait in idle sessions."""
    worker = sa.bindparam("worker", type_=sa.Text)
    now = Database.clock(dialect, sa.bindparam("now", type_=sa.Double))
    is_gone = Lease.gone(turns.c.owner, is_sure=sa.bindparam("is_sure", type_=sa.Boolean), now=now)
    running = sa.select(_items_of(dialect, "running", is_object=False).c.value)
    abandoned = sa.exists().where(is_under_way(turns), turns.c.id.not_in(running), (turns.c.owner == worker) | is_gone)
    return sa.select(abandoned, sa.exists().where(is_waiting(inbox), is_free(inbox.c.session)))


def _items_of(dialect: str, parameter: str, *, is_object: bool = True) -> sa.TableValuedAlias:
    """Return the items of a JSON parameter: of an object as `key` and `value`, of an array as `value`."""
    of = sa.bindparam(parameter, type_=sa.JSON)
    if dialect != "postgresql":
        return sa.func.json_each(of).table_valued("key", sa.column("value", sa.Text), name=parameter)
    if is_object:
        return sa.func.json_each_text(of).table_valued("key", sa.column("value", sa.Text), name=parameter)
    return sa.func.json_array_elements_text(of).table_valued(sa.column("value", sa.Text), name=parameter)


_LOOK = Statement(_looks)


async def _resume(connection: AsyncConnection, lease: Lease, limit: int, running: Collection[str]) -> list[Turn]:
    """Claim active turns that no live worker runs."""
    # a turn that this worker runs is not abandoned, even if its lease ended while the process was held up
    is_abandoned = turns.c.id.not_in(running) & ((turns.c.owner == lease.worker) | lease.is_gone(turns.c.owner))
    query = (
        sa.select(turns)
        .where(is_under_way(turns), is_abandoned)
        .order_by(turns.c.created_at)
        .limit(limit)
        .with_for_update(skip_locked=True)
    )
    rows, damaged_ids = await _read_each(connection, query, turns.c.id)
    damaged = set(damaged_ids)
    for row in rows:
        with collect_unreadable(row.id, damaged):
            _check_turn(row)
    if damaged:
        await connection.execute(sa.update(turns).where(turns.c.id.in_(damaged)).values(_new_turn()))
        repaired = await connection.execute(sa.select(turns).where(turns.c.id.in_(damaged)))
        rows = [*(row for row in rows if row.id not in damaged), *repaired.all()]
    if not rows:
        return []
    taken = {
        "owner": lease.worker,
        "claims": turns.c.claims + 1,
        "attempt": turns.c.attempt + sa.case((turns.c.owner != lease.worker, 1), else_=0),
        "state": sa.case((turns.c.state == "queued", "running"), else_=turns.c.state),
        "text": sa.case((turns.c.state == "answered", turns.c.text), else_=None),
    }
    await connection.execute(sa.update(turns).where(turns.c.id.in_([row.id for row in rows])).values(**taken))
    return [turn for row in rows if (turn := await _resumed(connection, lease.worker, row)) is not None]


async def _resumed(connection: AsyncConnection, worker: str, row: sa.Row[Any]) -> Turn | None:
    """Return the turn of a row, which is as it was before the claim; None if nobody knows what it answers."""
    has_expired = row.owner not in (None, worker)  # a turn that was handed back has no owner
    damaged = {row.id} if row.error == DAMAGED else set[str]()
    messages: tuple[Inbound, ...] = ()
    with collect_unreadable(row.id, damaged):
        messages = (await said_to(connection, {row.origin})).get(row.origin, ())
    if not messages:
        log.error("the messages of turn %s cannot be read", row.id)
        damaged.add(row.id)
        messages = await _substitute(connection, row.session)
    if row.state != "answered" and row.id not in damaged:
        with collect_unreadable(row.id, damaged):
            await reopen(connection, row.session, row.run or row.origin)
    if damaged:
        ended = {} if messages else {"state": "failed", "finished_at": time.time()}
        await connection.execute(sa.update(turns).where(turns.c.id == row.id).values(error=DAMAGED, **ended))
    if not messages:
        return None
    return Turn(
        **{name: getattr(row, name) for name in SHARED_COLUMNS},
        session_id=row.session,
        messages=messages,
        claim=row.claims + 1,
        attempt=row.attempt + has_expired,
        is_resumed=True,
        has_waited=True,
        chunks=tuple(row.chunks or ()),
        text=row.text if row.state == "answered" else None,
        said="" if row.state == "answered" else row.text or "",
        cancel=row.cancel,
        is_damaged=bool(damaged),
        meter=Meter(row.id, row.usage, begun_at=row.created_at),
    )


def _check_turn(row: sa.Row[Any]) -> None:
    """Check the types of a turn's row: SQLite stores any value in any column.

    Raises:
        ValueError: a value has another type.
    """
    chunks, numbers = row.chunks or [], (row.generation, row.claims, row.attempt, row.created_at)
    if not (isinstance(chunks, list) and all(isinstance(chunk, str) for chunk in chunks)):
        raise ValueError(f"turn {row.id}: the message ids are no list of texts")
    if not all(isinstance(number, int | float) for number in numbers):
        raise ValueError(f"turn {row.id}: a number is a text")
    Meter(row.id, row.usage, begun_at=row.created_at)


def _new_turn() -> dict[str, Any]:
    """Return the columns of a turn without those that cannot be read: enough to end it with a sentence."""
    life = sa.select(sessions.c.generation).where(sessions.c.id == turns.c.session).scalar_subquery()
    nothing = dict.fromkeys(("parent", "run", "model", "owner", "cancel", "text", "usage", "receipt"))
    begun = {"kind": "message", "agent": "", "state": "queued", "chunks": [], "attempt": 1, "claims": 1}
    its = {"origin": turns.c.id, "generation": sa.func.coalesce(life, 1), "created_at": time.time()}
    return {**nothing, **begun, **its, "error": DAMAGED}


async def _begin(
    connection: AsyncConnection, worker: str, agents: Agents, limit: int, served: Mapping[str, int]
) -> list[Turn]:
    """Claim the next turn of each idle session in which messages wait."""
    locked = await _lock_sessions(connection, limit, served)
    waiting = await _read_waiting(connection, list(locked))
    begun = list[tuple[Turn, list[_Waiting]]]()
    for session, rows in waiting.items():
        batch = _answered_together(rows)
        if (turn := await _next_turn(connection, locked[session], batch, agents)) is not None:
            begun.append((turn, batch))
    if not begun:
        return []
    new = [
        {
            **{name: getattr(turn, name) for name in SHARED_COLUMNS},
            "session": turn.session_id,
            "parent": batch[0].parent,
            "state": "running",
            "owner": worker,
            "chunks": list(turn.chunks),
            "created_at": time.time(),
            "error": DAMAGED if turn.is_damaged else None,
        }
        for turn, batch in begun
    ]
    await connection.execute(sa.insert(turns), new)
    await connection.execute(_TAKEN, [{"message": row.id, "taker": turn.id} for turn, batch in begun for row in batch])
    return [turn for turn, _ in begun]


_TAKEN = sa.update(inbox).where(inbox.c.id == sa.bindparam("message")).values(turn=sa.bindparam("taker"))


async def _lock_sessions(connection: AsyncConnection, limit: int, served: Mapping[str, int]) -> dict[str, _Session]:
    """Lock idle sessions in which messages wait, and return them in the order in which they get their turns.

    That is a round robin over people: the first session of each person goes before the second one of any, and among
    those the person who was served longest ago goes first. A session is that of the author of its oldest message.
    """
    if limit <= 0:
        return {}
    waiting, head = inbox.alias("waiting"), inbox.alias("head")
    first = sa.func.min(waiting.c.id).label("first")
    heads = sa.select(waiting.c.session, first).where(is_waiting(waiting)).group_by(waiting.c.session).subquery("heads")
    known = _items_of(connection.dialect.name, "served")
    round_ = sa.func.row_number().over(partition_by=head.c.author, order_by=heads.c.first)
    served_at = sa.func.coalesce(sa.cast(known.c.value, sa.Integer), 0)
    found = (
        sa.select(heads.c.session, heads.c.first, round_.label("round"), served_at.label("served_at"))
        .join(head, head.c.id == heads.c.first)
        .outerjoin(known, known.c.key == head.c.author)
        .where(is_free(heads.c.session))
        .subquery("waiting_sessions")
    )
    query = (
        sa.select(sessions.c.id, sessions.c.generation, sessions.c.model, sessions.c.agent)
        .join(found, found.c.session == sessions.c.id)
        .order_by(found.c.round, found.c.served_at, found.c.first)
        .limit(limit)
        .with_for_update(skip_locked=True, of=sessions)
    )
    rows, damaged = await _read_each(connection, query.params(served=dict(served)), sessions.c.id)
    generations = sa.select(sessions.c.id, sessions.c.generation).where(sessions.c.id.in_(damaged))
    plain = (await connection.execute(generations)).all() if damaged else ()
    return {row.id: _Session(row.generation, row.model, row.agent) for row in rows} | {
        row.id: _Session(row.generation) for row in plain
    }


async def _read_waiting(connection: AsyncConnection, session_ids: Sequence[str]) -> dict[str, list[_Waiting]]:
    """Return what waits in locked sessions, oldest first; messages that cannot be read come before the others.

    What another worker claimed before the lock does not wait any more, and its session is not idle.
    """
    if not session_ids:
        return {}
    waits = inbox.c.session.in_(session_ids) & is_waiting(inbox) & is_free(inbox.c.session)
    rows, damaged = await _read_each(
        connection, sa.select(inbox).where(waits).order_by(inbox.c.sent_at, inbox.c.id), inbox.c.id
    )
    found: dict[str, list[_Waiting]] = {session: [] for session in session_ids}
    if damaged:
        places = sa.select(inbox.c.id, inbox.c.session).where(inbox.c.id.in_(damaged))
        for id_, session in (await connection.execute(places)).all():
            found[session].append(_Waiting(id_, session))
    for row in rows:
        found[row.session].append(_parse_waiting(row))
    return {session: of for session, of in found.items() if of}


def _parse_waiting(row: sa.Row[Any]) -> _Waiting:
    message = readable(row.inbound)
    if message is None or not all(isinstance(number, int | float) for number in (row.sent_at, row.accepted_at)):
        return _Waiting(row.id, row.session)
    return _Waiting(row.id, row.session, message, row.kind, row.parent, row.accepted_at)


def _answered_together(waiting: list[_Waiting]) -> list[_Waiting]:
    """Return the oldest message, and those after it up to the next one that gets a turn of its own."""
    first, *others = waiting
    if first.is_alone:
        return [first]
    return [first, *takewhile(lambda row: not row.is_alone, others)][:MAX_MESSAGES]


async def _next_turn(
    connection: AsyncConnection, session: _Session, batch: Sequence[_Waiting], agents: Agents
) -> Turn | None:
    """Return the turn that answers these messages; None if there is nothing to answer, or nobody to tell."""
    first, messages = batch[0], tuple(row.message for row in batch if row.message is not None)
    if not messages:
        log.error("message %s of session %s cannot be read", first.id, first.session)
        if not (substitute := await _substitute(connection, first.session)):
            await connection.execute(sa.update(inbox).where(inbox.c.id == first.id).values(outcome="unreadable"))
            return None
        messages = substitute
    turn_id, agent = new_id(), agents.answering(session.agent, messages[-1].spots)
    turn = Turn(
        turn_id,
        first.session,
        session.generation,
        messages,
        "message",
        turn_id,
        model=session.model,
        agent=agent,
        has_waited=time.time() - first.accepted_at > QUEUED_REACTION_SECONDS,
        is_damaged=first.message is None,
    )
    if first.parent is None or turn.is_damaged:
        return turn
    damaged, following = set[str](), turn
    with collect_unreadable(turn.id, damaged):
        if (parent := await parent_of(connection, first.parent)) is None:
            return turn
        _check_turn(parent)
        if first.kind == "retry" and parent.state == "done":  # it has its answer after all
            await connection.execute(sa.update(inbox).where(inbox.c.id == first.id).values(outcome="overtaken"))
            return None
        following = await _following(connection, turn, parent, first.kind)
    return replace(turn, is_damaged=True) if damaged else following


async def _following(connection: AsyncConnection, turn: Turn, parent: sa.Row[Any], kind: Any) -> Turn:
    """Return the turn as the one that repeats its parent, or continues the run that needed approvals."""
    if kind == "approval":
        return replace(turn, kind="approval", run=await waiting_run(connection, parent), agent=parent.agent)
    kind = await begin_again(connection, parent, kind)
    return replace(
        turn,
        kind=kind,
        origin=parent.origin,
        run=parent.run,
        messages=(await said_to(connection, {parent.origin})).get(parent.origin, turn.messages),
        chunks=tuple(parent.chunks or ()),
        agent=parent.agent if kind == "retry" else turn.agent,
    )


async def _substitute(connection: AsyncConnection, session: str) -> tuple[Inbound, ...]:
    """Return the newest readable message of a session, whose reply says that another one cannot be read."""
    of_session = (inbox.c.session == session) & inbox.c.inbound.is_not(None)
    query = sa.select(inbox.c.id, inbox.c.inbound).where(of_session).order_by(inbox.c.id.desc()).limit(_MAX_READ)
    rows, _ = await _read_each(connection, query, inbox.c.id)
    return tuple(message for row in rows if (message := readable(row.inbound)))[:1]


async def _read_each(
    connection: AsyncConnection, query: sa.Select[Any], key: sa.Column[Any]
) -> tuple[Sequence[sa.Row[Any]], list[Any]]:
    """Return the rows of a query, and the keys of those that cannot be decoded.

    SQLite: a text that is not UTF-8 fails the whole query, so that its rows are then read one by one.
    """
    try:
        with store_errors():
            return (await connection.execute(query)).all(), []
    except Unreadable as error:
        log.error("a row of %s cannot be read: %s", key.table.name, traced(error))
    found, damaged = list[sa.Row[Any]](), list[Any]()
    for id_ in (await connection.execute(query.with_only_columns(key))).scalars().all():
        unreadable = set[str]()
        with collect_unreadable(f"{key.table.name} {id_}", unreadable):
            found += (await connection.execute(query.where(key == id_))).all()
        if unreadable:
            damaged.append(id_)
    return found, damaged


def new_id() -> str:
    """Return an id for a turn: short enough for a user to quote."""
    return uuid.uuid4().hex[:10]
