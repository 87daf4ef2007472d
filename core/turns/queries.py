"""Queries of the inbox and the turns that several operations share."""

import time
from collections.abc import Collection, Sequence
from itertools import groupby
from typing import Any, Literal

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from core.inbox_message import InboxMessage, InboxOutcome
from core.sessions.resume import discard_run, resume_run
from core.store.schema import human_requests, inbox, sessions, turns
from core.store.turn_states import ACTIVE_STATES
from core.store.upsert import build_insert

#: How the messages of a turn are answered once more: `retry` goes on with what the one that failed has stored;
#: `regenerate` begins behind the question, and `revise` with the question as it was edited.
RerunKind = Literal["retry", "regenerate", "revise"]


def is_active(table: sa.FromClause) -> sa.ColumnElement[bool]:
    """Return the condition that a turn has not ended, as `ix_turns_one_active` has it."""
    return table.c.state.in_([sa.literal_column(f"'{state}'") for state in ACTIVE_STATES])


def is_waiting(table: sa.FromClause) -> sa.ColumnElement[bool]:
    """Return the condition that a message has neither a turn nor an outcome."""
    return table.c.turn.is_(None) & table.c.outcome.is_(None)


def is_idle(session: sa.ColumnElement[str]) -> sa.ColumnElement[bool]:
    """Return the condition that a session has no active turn."""
    busy = turns.alias("busy")
    return ~sa.exists().where(busy.c.session == session, is_active(busy))


def message_columns(inbound: InboxMessage, generation: Any) -> dict[str, Any]:
    """Return the inbox columns of a message by name, without those of its text."""
    return {
        "event_key": inbound.event_key,
        "session": inbound.session_id,
        "generation": generation,
        "place": inbound.place,
        "author": inbound.author,
        "sent_at": inbound.sent_at,
        "accepted_at": time.time(),
    }


async def record_message(
    connection: AsyncConnection, inbound: InboxMessage, outcome: InboxOutcome, *, kind: str = "message"
) -> bool:
    """Store a message without its text, and return whether it is new.

    Args:
        kind: the name of a command.
    """
    values = {**message_columns(inbound, session_generation(inbound)), "outcome": outcome, "kind": kind}
    noted = build_insert(connection.dialect.name, inbox).values(values).on_conflict_do_nothing()
    return (await connection.execute(noted.returning(inbox.c.id))).first() is not None


async def has_message(connection: AsyncConnection, event_key: str) -> bool:
    """Return whether a message is stored under this key."""
    seen = sa.select(inbox.c.id).where(inbox.c.event_key == event_key)
    return (await connection.execute(seen)).first() is not None


def session_generation(inbound: InboxMessage) -> sa.ColumnElement[int]:
    """Select the generation of the session of a message; 1 if the session does not exist yet."""
    found = sa.select(sessions.c.generation).where(sessions.c.id == inbound.session_id).scalar_subquery()
    return sa.func.coalesce(found, 1)


def parse_message(said: object) -> InboxMessage | None:
    """Return the message in a JSON value of the inbox; None if it cannot be parsed."""
    try:
        return InboxMessage.from_json(said)
    except ValueError:
        return None


async def get_messages_of_turns(
    connection: AsyncConnection, turn_ids: Collection[str]
) -> dict[str, tuple[InboxMessage, ...]]:
    """Return messages by turn id, without deleted ones unless a turn has no others."""
    query = (
        sa.select(inbox.c.turn, inbox.c.message, inbox.c.outcome)
        .where(inbox.c.turn.in_(turn_ids))
        .order_by(inbox.c.turn, inbox.c.sent_at, inbox.c.id)
    )
    rows = (await connection.execute(query)).all()
    by_turn = groupby(rows, key=lambda row: row.turn)
    said = {
        turn: [(row.outcome, message) for row in of if (message := parse_message(row.message))] for turn, of in by_turn
    }
    standing = {turn: [message for outcome, message in of if outcome is None] for turn, of in said.items()}
    return {turn: tuple(standing[turn] or (message for _, message in of)) for turn, of in said.items() if of}


async def get_inbox_rows(connection: AsyncConnection, origin: str) -> Sequence[sa.Row[Any]]:
    """Return the inbox rows that a first turn and its reruns answer, oldest first."""
    query = sa.select(inbox).where(inbox.c.turn == origin).order_by(inbox.c.sent_at, inbox.c.id)
    return (await connection.execute(query)).all()


async def get_turn_row(connection: AsyncConnection, turn_id: str) -> sa.Row[Any] | None:
    """Return the row of a turn; None if it is deleted."""
    return (await connection.execute(sa.select(turns).where(turns.c.id == turn_id))).one_or_none()


async def get_message_chain(connection: AsyncConnection, turn_id: str) -> list[InboxMessage]:
    """Return the messages of a turn and of its parents, the newest turn first."""
    found, of = list[InboxMessage](), sa.select(turns)
    turn = (await connection.execute(of.where(turns.c.id == turn_id))).one_or_none()
    while turn is not None:
        rows = await get_inbox_rows(connection, turn.origin)
        found += [message for row in rows if (message := parse_message(row.message))]
        turn = (await connection.execute(of.where(turns.c.id == turn.parent))).one_or_none()
    return found


async def get_requesting_run(connection: AsyncConnection, asking: sa.Row[Any]) -> str | None:
    """Return the run that waits for the approvals of a turn."""
    query = sa.select(human_requests.c.run).where(human_requests.c.turn == asking.id).limit(1)
    return (await connection.execute(query)).scalar_one_or_none()


async def prepare_rerun(connection: AsyncConnection, parent: sa.Row[Any], kind: RerunKind) -> RerunKind:
    """Prepare a session for the turn that repeats `parent`, once, as a part of its claim.

    Returns:
        The kind of the rerun: `revise` if a message was edited or deleted meanwhile.
    """
    rows = await get_inbox_rows(connection, parent.origin)
    if any(row.edited_message or row.outcome for row in rows):
        kind = "revise"
    for row in rows:
        if row.edited_message:
            revised = sa.update(inbox).where(inbox.c.id == row.id)
            await connection.execute(revised.values(message=row.edited_message, edited_message=None))
    if kind == "retry":
        await resume_run(connection, parent.session, parent.run or parent.origin)
    else:
        await discard_run(connection, parent.session, parent.origin, keep_prompt=kind == "regenerate")
    return kind
