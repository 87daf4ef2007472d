"""What becomes of the conversations with an agent that is not here any more."""

import logging

import sqlalchemy as sa

from core.agents.routing import Agents
from core.store.database import Database
from core.store.schema import sessions

log = logging.getLogger(__name__)


async def home(database: Database) -> str | None:
    """The app that conversations are kept under; none if there is no conversation."""
    async with database.read() as connection:
        return await connection.scalar(sa.select(sessions.c.app).limit(1))


async def adopt(database: Database, agents: Agents) -> None:
    """Have the agents that run now go on with the conversations of those that do not.

    Nothing of a conversation is lost: what was said by the agent before is there, and ADK has the new one read it
    as another agent's words. What its tools kept for a place or for all (`user:` and `app:` in ADK's state) stays its
    own. A conversation for which one was chosen that is gone is answered by the one of its place; the choice stays, and
    holds again when that one is back.
    """
    c, home = sessions.c, agents.default
    async with database.write() as connection:
        gone = (await connection.execute(sa.select(c.app).distinct().where(c.app != home))).scalars().all()
        if gone:
            await connection.execute(sa.update(sessions).where(c.app != home).values(app=home))
        counted = sa.select(c.agent, sa.func.count()).where(c.agent.is_not(None)).group_by(c.agent)
        chosen = (await connection.execute(counted)).all()
    for name in gone:
        if name not in agents.known:
            log.warning("%s goes on with the conversations of %s, which does not run any more", home, name)
    for name, count in chosen:
        if name not in agents.known:
            log.warning("%s was chosen for %d conversations, and is gone: their places' agents answer", name, count)
