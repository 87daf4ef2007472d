"""Edits and deletions of inbox messages, before and after a turn claimed them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from core.messages.inbox_message import InboxOutcome
from core.sessions.lifecycle import delete_prompts, lock_session_row
from core.store.schema import human_requests, inbox, turns
from core.store.turn_states import ACTIVE_STATES, State
from core.turns.queries import get_inbox_rows, list_readable_messages, parse_inbox_message
from core.turns.store import TurnStore
from core.turns.turn import CancelReason


class EditResult(Enum):
    """Result of an edit that changes no message of a turn.

    Attributes:
        NOT_RECEIVED: the inbox has no row of the message (any more), and the new text mentions the bot: the caller can
            accept the message.
        UNKNOWN: the message is not stored, belongs to a session before its reset, or has an `InboxOutcome` such as
            `DELETED`; or its turn is deleted. Nothing is stored.
        WAITING: the message waits for a turn, which will answer the new text.
    """

    NOT_RECEIVED = auto()
    UNKNOWN = auto()
    UNCHANGED = auto()
    WAITING = auto()


class DeleteResult(Enum):
    """Result of a deletion of a message that no turn has claimed.

    Attributes:
        UNKNOWN: the message is not stored, belongs to a session before its reset, or was not for a turn; or its turn is
            deleted. Nothing changes.
        DROPPED: the message waited for a turn; no turn answers it now.
    """

    UNKNOWN = auto()
    DROPPED = auto()


@dataclass(frozen=True, slots=True)
class ClaimedMessage:
    """Result of an edit or deletion of a message that a turn has claimed.

    Attributes:
        turn_id: the id of the newest turn that answers the message.
        is_only_message: whether all other messages of the turn are deleted, or it has no others.
        is_turn_cancelled: whether the deletion has cancelled the active turn.
    """

    turn_id: str
    state: State
    is_only_message: bool = True
    is_turn_cancelled: bool = False


async def edit_message(
    connection: AsyncConnection, event_key: str, text: str, *, is_mention: bool = False
) -> EditResult | ClaimedMessage:
    """Store the new text of an inbox message, in the caller's transaction.

    A message that waits for a turn gets the new text. For a message that a turn has claimed, the new text is stored
    beside the old one, for a rerun of the kind `revise`. If it is the text that the turn has got, an earlier edit is
    deleted.

    Args:
        event_key: the event key of the message, not of the edit.
        text: the new text without the mention of the bot.
        is_mention: whether the new text mentions the bot. If the message was stored as one to other people, its row is
            deleted, so that the caller can accept the message.
    """
    if is_mention and await _delete_unaddressed(connection, event_key):
        return EditResult.NOT_RECEIVED
    row = await _lock_message(connection, event_key)
    message = None if row is None else parse_inbox_message(row.message, row.id)
    if row is None or message is None or row.outcome is not None:
        return EditResult.UNKNOWN
    turn = await _get_newest_turn(connection, row)
    if row.turn is not None and turn is None:
        return EditResult.UNKNOWN
    current = parse_inbox_message(row.edited_message, row.id) or message
    if current.text == text:
        return EditResult.UNCHANGED
    edited = replace(message, text=text).to_json()
    update = sa.update(inbox).where(inbox.c.id == row.id)
    if turn is None:
        await connection.execute(update.values(message=edited))
        return EditResult.WAITING
    is_revised = message.text != text
    await connection.execute(update.values(edited_message=edited if is_revised else None))
    others = await _list_other_messages(connection, row)
    return ClaimedMessage(turn.id, turn.state, is_only_message=not others)


async def delete_message(
    connection: AsyncConnection, event_key: str, turn_store: TurnStore
) -> DeleteResult | ClaimedMessage:
    """Delete the text of an inbox message, in the caller's transaction.

    The message gets the outcome `deleted`, so that no turn answers it. The texts of requests for reruns of its turn are
    deleted too. If its turn answers no other message, an active turn is cancelled. The open requests to people and the
    run record of the turn are deleted then, too. The prompts of all turns of the session are deleted.

    The event key is that of the message, not of the deletion. A second call returns a `ClaimedMessage` or `DROPPED`
    again, not `UNKNOWN`.
    """
    row = await _lock_message(connection, event_key)
    if row is None or row.message is None or row.outcome not in (None, InboxOutcome.DELETED):
        return DeleteResult.UNKNOWN
    turn = await _get_newest_turn(connection, row)
    if row.turn is not None and turn is None:
        return DeleteResult.UNKNOWN
    others = await _list_other_messages(connection, row)
    reruns = await _list_reruns(connection, row)
    for copy in (row, *reruns):
        await connection.execute(sa.update(inbox).where(inbox.c.id == copy.id).values(message=_without_text(copy)))
    dropped_ids = [row.id] if others else [row.id, *(copy.id for copy in reruns if copy.turn is None)]
    deleted = {"outcome": InboxOutcome.DELETED, "edited_message": None}
    await connection.execute(
        sa.update(inbox).where(inbox.c.id.in_(dropped_ids), inbox.c.outcome.is_(None)).values(deleted)
    )
    if turn is None:
        return DeleteResult.DROPPED
    await delete_prompts(connection, turns.c.session == row.session)
    if not others:  # tool arguments may quote the message, and its open requests are void
        answering_turns = sa.update(turns).where(turns.c.session == row.session, turns.c.origin == row.turn)
        await connection.execute(answering_turns.values(run_record=None))
        undecided = human_requests.c.turn == turn.id, human_requests.c.decision.is_(None)
        await connection.execute(sa.delete(human_requests).where(*undecided))
    is_ended = False
    if not others and turn.state in ACTIVE_STATES:
        is_ended = await turn_store.request_cancel(connection, row.session, CancelReason.MESSAGE_DELETED) is not None
    return ClaimedMessage(turn.id, turn.state, is_only_message=not others, is_turn_cancelled=is_ended)


async def _delete_unaddressed(connection: AsyncConnection, event_key: str) -> bool:
    """Delete the row of a message with the outcome `unaddressed`; return whether the inbox has no row of it now."""
    is_this = inbox.c.event_key == event_key
    await connection.execute(sa.delete(inbox).where(is_this, inbox.c.outcome == InboxOutcome.UNADDRESSED))
    return (await connection.execute(sa.select(inbox.c.id).where(is_this))).first() is None


async def _lock_message(connection: AsyncConnection, event_key: str) -> sa.Row[Any] | None:
    """Lock the session of a message, and return the message's row, unless it was stored before a reset."""
    is_this = inbox.c.event_key == event_key
    session = (await connection.execute(sa.select(inbox.c.session).where(is_this))).scalar_one_or_none()
    generation = await lock_session_row(connection, session)
    in_generation = inbox.c.generation == generation
    return (await connection.execute(sa.select(inbox).where(is_this, in_generation))).one_or_none()


