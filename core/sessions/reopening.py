"""Going on with a run that failed: what it has stored becomes the newest of its session."""

from typing import Any

import sqlalchemy as sa
from google.adk.events.event import Event
from sqlalchemy.ext.asyncio import AsyncConnection

from core.sessions.history import interrupted
from core.sessions.record import columns, measured, to_row
from core.store.schema import messages
from core.tokens import estimate


async def reopen(connection: AsyncConnection, session_id: str, invocation_id: str) -> None:
    """Bring to the end of a session's history what a run has stored: the user's message, the calls of tools and
    their answers. What it said besides goes, for it is said anew. A call that had begun and not ended is answered:
    whether it took effect is not known, and it is not made again.

    Of a run that has stored nothing, there is nothing to be done.
    """
    query = sa.select(messages).where(messages.c.session == session_id, messages.c.invocation_id == invocation_id)
    rows = [dict(row._mapping) for row in await connection.execute(query.order_by(messages.c.id))]
    kept = [row for row in rows if row["role"] in ("user", "tool") or row["tool_calls"] or row["held"] is not None]
    if not any(row["role"] == "user" for row in kept):
        return
    await connection.execute(sa.delete(messages).where(messages.c.id.in_([row["id"] for row in rows])))
    for row in kept:
        del row["id"]
    await connection.execute(sa.insert(messages), [*kept, *_answers(kept)])


def _answers(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """For each row with calls that nothing answers, one that does."""
    events = [(row, Event.model_validate_json(row["event"])) for row in rows if row["event"]]
    answered = {answer.id for _, event in events for answer in event.get_function_responses()}
    made = []
    for row, event in events:
        calls = {call.id for call in event.get_function_calls() if call.id}
        if due := calls - answered - (event.long_running_tool_ids or set()):
            answer = interrupted(event, due)
            words, tokens = measured(answer)
            made.append({**row, **columns(to_row(answer), tokens + estimate(words))})
    return made
