"""End of a session's history: the last answered message, and the other authors."""

from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from core.messages.inbox_message import InboxMessage, InboxOutcome
from core.sessions.codec import NEWEST_FIRST, is_in_session
from core.sessions.resume import is_prompt_stored
from core.store.database import Database
from core.store.schema import inbox, messages, sessions, turns
from core.turns.queries import parse_inbox_message
from core.turns.turn import Turn

#: The most other authors whose newest message is returned.
MAX_OTHERS = 50


@dataclass(frozen=True, slots=True)
class HistoryState:
    """End of a session's history before a turn runs, for the prompt of the turn.

    Attributes:
        since: the time at which the newest message of the history, or the last reset, was sent; 0 without any. The
            agent has not seen messages of other people after that time.
        others: the newest message of each author who wrote none of the turn's messages, oldest first; of more than
            `MAX_OTHERS`, those of the authors who wrote last.
        is_quiet: whether the inbox has no message to other people that was sent after `since`. False if `since` is 0,
            and for a muted session, whose messages to other people are not stored.
    """

    since: float = 0.0
    others: tuple[InboxMessage, ...] = ()
    is_quiet: bool = False


async def get_history_state(database: Database, turn: Turn) -> HistoryState | None:
    """Return the end of the history before a turn runs; None once its run has stored its prompt."""
    async with database.read() as connection:
        since, last_unaddressed_at, is_muted, has_prompt = (await connection.execute(_select_history_end(turn))).one()
        if has_prompt:
            return None
        others = (await connection.execute(_select_other_authors(turn))).all()
    is_quiet = (
        since > 0 and last_unaddressed_at <= since and not is_muted
    )  # a muted session does not record such messages
    return HistoryState(
        since, tuple(message for row in others if (message := parse_inbox_message(row.message, row.id))), is_quiet
    )


def _select_history_end(turn: Turn) -> sa.Select[Any]:
    """Return the query of four values: the end of the history and three more.

    The end is the time of the newest answered message or reset. If retention has deleted the inbox messages, it is the
    time of the newest user message in `messages`. The other values are the time of the last message to other people,
    whether the session is muted, and whether the run of the turn has stored its prompt. Times are in seconds since the
    epoch, 0 for none.
    """
    in_session = inbox.c.session == turn.session_id

    def newest(outcome: str) -> sa.ColumnElement[float]:
        at = sa.select(sa.func.max(inbox.c.sent_at)).where(in_session, inbox.c.outcome == outcome)
        return sa.func.coalesce(at.scalar_subquery(), 0.0)

    answered = (
        sa.select(inbox.c.sent_at)
        .join(turns, turns.c.id == inbox.c.turn)
        .where(in_session, inbox.c.generation == turn.generation, inbox.c.kind.in_(("message", "steering")))
        .where(turns.c.id != turn.origin)
        .where((turns.c.state == "done") | is_prompt_stored(turn.session_id, turn.generation, turns.c.id))
        .order_by(inbox.c.sent_at.desc())
        .limit(1)
    )
    stored = (
        sa.select(messages.c.created_at)
        .where(is_in_session(turn.session_id), messages.c.generation == turn.generation)
        .where(messages.c.role == "user")
        .order_by(*NEWEST_FIRST)
        .limit(1)
    )
    newest_at = sa.func.coalesce(answered.scalar_subquery(), stored.scalar_subquery(), 0.0)
    reset_at = newest(InboxOutcome.RESET)
    is_muted = sa.exists().where(sessions.c.id == turn.session_id, sessions.c.is_muted)
    return sa.select(
        sa.case((newest_at > reset_at, newest_at), else_=reset_at),
        newest(InboxOutcome.UNADDRESSED),
        is_muted,
        is_prompt_stored(turn.session_id, turn.generation, turn.origin),
    )


def _select_other_authors(turn: Turn) -> sa.Select[tuple[int, object]]:
    """Return the query of the newest inbox message of each other author in a session."""
    authors = {message.author for message in turn.messages}
    newest = (
        sa.select(sa.func.max(inbox.c.id).label("id"))
        .where(inbox.c.session == turn.session_id, inbox.c.generation == turn.generation)
        .where(inbox.c.message.is_not(None), inbox.c.author.not_in(authors))
        .group_by(inbox.c.author)
        .order_by(sa.func.max(inbox.c.id).desc())
        .limit(MAX_OTHERS)
        .subquery()
    )
    return sa.select(inbox.c.id, inbox.c.message).join(newest, newest.c.id == inbox.c.id).order_by(inbox.c.id)
