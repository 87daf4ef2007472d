"""Claiming, as it usually is: nothing waits, or plain messages do that nobody has answered yet.

What waits is looked at first, by one statement that holds nobody up. What is found is taken by another one, which takes
hold of the sessions and looks again: nothing is taken that is answered, edited or forgotten by then. So a look for
nothing is one round trip, and a turn that begins is two.

All else, a turn that another worker has left or a message that asks for something once more, takes a transaction of
several steps (`Turns.claim`).
"""

import json
import time
import uuid
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, NamedTuple

import sqlalchemy as sa

from core.inbound import Inbound
from core.lease import Lease
from core.store.database import Database
from core.store.schema import inbox, sessions, turns
from core.store.statement import Statement
from core.waiting import answered_together, is_free, is_under_way, is_waiting, readable, waiting_heads

_CLAIMS = sa.bindparam("the_claims", type_=sa.JSON)
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


async def take(database: Database, lease: Lease, limit: int, running: Collection[str]) -> list[Taken] | None:
    """Begin the next turn of each session that is free; nothing at all if there is more to it than that.

    Args:
        limit: how many at most.
        running: the turns that run here.

    Raises:
        IntegrityError: another worker was quicker with one of the sessions; nothing is begun.
    """
    values = {"the_worker": lease.worker, "the_running": list(running), "is_sure": lease.is_sure}
    found = await database.run(_LOOK, **values, the_now=time.time(), the_limit=limit)
    waiting = [_Waiting(*row) for row in found]
    if waiting[0].resumes:
        return None
    batches = [
        answered_together(list(of))
        for _, of in groupby((row for row in waiting if row.id is not None), key=lambda row: row.session)
    ]
    if not batches:
        return []
    if any(batch[0].parent is not None for batch in batches) or any(_said(row.inbound) is None for row in waiting):
        return None
    claims = {str(row.id): turn for batch in batches for turn in [new_id()] for row in batch}
    begun = await database.run(_TAKE, the_claims=claims, the_worker=lease.worker, the_now=time.time())
    taken = {id_: row for id_, *row in begun}
    return [turn for batch in batches if (turn := _begun(batch, taken)) is not None]


def new_id() -> str:
    """For a turn."""
    return uuid.uuid4().hex[:10]


def _begun(batch: Sequence[_Waiting], taken: dict[int, list[Any]]) -> Taken | None:
    rows = [taken[row.id] for row in batch if row.id in taken]
    said = [message for *_, text in rows if (message := _said(text)) is not None]
    if not said:
        return None
    turn, generation, model, _ = rows[0]
    return Taken(turn, batch[0].session, generation, model, tuple(said), batch[0].accepted_at)


def _said(text: str) -> Inbound | None:
    try:
        return readable(json.loads(text))
    except (TypeError, ValueError):
        return None


def _looks(dialect: str) -> sa.Select[Any]:
    """What waits in the sessions that are free, those first that have waited longest; and in each row, of which there
    is one at least, whether there are turns to be taken up.
    """
    is_nobodys = (turns.c.owner == _WORKER) | Lease.gone(
        turns.c.owner,
        is_sure=sa.bindparam("is_sure", type_=sa.Boolean),
        now=Database.clock(dialect, sa.bindparam("the_now", type_=sa.Double)),
    )
    running = _listed(dialect, sa.bindparam("the_running", type_=sa.JSON), is_object=False)
    left = sa.exists().where(is_under_way(turns), turns.c.id.not_in(sa.select(running.c.value)), is_nobodys)
    any_left = sa.select(left.label("resumes")).subquery("any_left")
    heads = waiting_heads()
    free = (
        sa.select(heads.c.session, heads.c.first)
        .where(is_free(heads.c.session))
        .order_by(heads.c.first)
        .limit(sa.bindparam("the_limit", type_=sa.Integer))
        .subquery("free")
    )
    said = sa.cast(inbox.c.inbound, sa.Text) if dialect == "postgresql" else inbox.c.inbound
    columns = (inbox.c.id, inbox.c.session, said.label("said"), inbox.c.parent, inbox.c.accepted_at, inbox.c.sent_at)
    there = sessions.c.id == inbox.c.session
    of_free = sa.select(*columns, free.c.first).join(free, free.c.session == inbox.c.session).join(sessions, there)
    found = of_free.where(is_waiting(inbox)).subquery("found")
    f = found.c
    return (
        sa.select(any_left.c.resumes, f.id, f.session, f.said, f.parent, f.accepted_at)
        .select_from(any_left.outerjoin(found, sa.true()))
        .order_by(f.first, f.sent_at, f.id)
    )


