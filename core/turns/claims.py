"""Claims turns: the usual case in two statements, all other cases in a transaction.

The first statement finds waiting messages and locks nothing. The second locks their sessions and checks again: a
message that was answered, edited or deleted meanwhile is not claimed. So an empty look is one round trip, a new turn
two.

A turn that another worker left, and a message that asks for a retry, take a transaction of several steps
(`Turns.claim`), and so does a row that cannot be read.
"""

import json
import time
import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from core.inbox_message import Inbound
from core.sessions.routing import Agents
from core.store.database import Database
from core.store.fast_path import Statement
from core.store.schema import inbox, sessions, turns
from core.turns.corrupt_rows import Locate, see_sound, spared, stand_in_for
from core.turns.queries import (
    answered_together,
    begin_again,
    is_free,
    is_under_way,
    is_waiting,
    listed,
    parent_of,
    readable,
    said_to,
    waiting_run,
    waiting_sessions,
)
from core.turns.turn import Turn
from core.usage.meter import Meter
from core.workers.lease import Lease

#: What is called the same of a turn and in its row.
ALIKE = ("id", "generation", "kind", "origin", "run", "model", "agent")

#: Seconds after which a message counts as one that has waited.
WAITED = 0.2

#: The most people that a worker remembers to have served; those before them count as never served.
MAX_SERVED = 1_000

_WORKER = sa.bindparam("the_worker", type_=sa.Text)

#: Seconds between the beginnings of turns that are begun together: they are taken up again in their order.
_APART: sa.ColumnElement[float] = sa.literal_column("0.000001", sa.Double)


@dataclass(frozen=True, slots=True)
class Taken:
    """A turn that has begun, and the messages that it answers."""

    id: str
    session: str
    generation: int
    model: str | None
    agent: str
    messages: tuple[Inbound, ...]
    accepted_at: float


class _Waiting(NamedTuple):
    """A message that waits, as `_LOOK` finds it."""

    resumes: bool
    id: int | None
    session: str
    inbound: str
    parent: str | None
    accepted_at: float
    model: str | None
    agent: str | None


class ServedPeople:
    """People by when this worker last began a turn for them: see `waiting_sessions`."""

    def __init__(self) -> None:
        self._served: dict[str, int] = {}
        self._count = 0

    @property
    def order(self) -> Mapping[str, int]:
        return self._served

    def add(self, messages: Iterable[Inbound]) -> None:
        """A turn has begun that answers these messages."""
        self._count += 1
        for message in messages:
            self._served.pop(message.author, None)
            self._served[message.author] = self._count
        while len(self._served) > MAX_SERVED:
            del self._served[next(iter(self._served))]


async def take(
    database: Database, lease: Lease, agents: Agents, limit: int, running: Collection[str], *, served: Mapping[str, int]
) -> list[Taken] | None:
    """Begin the next turn of each session that is free; nothing at all if there is more to it than that.

    Args:
        agents: of which one answers.
        limit: how many at most.
        running: the turns that run here.
        served: see `waiting_sessions`.

    Raises:
        IntegrityError: another worker was quicker with one of the sessions; nothing is begun.
    """
    values = {"the_worker": lease.worker, "the_running": list(running), "is_sure": lease.is_sure}
    found = await database.run(_LOOK, **values, the_now=time.time(), the_limit=limit, the_served=served)
    waiting = [_Waiting(*row) for row in found]
    if waiting[0].resumes:
        return None
    there = [row for row in waiting if row.id is not None]
    batches = [answered_together(list(of)) for _, of in groupby(there, key=lambda row: row.session)]
    if not batches:
        return []
    said = {row.id: _said(row.inbound) for row in there}
    if any(batch[0].parent is not None for batch in batches) or None in said.values():
        return None
    begun = {new_id(): batch for batch in batches}
    answering = {
        turn: agents.answering(batch[0].agent, last.spots)
        for turn, batch in begun.items()
        if (last := said[batch[-1].id]) is not None
    }
    claims = {
        "the_claims": {str(row.id): turn for turn, batch in begun.items() for row in batch},
        "the_models": {turn: batch[0].model for turn, batch in begun.items() if batch[0].model is not None},
        "the_agents": answering,
    }
    given = await database.run(_TAKE, **claims, the_worker=lease.worker, the_now=time.time())
    taken = {id_: (generation, _said(text)) for id_, generation, text in given}
    turns_: list[Taken] = []
    for turn, (first, *more) in begun.items():
        theirs = [taken[row.id] for row in (first, *more) if row.id in taken]
        if messages := tuple(message for _, message in theirs if message is not None):
            its = (first.session, theirs[0][0], first.model, answering[turn])
            turns_.append(Taken(turn, *its, messages, first.accepted_at))
    return turns_


