"""Overtaking: what was said before what is being answered, and came after it.

Two messages of a conversation that reach two processes may be kept the wrong way round, and one that nobody heard is
found while a later one is answered. Nothing waits for that: the turn begins anew, and answers all of it in its order.
One that has called a tool, or whose answer is kept, does not: what came too late is answered behind it. Whether it is
overtaken is seen once more by what keeps the answer: all that was kept by then comes first.
"""

from collections.abc import Collection

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from core.sessions.resume import correction_of, rewind
from core.store.fast_path import Statement
from core.store.schema import inbox, tool_calls, turns
from core.store.turn_states import before
from core.turns.queries import is_under_way, is_waiting
from core.workers.fencing import IS_OWN, writes_own

_CORRECTED = correction_of("")


def _may_join(
    table: sa.FromClause, session: str | sa.ColumnElement[str], generation: int | sa.ColumnElement[int]
) -> sa.ColumnElement[bool]:
    """Whether a message waits in that life of a session, and is not there to be answered once more."""
    here = (table.c.session == session) & (table.c.generation == generation)
    return here & is_waiting(table) & table.c.parent.is_(None)


def is_overtaken() -> sa.ColumnElement[bool]:
    """Whether a turn may begin anew, and an older message than one of its own waits."""
    older, newer = inbox.alias("older"), inbox.alias("newer")
    waits = sa.exists().where(
        _may_join(older, turns.c.session, turns.c.generation),
        newer.c.turn == turns.c.id,
        newer.c.sent_at > older.c.sent_at,
    )
    used = sa.exists().where(
        tool_calls.c.session == turns.c.session, tool_calls.c.run.in_((turns.c.id, turns.c.id.concat(_CORRECTED)))
    )
    begins = (
        ((turns.c.state == "queued") | (turns.c.state == "running"))
        & (turns.c.kind == "message")
        & turns.c.cancel.is_(None)
    )
    return begins & waits & ~used


#: The turns that a worker runs, whether they are overtaken, and why else they are to be ended.
RUNNING = Statement(
    lambda _dialect: sa.select(turns.c.id, is_overtaken(), turns.c.cancel).where(
        is_under_way(turns), turns.c.owner == sa.bindparam("the_worker", type_=sa.Text)
    )
)

#: The turn of a session that is overtaken, if one is.
OVERTAKEN = Statement(
    lambda _dialect: sa.select(turns.c.id).where(
        turns.c.session == sa.bindparam("the_session", type_=sa.Text), is_overtaken()
    )
)

#: Keeps the answer of a turn, unless it is overtaken; and finds it, if that is why not.
ANSWERED = writes_own(before("answered"), "text", "usage", "receipt", only=[sa.not_(is_overtaken())], state="answered")
OVERTAKEN_INSTEAD = Statement(lambda _dialect: sa.select(turns.c.id).where(IS_OWN, is_overtaken()))


async def take_in(connection: AsyncConnection, turn_ids: Collection[str]) -> None:
    """Have those of the turns that are overtaken answer what was said before their messages as well. What their runs
    have stored goes: they are to begin anew.
    """
    overtaken = sa.select(turns.c.id, turns.c.session, turns.c.generation)
    found = await connection.execute(overtaken.where(turns.c.id.in_(turn_ids), is_overtaken()))
    for id_, session, generation in found.all():
        await rewind(connection, session, id_, keeps_question=False)
        own = inbox.alias("own")
        newest = sa.select(sa.func.max(own.c.sent_at)).where(own.c.turn == id_).scalar_subquery()
        older = _may_join(inbox, session, generation) & (inbox.c.sent_at < newest)
        await connection.execute(sa.update(inbox).where(older).values(turn=id_))
