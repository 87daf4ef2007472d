"""What becomes of the conversations with an agent that is not here any more."""

import logging

import sqlalchemy as sa

from core.store.database import Database
from core.store.schema import sessions

log = logging.getLogger(__name__)


async def adopt(database: Database, *agents: str) -> None:
    """Have the first of `agents`, the apps that run now, go on with the conversations of those that do not.

    Nothing of a conversation is lost: what was said by the agent before is there, and ADK has the new one read it
    as another agent's words. What its tools kept for a place or for all (`user:` and `app:` in ADK's state) stays its
    own.
    """
    async with database.write() as connection:
        gone = (
            await connection.execute(sa.select(sessions.c.app).distinct().where(sessions.c.app.not_in(agents)))
        ).all()
        if gone:
            await connection.execute(sa.update(sessions).where(sessions.c.app.not_in(agents)).values(app=agents[0]))
    for (name,) in gone:
        log.warning("%s goes on with the conversations of %s, which does not run any more", agents[0], name)
