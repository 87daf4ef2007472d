"""What waits for a turn: the messages of each session that none has taken."""

import time
from collections.abc import Collection, Mapping, Sequence
from itertools import groupby, takewhile
from typing import Any, Literal, Protocol, TypeVar

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from core.inbox_message import Inbound
from core.sessions.resume import reopen, rewind
from core.store.schema import approvals, inbox, sessions, turns
from core.store.turn_states import UNDER_WAY
from core.store.upsert import insert_of


class _Asking(Protocol):
    @property
    def parent(self) -> str | None: ...


W = TypeVar("W", bound=_Asking)

#: How many messages one turn answers at most.
MESSAGES = 20

#: How the messages of a turn are answered once more: `retry` goes on with what the one that failed has stored;
#: `regenerate` begins behind the question, and `revise` with the question as it was edited.
Again = Literal["retry", "regenerate", "revise"]


def is_under_way(table: sa.FromClause) -> sa.ColumnElement[bool]:
    """Whether a turn has not ended: in the words of the index that holds such turns."""
    return table.c.state.in_([sa.literal_column(f"'{state}'") for state in UNDER_WAY])


def is_waiting(table: sa.FromClause) -> sa.ColumnElement[bool]:
    """Whether a message of the inbox is still to be taken by a turn."""
    return table.c.turn.is_(None) & table.c.outcome.is_(None)


def is_free(session: sa.ColumnElement[str]) -> sa.ColumnElement[bool]:
    """Whether a session has no turn under way."""
    busy = turns.alias("busy")
    return ~sa.exists().where(busy.c.session == session, is_under_way(busy))


def waiting_sessions(dialect: str) -> tuple[sa.Subquery, Sequence[sa.ColumnElement[Any]]]:
    """Return the free sessions in which messages wait, and the order in which they get their turns.

    That is a round robin over people: the first session of each person goes before the second one of any, and among
    those the person who was served longest ago goes first. A session is that of the author of its oldest message.

    The parameter `the_served` is a JSON object: people by when they were served, in any ascending numbers.
    """
    waiting, head = inbox.alias("waiting"), inbox.alias("head")
    first = sa.func.min(waiting.c.id).label("first")
    heads = sa.select(waiting.c.session, first).where(is_waiting(waiting)).group_by(waiting.c.session).subquery("heads")
    served = listed(dialect, sa.bindparam("the_served", type_=sa.JSON))
    round_ = sa.func.row_number().over(partition_by=head.c.author, order_by=heads.c.first)
    served_at = sa.func.coalesce(sa.cast(served.c.value, sa.Integer), 0)
    found = (
        sa.select(heads.c.session, heads.c.first, round_.label("round"), served_at.label("served_at"))
        .join(head, head.c.id == heads.c.first)
        .outerjoin(served, served.c.key == head.c.author)
        .where(is_free(heads.c.session))
        .subquery("waiting_sessions")
    )
    return found, (found.c.round, found.c.served_at, found.c.first)


def listed(dialect: str, of: sa.BindParameter[Any], *, is_object: bool = True) -> sa.TableValuedAlias:
    """Return the items of a JSON object (`key` and `value`), or of an array (`value`)."""
    if dialect != "postgresql":
        return sa.func.json_each(of).table_valued("key", sa.column("value", sa.Text), name=of.key)
    if is_object:
        return sa.func.json_each_text(of).table_valued("key", sa.column("value", sa.Text), name=of.key)
    return sa.func.json_array_elements_text(of).table_valued(sa.column("value", sa.Text), name=of.key)


async def batches(connection: AsyncConnection, limit: int, served: Mapping[str, int]) -> list[list[sa.Row[Any]]]:
    """Return the messages that the next turn of each free session answers, and lock those sessions.

    Args:
        limit: the most sessions.
        served: see `waiting_sessions`, which has the order.
    """
    waiting, order = waiting_sessions(connection.dialect.name)
    free = (
        sa.select(sessions.c.id)
        .join(waiting, waiting.c.session == sessions.c.id)
        .order_by(*order)
        .limit(limit)
        .with_for_update(skip_locked=True, of=sessions)
    )
    ids = (await connection.execute(free, {"the_served": served})).scalars().all() if limit > 0 else []
    if not ids:
        return []
    # what another worker took before the sessions were kept from it is not there any more
    rows = (
        sa.select(inbox, sessions.c.model, sessions.c.agent)
        .join(sessions, sessions.c.id == inbox.c.session)
        .where(is_waiting(inbox), inbox.c.session.in_(ids))
        .order_by(inbox.c.session, inbox.c.sent_at, inbox.c.id)
    )
    grouped = groupby((await connection.execute(rows)).all(), key=lambda row: row.session)
    first = {session: _answered_together(list(of)) for session, of in grouped}
    return [first[session] for session in ids if session in first]


def _answered_together(waiting: list[sa.Row[Any]]) -> list[sa.Row[Any]]:
    """The same as `answered_together`; what cannot be read is a turn of its own."""
    if readable(waiting[0].inbound) is None:
        return waiting[:1]
    return answered_together(list(takewhile(lambda row: readable(row.inbound) is not None, waiting)))


