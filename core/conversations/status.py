"""How a conversation stands: what is in it, and what is being done."""

from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from core.store.schema import inbox, messages, turns
from core.turns.queries import is_active, is_waiting


@dataclass(frozen=True, slots=True)
class SessionStatus:
    """How a conversation stands.

    Attributes:
        model: the one that answers, by its full name.
        agent: the name of the one that answers.
        is_muted: whether it is answered only when it is called.
        since: when it was begun, or last started over and spoken in again (seconds since the epoch); None if nothing
            is stored of it.
        messages: how many messages people and agents have said.
        history_tokens: what all of it would cost to send; no more than `budget` is sent.
        used_tokens: what the models have read and written for it, as their providers count it.
        waiting: how many messages wait.
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
    """How the session of that row stands, which that agent answers with that model."""
    said = messages.c.role.in_(("user", "assistant")) & (messages.c.content != "")
    stored = sa.select(
        sa.func.min(messages.c.created_at).label("since"),
        sa.func.count(sa.case((said, 1))).label("messages"),
        sa.func.coalesce(sa.func.sum(messages.c.tokens), 0).label("tokens"),
    ).where(messages.c.session == row.id, messages.c.generation == row.generation)
    counts = (turns.c.usage[name].as_integer() for name in ("input", "output", "thinking"))
    used = sum((sa.func.coalesce(count, 0) for count in counts), start=sa.literal(0))
    ran = sa.select(
        sa.func.coalesce(sa.func.sum(used), 0).label("tokens"),
        sa.func.count(sa.case((is_active(turns), 1))).label("running"),
    ).where(turns.c.session == row.id, turns.c.generation == row.generation)
    waits = sa.select(sa.func.count()).where(inbox.c.session == row.id, is_waiting(inbox))
    history = (await connection.execute(stored)).one()
    run = (await connection.execute(ran)).one()
    return SessionStatus(
        model=model,
        agent=agent,
        is_muted=row.muted,
        since=history.since,
        messages=history.messages,
        history_tokens=history.tokens,
        budget=budget,
        used_tokens=run.tokens,
        is_running=bool(run.running),
        waiting=(await connection.execute(waits)).scalar_one(),
    )