def plain(taken: Taken) -> Turn:
    """The turn that answers plain messages."""
    its = (taken.id, taken.session, taken.generation, taken.messages)
    has_waited = time.time() - taken.accepted_at > WAITED
    return Turn(*its, "message", taken.id, model=taken.model, agent=taken.agent, has_waited=has_waited)


def resumed(row: sa.Row[Any], messages: tuple[Inbound, ...], *, is_damaged: bool) -> Turn:
    """The turn whose row, as it was before, somebody has taken up."""
    return Turn(
        **{name: getattr(row, name) for name in ALIKE},
        session_id=row.session,
        messages=messages,
        claim=row.claims + 1,
        attempt=row.attempt + 1,
        is_resumed=True,
        has_waited=True,
        chunks=tuple(row.chunks or ()),
        text=row.text if row.state == "answered" else None,
        said="" if row.state == "answered" else row.text or "",
        cancel=row.cancel,
        is_damaged=is_damaged,
        meter=Meter(row.id, row.usage, begun_at=row.created_at),
    )


def new_id() -> str:
    """For a turn."""
    return uuid.uuid4().hex[:10]


def _said(text: str) -> Inbound | None:
    try:
        return readable(json.loads(text))
    except (TypeError, ValueError):
        return None


def _looks(dialect: str) -> sa.Select[Any]:
    """Return the messages that wait in free sessions, in the order of `waiting_sessions`.

    Each row, of which there is one at least, also says whether there are turns to be resumed.
    """
    is_nobodys = (turns.c.owner == _WORKER) | Lease.gone(
        turns.c.owner,
        is_sure=sa.bindparam("is_sure", type_=sa.Boolean),
        now=Database.clock(dialect, sa.bindparam("the_now", type_=sa.Double)),
    )
    running = listed(dialect, sa.bindparam("the_running", type_=sa.JSON), is_object=False)
    left = sa.exists().where(is_under_way(turns), turns.c.id.not_in(sa.select(running.c.value)), is_nobodys)
    any_left = sa.select(left.label("resumes")).subquery("any_left")
    waiting, order = waiting_sessions(dialect)
    free = sa.select(waiting).order_by(*order).limit(sa.bindparam("the_limit", type_=sa.Integer)).subquery("free")
    said = sa.cast(inbox.c.inbound, sa.Text) if dialect == "postgresql" else inbox.c.inbound
    i, chosen = inbox.c, (sessions.c.model, sessions.c.agent)
    place = (free.c.round, free.c.served_at, free.c.first)
    columns = (i.id, i.session, said.label("said"), i.parent, i.accepted_at, i.sent_at, *chosen, *place)
    of_free = sa.select(*columns).join(free, free.c.session == i.session).join(sessions, sessions.c.id == i.session)
    found = of_free.where(is_waiting(inbox)).subquery("found")
    f = found.c
    return (
        sa.select(any_left.c.resumes, f.id, f.session, f.said, f.parent, f.accepted_at, f.model, f.agent)
        .select_from(any_left.outerjoin(found, sa.true()))
        .order_by(f.round, f.served_at, f.first, f.sent_at, f.id)
    )