def row_of(inbound: Inbound, generation: Any) -> dict[str, Any]:
    """What the inbox keeps of whatever message, but for its words."""
    return {
        "event_key": inbound.event_key,
        "session": inbound.session_id,
        "generation": generation,
        "place": inbound.place,
        "author": inbound.author,
        "sent_at": inbound.sent_at,
        "accepted_at": time.time(),
    }


async def note(connection: AsyncConnection, inbound: Inbound, outcome: str, *, kind: str = "message") -> bool:
    """Keep a message without its words; whether it was not here before.

    Args:
        kind: of a command, its name.
    """
    values = {**row_of(inbound, generation_of(inbound)), "outcome": outcome, "kind": kind}
    noted = insert_of(connection.dialect.name, inbox).values(values).on_conflict_do_nothing()
    return (await connection.execute(noted.returning(inbox.c.id))).first() is not None


async def is_known(connection: AsyncConnection, event_key: str) -> bool:
    """Whether a message was accepted under this key, or noted."""
    seen = sa.select(inbox.c.id).where(inbox.c.event_key == event_key)
    return (await connection.execute(seen)).first() is not None


def generation_of(inbound: Inbound) -> sa.ColumnElement[int]:
    """That of its session, which may be yet to begin."""
    found = sa.select(sessions.c.generation).where(sessions.c.id == inbound.session_id).scalar_subquery()
    return sa.func.coalesce(found, 1)


def readable(said: object) -> Inbound | None:
    """The message that a row holds, if it can be read."""
    try:
        return Inbound.from_json(said)
    except ValueError:
        return None


def answered_together(waiting: list[W]) -> list[W]:
    """Of what waits in a session: the oldest, and those behind it up to the next one that is a turn of its own."""
    first, *others = waiting
    if first.parent is not None:
        return [first]
    return [first, *takewhile(lambda row: row.parent is None, others)][:MESSAGES]


async def said_to(connection: AsyncConnection, turn_ids: Collection[str]) -> dict[str, tuple[Inbound, ...]]:
    """The messages that turns answer; without those that were withdrawn, unless there are no others."""
    query = (
        sa.select(inbox.c.turn, inbox.c.inbound, inbox.c.outcome)
        .where(inbox.c.turn.in_(turn_ids))
        .order_by(inbox.c.turn, inbox.c.sent_at, inbox.c.id)
    )
    rows = (await connection.execute(query)).all()
    by_turn = groupby(rows, key=lambda row: row.turn)
    said = {turn: [(row.outcome, message) for row in of if (message := readable(row.inbound))] for turn, of in by_turn}
    standing = {turn: [message for outcome, message in of if outcome is None] for turn, of in said.items()}
    return {turn: tuple(standing[turn] or (message for _, message in of)) for turn, of in said.items() if of}


async def answered_by(connection: AsyncConnection, origin: str) -> Sequence[sa.Row[Any]]:
    """The messages, as the inbox has them, that the turns of an origin answer."""
    query = sa.select(inbox).where(inbox.c.turn == origin).order_by(inbox.c.sent_at, inbox.c.id)
    return (await connection.execute(query)).all()


async def parent_of(connection: AsyncConnection, asking: sa.Row[Any]) -> sa.Row[Any] | None:
    """The turn whose messages are to be answered once more, if it is not forgotten."""
    return (await connection.execute(sa.select(turns).where(turns.c.id == asking.parent))).one_or_none()


async def led_to(connection: AsyncConnection, turn_id: str) -> list[Inbound]:
    """The messages that led to a turn: those that it answers, and those of the turns that it goes on with."""
    found, of = list[Inbound](), sa.select(turns)
    turn = (await connection.execute(of.where(turns.c.id == turn_id))).one_or_none()
    while turn is not None:
        rows = await answered_by(connection, turn.origin)
        found += [message for row in rows if (message := readable(row.inbound))]
        turn = (await connection.execute(of.where(turns.c.id == turn.parent))).one_or_none()
    return found


async def waiting_run(connection: AsyncConnection, asking: sa.Row[Any]) -> str | None:
    """The run that waits for what a turn has asked people for."""
    query = sa.select(approvals.c.run).where(approvals.c.turn == asking.id).limit(1)
    return (await connection.execute(query)).scalar_one_or_none()


async def begin_again(connection: AsyncConnection, parent: sa.Row[Any], kind: Again) -> Again:
    """Make a session ready for the turn that follows `parent` to run, as a part of its claim: once, so that whoever
    takes that turn up later goes on with what it has stored.

    Returns:
        The kind that it is: what was edited or deleted meanwhile is never answered as it was.
    """
    rows = await answered_by(connection, parent.origin)
    if any(row.revised or row.outcome for row in rows):
        kind = "revise"
    for row in rows:
        if row.revised:
            revised = sa.update(inbox).where(inbox.c.id == row.id)
            await connection.execute(revised.values(inbound=row.revised, revised=None))
    if kind == "retry":
        await reopen(connection, parent.session, parent.run or parent.origin)
    else:
        await rewind(connection, parent.session, parent.origin, keeps_question=kind == "regenerate")
    return kind
