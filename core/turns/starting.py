"""Beginning a turn, where there is more to it than plain messages: something is to be answered once more, goes on when
it was decided, or cannot be read.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from core.agents.routing import Agents
from core.store.schema import inbox
from core.turns.claims import Taken, new_id, plain
from core.turns.corrupt_rows import Locate, see_sound, spared, stand_in_for
from core.turns.queries import begin_again, parent_of, readable, said_to, waiting_run
from core.turns.turn import Turn


async def next_turn(
    connection: AsyncConnection, batch: Sequence[sa.Row[Any]], agents: Agents, locate: Locate
) -> Turn | None:
    """The turn that answers what waits, or says that it cannot be read, if it is known where to say that. What an
    agent has begun or asked for, that one goes on with.
    """
    first, said = batch[0], tuple(message for row in batch if (message := readable(row.inbound)))
    if is_damaged := not said:
        if (message := await stand_in_for(connection, first, locate)) is None:
            return None
        said = (message,)
    its = (first.session, first.generation, first.model, agents.answering(first.agent, said[-1].spots))
    turn = replace(plain(Taken(new_id(), *its, said, first.accepted_at)), is_damaged=is_damaged)
    if is_damaged or first.parent is None:
        return turn
    damaged = set[str]()
    async with spared(connection, turn.id, damaged):
        if (parent := await parent_of(connection, first)) is not None:
            see_sound([parent])
    if damaged or parent is None:
        return replace(turn, is_damaged=bool(damaged))
    if first.kind == "retry" and parent.state == "done":  # it has come to its answer after all
        await connection.execute(sa.update(inbox).where(inbox.c.id == first.id).values(outcome="overtaken"))
        return None
    if first.kind == "approval":
        return replace(turn, kind="approval", run=await waiting_run(connection, parent), agent=parent.agent)
    kind = first.kind
    async with spared(connection, turn.id, damaged):
        kind = await begin_again(connection, parent, first.kind)
    said = (await said_to(connection, {parent.origin})).get(parent.origin, turn.messages)
    chunks, agent = tuple(parent.chunks or ()), parent.agent if kind == "retry" else turn.agent
    of_parent = {"origin": parent.origin, "run": parent.run, "messages": said, "chunks": chunks, "agent": agent}
    return replace(turn, kind=kind, is_damaged=bool(damaged), **of_parent)
