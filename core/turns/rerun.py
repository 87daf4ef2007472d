"""Reruns: retry, regenerate and revise answer the messages of a turn again, in the same reply."""

import time
from dataclasses import replace
from enum import Enum, auto
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from core.inbox_message import InboxMessage
from core.sessions.lifecycle import lock_session_row
from core.store.schema import human_requests, inbox, turns
from core.store.turn_states import ENDED_STATES
from core.turns.queries import RerunKind, get_inbox_rows, is_waiting, parse_message
from core.turns.turn import CancelReason


class RerunDenied(Enum):
    """Reason why a turn is not run again.

    Attributes:
        NOT_OWNER: another person wrote the messages.
        EXPIRED: the session was reset, the messages were deleted, the turn is in another state, or has a rerun already.
        SUPERSEDED: newer messages follow: a new answer would change the middle of the conversation.
    """

    NOT_OWNER = auto()
    EXPIRED = auto()
    SUPERSEDED = auto()


async def create_rerun_message(
    connection: AsyncConnection, turn_id: str, *, author: str | None, kind: RerunKind
) -> InboxMessage | RerunDenied:
    """Return the inbox message for a rerun of a turn, with its session locked; or why there is none.

    A turn has at most one such message, whatever its kind.

    Args:
        author: the person who asks; None for an operator, who may always.
    """
    session = sa.select(turns.c.session).where(turns.c.id == turn_id)
    generation = await lock_session_row(connection, (await connection.execute(session)).scalar_one_or_none())
    turn = (await connection.execute(sa.select(turns).where(turns.c.id == turn_id))).one_or_none()
    rows = await get_inbox_rows(connection, turn.origin) if turn is not None else ()
    standing = [row for row in rows if row.outcome is None]
    said = [message for row in standing if (message := parse_message(row.message))]
    if turn is None or turn.generation != generation or not said:
        return RerunDenied.EXPIRED
    if author is not None and author not in {message.author for message in said}:
        return RerunDenied.NOT_OWNER
    message = replace(said[-1], event_key=f"{said[-1].channel}:again:{turn_id}", sent_at=time.time())
    if (has_ended := await _has_ended(connection, message.event_key)) is not None:
        return RerunDenied.EXPIRED if has_ended else message
    goes_on = kind == "retry" and await _has_approvals(connection, turn_id)
    if goes_on or not _is_permitted(turn, kind, is_revised=any(row.edited_message for row in standing)):
        return RerunDenied.EXPIRED
    if kind != "retry" and await _has_followers(connection, turn):
        return RerunDenied.SUPERSEDED
    # what it has asked people for is not to be decided any more
    await connection.execute(sa.delete(human_requests).where(human_requests.c.turn == turn_id))
    return message


async def _has_approvals(connection: AsyncConnection, turn_id: str) -> bool:
    """Return whether a turn has approvals: it has its answer, and continues when they are decided."""
    asked = sa.exists().where(human_requests.c.turn == turn_id)
    return bool((await connection.execute(sa.select(asked))).scalar_one())


def _is_permitted(turn: sa.Row[Any], kind: RerunKind, *, is_revised: bool) -> bool:
    """Return whether a turn in its state may be run again in this way."""
    is_stopped = turn.cancel_reason == CancelReason.STOP and turn.state in ("running", "cancelled")
    match kind:
        case "retry":
            return turn.state in ("failed", "running")
        case "regenerate":
            return turn.run is None and (turn.state in ("answered", "done") or is_stopped)
        case "revise":
            return is_revised and (turn.state != "cancelled" or is_stopped)


async def _has_followers(connection: AsyncConnection, turn: sa.Row[Any]) -> bool:
    """Return whether the session has newer messages or turns than a turn."""
    newer = turns.alias("newer")
    waits = sa.exists().where(inbox.c.session == turn.session, is_waiting(inbox))
    follows = sa.exists().where(newer.c.session == turn.session, newer.c.created_at > turn.created_at)
    return bool((await connection.execute(sa.select(waits | follows))).scalar_one())


async def _has_ended(connection: AsyncConnection, event_key: str) -> bool | None:
    """Return whether the rerun of an event key has ended; None if there is none."""
    query = (
        sa.select(inbox.c.outcome.is_not(None) | turns.c.state.in_(ENDED_STATES))
        .join_from(inbox, turns, turns.c.id == inbox.c.turn, isouter=True)
        .where(inbox.c.event_key == event_key)
    )
    found = (await connection.execute(query)).one_or_none()
    return None if found is None else bool(found[0])