def _takes(dialect: str) -> sa.Select[Any] | tuple[sa.UpdateBase, sa.UpdateBase]:
    """Gives the messages to their turns, and begins these: of what is still as it was, what is said now."""
    claims = _listed(dialect, _CLAIMS)
    claimed = sa.cast(claims.c.key, inbox.c.id.type)
    is_claimed = (inbox.c.id == claimed) & is_waiting(inbox)
    giving = sa.update(inbox).values(turn=claims.c.value)
    now = sa.bindparam("the_now", type_=sa.Double)
    model = sa.select(sessions.c.model).where(sessions.c.id == inbox.c.session).scalar_subquery()
    into = ["id", "session", "generation", "origin", "model", "state", "owner", "chunks", "created_at"]

    def begin(given: Any) -> sa.Insert:
        """The turns of the rows of the inbox that were given to them."""
        c, model = given.c, sessions.c.model
        place = sa.func.row_number().over(order_by=sa.func.min(c.id))
        fixed: tuple[sa.ColumnElement[Any], ...]
        fixed = sa.literal_column("'running'"), _WORKER, sa.bindparam("none", [], turns.c.chunks.type)
        new = sa.select(c.turn, c.session, sa.func.min(c.generation), c.turn, model, *fixed, now + place * _APART)
        new = new.join(sessions, sessions.c.id == c.session).group_by(c.turn, c.session, model)
        if given is inbox:
            new = new.where(c.turn.in_(sa.select(claims.c.value)))
        return sa.insert(turns).from_select(into, new)

    if dialect != "postgresql":
        given = giving.where(is_claimed, is_free(inbox.c.session))
        return (
            given.returning(inbox.c.id, inbox.c.turn, inbox.c.generation, model, inbox.c.inbound),
            begin(inbox),
        )
    theirs = sa.select(inbox.c.session).where(inbox.c.id.in_(sa.select(claimed)))
    held = sa.select(sessions.c.id, sessions.c.model).where(sessions.c.id.in_(theirs), is_free(sessions.c.id))
    kept = held.with_for_update(skip_locked=True, of=sessions).cte("held")
    i = inbox.c
    given = giving.where(is_claimed, i.session == kept.c.id).returning(
        i.id, i.turn, i.session, i.generation, sa.cast(i.inbound, sa.Text).label("said"), kept.c.model
    )
    taken = given.cte("taken")
    t = taken.c
    return sa.select(t.id, t.turn, t.generation, t.model, t.said).add_cte(begin(taken).cte("begun"))


def _listed(dialect: str, of: sa.BindParameter[Any], *, is_object: bool = True) -> sa.TableValuedAlias:
    """The items of a JSON object (`key` and `value`), or of an array (`value`)."""
    if dialect != "postgresql":
        return sa.func.json_each(of).table_valued("key", sa.column("value", sa.Text), name=of.key)
    if is_object:
        return sa.func.json_each_text(of).table_valued("key", sa.column("value", sa.Text), name=of.key)
    return sa.func.json_array_elements_text(of).table_valued(sa.column("value", sa.Text), name=of.key)


_LOOK, _TAKE = Statement(_looks), Statement(_takes)
