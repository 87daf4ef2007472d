"""Stop requests: cancel a running turn, and drop the messages that wait."""

from dataclasses import dataclass
from enum import Enum, auto
from math import inf
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from core.messages.inbox_message import InboxMessage, InboxOutcome
from core.sessions.lifecycle import lock_session_row
from core.sessions.resume import close_questions
from core.store.schema import human_requests, inbox, turns
from core.turns.queries import get_inbox_rows, is_active, is_message, is_waiting, list_readable_messages
from core.turns.store import TurnStore
from core.turns.turn import CancelReason

#: Values for columns of `human_requests` that make a decided request open again.
REOPENED: dict[str, Any] = {
    "decision": None,
    "decided_by": None,
    "decided_by_name": None,
    "decided_at": None,
    "answer": None,
    "answer_authors": [],
}


class StopTurnResult(Enum):
    """Result of a request to stop one turn.

    Attributes:
        STOPPED: the turn is marked as cancelled; the worker that runs the turn ends it.
        NOT_OWNER: the person wrote none of the messages that the turn answers.
        NOT_RUNNING: the turn does not exist, has ended, has a stored final text, or was cancelled before for a reason
            other than `STOP`.
    """

    STOPPED = auto()
    NOT_OWNER = auto()
    NOT_RUNNING = auto()


@dataclass(frozen=True, slots=True)
class StopResult:
    """Changes by a request to stop a session; false if there were none.

    Attributes:
        turn_id: the running turn that is cancelled; None if there was none, or the person may not stop it.
        dropped_messages: the messages that waited for a turn, also those of deleted decisions and requests for reruns;
            no turn answers them now.
        undecided_turn_ids: the turns whose requests were decided, but whose run had not continued yet:
            these decisions are deleted, and people may decide again.
        has_cancelled_questions: whether open questions of the agent to people were deleted.
    """

    turn_id: str | None = None
    dropped_messages: tuple[InboxMessage, ...] = ()
    undecided_turn_ids: tuple[str, ...] = ()
    has_cancelled_questions: bool = False

    def __bool__(self) -> bool:
        return self.turn_id is not None or bool(self.dropped_messages) or self.has_cancelled_questions


async def stop_session(
    connection: AsyncConnection, turn_store: TurnStore, session_id: str, *, author: str | None, until: float = inf
) -> StopResult:
    """Cancel a session's running turn, and drop the messages that wait for a turn, in the caller's transaction.

    A turn with a stored final text is not cancelled. Dropped messages get the outcome `stopped`. Waiting requests for
    reruns are deleted, and so are decisions of people that no turn has continued yet. Open questions to people are
    deleted only if the session has neither a queued or running turn, nor messages to drop, nor messages after `until`.

    Args:
        author: the platform's id of the person whose turn, messages and open questions are stopped; None for those of
            all people.
        until: messages that were sent later stay, and so does a turn that answers one of them. Requests for reruns and
            decisions are deleted whatever their time.
    """
    await lock_session_row(connection, session_id)
    in_session = inbox.c.session == session_id
    if until != inf:
        in_session &= (inbox.c.sent_at <= until) | inbox.c.parent.is_not(None)  # a press has another clock
    if author is not None:
        in_session &= inbox.c.author == author
    # lock the turn before the messages, as a claim does: the same order everywhere prevents deadlocks
    turn = await _get_running_turn(connection, session_id)
    is_theirs = turn is not None and await _may_stop(connection, turn, author, until)
    cancelled = await turn_store.request_cancel(connection, session_id, CancelReason.STOP) if is_theirs else None
    # read after the lock: the turn may have claimed messages meanwhile
    waits = sa.select(inbox).where(in_session, is_waiting(inbox)).with_for_update()
    waiting = (await connection.execute(waits)).all()
    is_waiting_row = inbox.c.id.in_([row.id for row in waiting])
    # requests for reruns are deleted, so that they can be made again; decisions are reopened
    asking_ids = tuple(row.parent for row in waiting if row.kind == "decision")
    decided = sa.update(human_requests).where(human_requests.c.turn.in_(asking_ids))
    await connection.execute(decided.values(**REOPENED))
    await connection.execute(sa.delete(inbox).where(is_waiting_row, inbox.c.parent.is_not(None)))
    await connection.execute(sa.update(inbox).where(is_waiting_row).values(outcome=InboxOutcome.STOPPED))
    dropped = tuple(list_readable_messages(row.message for row in waiting))
    since = (inbox.c.session == session_id) & (inbox.c.sent_at > until) & inbox.c.parent.is_(None) & is_message(inbox)
    later_message = (await connection.execute(sa.select(inbox.c.id).where(since).limit(1))).first()
    is_idle = turn is None and not waiting and later_message is None
    has_cancelled_questions = is_idle and await close_questions(connection, session_id, author)
    return StopResult(cancelled, dropped, asking_ids, has_cancelled_questions)


async def stop_turn(
    connection: AsyncConnection, turn_store: TurnStore, turn_id: str, *, author: str | None
) -> StopTurnResult:
    """Mark a turn without a final text as cancelled, and notify the workers, in the caller's transaction.

    The worker that runs the turn ends it. Its `author` must have written a message that the turn answers; None is an
    operator, who may stop any turn.
    """
    session = sa.select(turns.c.session).where(turns.c.id == turn_id)
    session_id = (await connection.execute(session)).scalar_one_or_none()
    await lock_session_row(connection, session_id)
    turn = await _get_running_turn(connection, session_id)
    if turn is None or turn.id != turn_id:
        return StopTurnResult.NOT_RUNNING
    if not await _may_stop(connection, turn, author):
        return StopTurnResult.NOT_OWNER
    cancelled = await turn_store.request_cancel(connection, turn.session, CancelReason.STOP)
    return StopTurnResult.STOPPED if cancelled is not None else StopTurnResult.NOT_RUNNING


async def _get_running_turn(connection: AsyncConnection, session_id: str | None) -> sa.Row[Any] | None:
    is_running = is_active(turns) & (turns.c.state != "answered")
    query = sa.select(turns).where(turns.c.session == session_id, is_running)
    return (await connection.execute(query)).one_or_none()


async def _may_stop(connection: AsyncConnection, turn: sa.Row[Any], author: str | None, until: float = inf) -> bool:
    """Return whether a request to stop may cancel a turn, by its author (None: anybody) and time."""
    rows = await get_inbox_rows(connection, turn.origin)
    return all(row.sent_at <= until for row in rows) and (author is None or author in {row.author for row in rows})