async def _get_newest_turn(connection: AsyncConnection, row: sa.Row[Any]) -> sa.Row[str, State] | None:
    query = sa.select(turns.c.id, turns.c.state).where(turns.c.session == row.session, turns.c.origin == row.turn)
    return (await connection.execute(query.order_by(turns.c.created_at.desc()).limit(1))).one_or_none()


async def _list_other_messages(connection: AsyncConnection, row: sa.Row[Any]) -> list[sa.Row[Any]]:
    rows = await get_inbox_rows(connection, row.turn) if row.turn is not None else ()
    return [other for other in rows if other.id != row.id and other.outcome is None]


async def _list_reruns(connection: AsyncConnection, row: sa.Row[Any]) -> Sequence[sa.Row[Any]]:
    """Return the requests for reruns of a message's turn: each has a copy of the text of a message."""
    reruns = sa.select(turns.c.id).where(turns.c.session == row.session, turns.c.origin == row.turn)
    query = sa.select(inbox).where(inbox.c.session == row.session, inbox.c.parent.in_(reruns))
    return (await connection.execute(query)).all()


def _without_text(row: sa.Row[Any]) -> dict[str, Any] | None:
    """Return the message of a row without text and files; the address stays, since the turn ends its reply there."""
    emptied = [replace(message, text="", attachments=()) for message in list_readable_messages([row.message])]
    return emptied[0].to_json() if emptied else None