def _takes(dialect: str) -> sa.Select[Any] | tuple[sa.UpdateBase, sa.UpdateBase]:
    """Gives the messages to their turns, and begins these: of what is still as it was, what is said now."""
    claims, models, agents = (
        listed(dialect, sa.bindparam(name, type_=sa.JSON)) for name in ("the_claims", "the_models", "the_agents")
    )
    claimed = sa.cast(claims.c.key, inbox.c.id.type)
    is_claimed = (inbox.c.id == claimed) & is_waiting(inbox)
    giving = sa.update(inbox).values(turn=claims.c.value)

    def begin(given: Any) -> sa.Insert:
        """The turns of the rows of the inbox that were given to them."""
        c = given.c
        place = sa.func.row_number().over(order_by=sa.func.min(c.id))
        new = {
            "id": c.turn,
            "session": c.session,
            "generation": sa.func.min(c.generation),
            "origin": c.turn,
            "model": models.c.value,
            "agent": agents.c.value,
            "state": sa.literal_column("'running'"),
            "owner": _WORKER,
            "chunks": sa.bindparam("none", [], turns.c.chunks.type),
            "created_at": sa.bindparam("the_now", type_=sa.Double) + place * _APART,
        }
        theirs = given.join(agents, agents.c.key == c.turn).outerjoin(models, models.c.key == c.turn)
        rows = sa.select(*new.values()).select_from(theirs).group_by(c.turn, c.session, models.c.value, agents.c.value)
        return sa.insert(turns).from_select(list(new), rows)

    if dialect != "postgresql":
        given = giving.where(is_claimed, is_free(inbox.c.session))
        return given.returning(inbox.c.id, inbox.c.generation, inbox.c.inbound), begin(inbox)
    theirs = sa.select(inbox.c.session).where(inbox.c.id.in_(sa.select(claimed)))
    held = sa.select(sessions.c.id).where(sessions.c.id.in_(theirs), is_free(sessions.c.id))
    kept = held.with_for_update(skip_locked=True, of=sessions).cte("held")
    i = inbox.c
    given = giving.where(is_claimed, i.session == kept.c.id)
    said = sa.cast(i.inbound, sa.Text).label("said")
    taken = given.returning(i.id, i.turn, i.session, i.generation, said).cte("taken")
    t = taken.c
    return sa.select(t.id, t.generation, t.said).add_cte(begin(taken).cte("begun"))


_LOOK, _TAKE = Statement(_looks), Statement(_takes)


async def next_turn(
    connection: AsyncConnection, batch: Sequence[sa.Row[Any]], agents: Agents, locate: Locate
) -> Turn | None:
    """The turn that answers what waits, or says that it cannot be read, if it is known where to say that. What an
    agent has begun or asked for, that one goes on with.
    """
    first, said = batch[0], tuple(message for row in batch if (message := readable(row.inbound)))
    if is_damaged := not said:
        if (message := await stand_in_for(connection, first, locate)) is None:
            return None
        said = (message,)
    its = (first.session, first.generation, first.model, agents.answering(first.agent, said[-1].spots))
    turn = replace(plain(Taken(new_id(), *its, said, first.accepted_at)), is_damaged=is_damaged)
    if is_damaged or first.parent is None:
        return turn
    damaged = set[str]()
    async with spared(connection, turn.id, damaged):
        if (parent := await parent_of(connection, first)) is not None:
            see_sound([parent])
    if damaged or parent is None:
        return replace(turn, is_damaged=bool(damaged))
    if first.kind == "retry" and parent.state == "done":  # it has come to its answer after all
        await connection.execute(sa.update(inbox).where(inbox.c.id == first.id).values(outcome="overtaken"))
        return None
    if first.kind == "approval":
        return replace(turn, kind="approval", run=await waiting_run(connection, parent), agent=parent.agent)
    kind = first.kind
    async with spared(connection, turn.id, damaged):
        kind = await begin_again(connection, parent, first.kind)
    said = (await said_to(connection, {parent.origin})).get(parent.origin, turn.messages)
    chunks, agent = tuple(parent.chunks or ()), parent.agent if kind == "retry" else turn.agent
    of_parent = {"origin": parent.origin, "run": parent.run, "messages": said, "chunks": chunks, "agent": agent}
    return replace(turn, kind=kind, is_damaged=bool(damaged), **of_parent)
