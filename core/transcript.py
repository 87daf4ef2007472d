"""A conversation as people read it."""

import time
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from core.sessions.reopening import correction_of
from core.store.schema import feedback, messages, sessions, turns


async def transcript(connection: AsyncConnection, session_id: str) -> str:
    """What was said in a conversation since it was last started over, as Markdown: when, by whom, the tools that were
    used by their names, and what readers thought of the answers. Where several people speak, each message begins with
    the speaker's name; where several of the bot's agents have answered, the one's that did stands there. Empty if
    nothing was said.
    """
    lives = sessions.c.id == messages.c.session, sessions.c.generation == messages.c.generation
    query = sa.select(messages).join(sessions, sa.and_(*lives)).where(messages.c.session == session_id)
    rows = (await connection.execute(query.order_by(messages.c.id))).all()
    if not rows:
        return ""
    thought = await _thought(connection, session_id)
    run = sa.func.coalesce(turns.c.run, turns.c.origin)
    answered = sa.select(run, turns.c.agent).where(turns.c.session == session_id).order_by(turns.c.created_at)
    agents = {row[0]: row[1] for row in await connection.execute(answered)}
    named = agents if len(set(agents.values())) > 1 else {}
    corrections = {correction_of(row.invocation_id): row.invocation_id for row in rows}
    pieces = [f"# Conversation `{session_id}`"]
    for id_, of_run in groupby(rows, key=lambda row: str(corrections.get(row.invocation_id, row.invocation_id))):
        pieces += _run(id_, list(of_run), named.get(id_, ""))
        if verdicts := thought.get(id_):
            counted = ", ".join(f"{number} {verdict}" for verdict, number in sorted(verdicts.items()))
            pieces.append(f"*Feedback: {counted}*")
    return "\n\n".join(pieces) + "\n"


async def _thought(connection: AsyncConnection, session_id: str) -> Mapping[str, Counter[str]]:
    """What readers think of each run: of the newest of its turns, for that one's answer is what stands."""
    query = (
        sa.select(turns.c.origin, turns.c.id, feedback.c.verdict)
        .join_from(turns, feedback, feedback.c.turn == turns.c.id, isouter=True)
        .where(turns.c.session == session_id)
        .order_by(turns.c.origin, turns.c.created_at, turns.c.id)
    )
    thought: dict[str, Counter[str]] = {}
    for (origin, _), of_turn in groupby(await connection.execute(query), key=lambda row: (row.origin, row.id)):
        thought[origin] = Counter(row.verdict for row in of_turn if row.verdict is not None)
    return thought


def _run(run: str, rows: Iterable[sa.Row[Any]], agent: str) -> Iterable[str]:
    for row in rows:
        if row.role == "user" and row.invocation_id != run:  # our own word to a model that named a wrong agent
            continue
        used = [f"`{call['name']}`" for call in row.tool_calls or () if "output" not in call]
        said = row.content.strip() if row.role in ("user", "assistant") else ""
        if said or used:
            at = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(row.created_at))
            author = f"{row.author} ({agent})" if agent not in ("", row.author) else row.author
            yield f"## {'Question' if row.role == 'user' else author}, {at}"
        if said:
            yield said
        if used:
            yield f"*Used {', '.join(used)}*"
