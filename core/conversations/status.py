"""Status of a session: its history, its tokens, and its waiting messages."""

from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from core.sessions.codec import SEARCHABLE_ROLES
from core.store.schema import inbox, messages, turns
from core.turns.queries import is_active, is_waiting


@dataclass(frozen=True, slots=True)
class SessionStatus:
    """State of a session, as shown to its users.

    Attributes:
        is_muted: whether only messages that mention the bot are answered.
        since: the time of the oldest stored message since the last reset.
        messages: the number of messages of people and agents since the last reset.
        history_tokens: the estimated tokens of all messages since the last reset.
        budget: the most tokens of the history that are sent to the model.
        used_tokens: the tokens that models have read and written since the last reset, as the providers count them.
        waiting: the number of messages that wait for a turn.
    """

    model: str
    agent: str
    is_muted: bool = False
    since: float | None = None
    messages: int = 0
    history_tokens: int = 0
    budget: int = 0
    used_tokens: int = 0
    is_running: bool = False
    waiting: int = 0


async def get_status(
    connection: AsyncConnection, row: sa.Row[Any], model: str, agent: str, *, budget: int
) -> SessionStatus:
    has_text = messages.c.role.in_(SEARCHABLE_ROLES) & (messages.c.content != "")
    stored = sa.select(
        sa.func.min(messages.c.created_at).label("since"),
        sa.func.count(sa.case((has_text, 1))).label("messages"),
        sa.func.coalesce(sa.func.sum(messages.c.tokens), 0).label("tokens"),
    ).where(messages.c.session == row.id, messages.c.generation == row.generation)
    counts = (turns.c.usage[name].as_integer() for name in ("input", "output", "thinking"))
    used = sum((sa.func.coalesce(count, 0) for count in counts), start=sa.literal(0))
    turns_query = sa.select(
        sa.func.coalesce(sa.func.sum(used), 0).label("tokens"),
        sa.func.count(sa.case((is_active(turns), 1))).label("running"),
    ).where(turns.c.session == row.id, turns.c.generation == row.generation)
    waits = sa.select(sa.func.count()).where(inbox.c.session == row.id, is_waiting(inbox))
    history = (await connection.execute(stored)).one()
    run = (await connection.execute(turns_query)).one()
    return SessionStatus(
        model=model,
        agent=agent,
        is_muted=row.is_muted,
        since=history.since,
        messages=history.messages,
        history_tokens=history.tokens,
        budget=budget,
        used_tokens=run.tokens,
        is_running=bool(run.running),
        waiting=(await connection.execute(waits)).scalar_one(),
    )
