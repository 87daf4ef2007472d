"""Reruns: turns that answer the messages of an earlier turn again.

A rerun shows its answer in the reply of the earlier turn. `RerunKind` has the kinds: retry, regenerate and revise.
"""

import time
from dataclasses import replace
from enum import Enum, auto
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from core.messages.inbox_message import InboxMessage
from core.sessions.lifecycle import lock_session_row
from core.store.schema import human_requests, inbox, turns
from core.store.turn_states import ENDED_STATES
from core.turns.queries import RerunKind, get_inbox_rows, is_waiting, parse_inbox_message
from core.turns.turn import CancelReason


class RerunDenial(Enum):
    """Reason why a turn is not run again.

    Attributes:
        NOT_OWNER: the person wrote none of the messages that the turn answers.
        EXPIRED: the turn is unknown or has had its rerun, its session was reset, its messages were deleted, or its
            state does not allow this kind of rerun.
        SUPERSEDED: newer messages or turns of the session follow: a new answer would change the middle of the
            conversation.
    """

    NOT_OWNER = auto()
    EXPIRED = auto()
    SUPERSEDED = auto()


async def create_rerun_message(
    connection: AsyncConnection, turn_id: str, *, author: str | None, kind: RerunKind
) -> InboxMessage | RerunDenial:
    """Return the inbox message that requests a rerun of a turn, for the caller to store, or the denial.

    It is a copy of the newest message of the turn, with the current time. All requests for one turn have the same event
    key, so that the inbox stores only one: the message is returned again while an earlier request waits or its turn
    runs. The session's row is locked until the transaction ends. If the rerun is permitted, the approvals and questions
    of the turn to people are deleted.

    Args:
        author: the platform's id of the person who asks; None for an operator, who may repeat any turn.
        kind: `retry` of a failed turn, `regenerate` of an answered or stopped one, or `revise` after an edit.
    """
    session = sa.select(turns.c.session).where(turns.c.id == turn_id)
    generation = await lock_session_row(connection, (await connection.execute(session)).scalar_one_or_none())
    turn = (await connection.execute(sa.select(turns).where(turns.c.id == turn_id))).one_or_none()
    rows = await get_inbox_rows(connection, turn.origin) if turn is not None else ()
    undeleted = [row for row in rows if row.outcome is None]
    answered = [message for row in undeleted if (message := parse_inbox_message(row.message, row.id))]
    if turn is None or turn.generation != generation or not answered:
        return RerunDenial.EXPIRED
    if author is not None and author not in {message.author for message in answered}:
        return RerunDenial.NOT_OWNER
    message = replace(answered[-1], event_key=f"{answered[-1].platform}:rerun:{turn_id}", sent_at=time.time())
    if (has_ended := await _has_ended(connection, message.event_key)) is not None:
        return RerunDenial.EXPIRED if has_ended else message
    continues_by_decision = kind == "retry" and await _has_approvals(connection, turn_id)
    if continues_by_decision or not _is_permitted(turn, kind, is_revised=any(row.edited_message for row in undeleted)):
        return RerunDenial.EXPIRED
    if kind != "retry" and await _has_followers(connection, turn):
        return RerunDenial.SUPERSEDED
    # its open requests to people are void
    await connection.execute(sa.delete(human_requests).where(human_requests.c.turn == turn_id))
    return message


async def _has_approvals(connection: AsyncConnection, turn_id: str) -> bool:
    """Return whether a turn has asked people: their decisions continue its run, so that it cannot be retried."""
    has_requests = sa.exists().where(human_requests.c.turn == turn_id)
    return bool((await connection.execute(sa.select(has_requests))).scalar_one())


def _is_permitted(turn: sa.Row[Any], kind: RerunKind, *, is_revised: bool) -> bool:
    """Return whether the state of a turn allows this kind of rerun; `is_revised` is needed only for `revise`."""
    is_stopped = turn.cancel_reason == CancelReason.STOP and turn.state in ("running", "cancelled")
    match kind:
        case "retry":
            return turn.state in ("failed", "running")
        case "regenerate":
            return turn.run is None and (turn.state in ("answered", "done") or is_stopped)
        case "revise":
            return is_revised and (turn.state != "cancelled" or is_stopped)


async def _has_followers(connection: AsyncConnection, turn: sa.Row[Any]) -> bool:
    newer = turns.alias("newer")
    waits = sa.exists().where(inbox.c.session == turn.session, is_waiting(inbox))
    follows = sa.exists().where(newer.c.session == turn.session, newer.c.created_at > turn.created_at)
    return bool((await connection.execute(sa.select(waits | follows))).scalar_one())


async def _has_ended(connection: AsyncConnection, event_key: str) -> bool | None:
    """Return whether the rerun that an event key requested has ended or gets no turn; None without a request."""
    query = (
        sa.select(inbox.c.outcome.is_not(None) | turns.c.state.in_(ENDED_STATES))
        .join_from(inbox, turns, turns.c.id == inbox.c.turn, isouter=True)
        .where(inbox.c.event_key == event_key)
    )
    found = (await connection.execute(query)).one_or_none()
    return None if found is None else bool(found[0])
