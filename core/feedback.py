"""What readers think of answers."""

import time
from typing import Literal

import sqlalchemy as sa

from core.store.database import Database
from core.store.schema import feedback, sessions, turns
from core.store.upsert import insert_or_update

Verdict = Literal["good", "bad"]


class Feedback:
    """The `feedback` table."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def give(self, turn_id: str, author: str, verdict: Verdict) -> bool:
        """Keep what a reader thinks of a turn's answer; his newest word counts.

        Returns:
            Whether it is kept: not of a turn that is forgotten.

        Raises:
            StoreError: it could not be kept.
        """
        lives = sessions.c.id == turns.c.session, sessions.c.generation == turns.c.generation
        query = sa.select(turns.c.id).join(sessions, sa.and_(*lives)).where(turns.c.id == turn_id)
        async with self._database.write() as connection:
            # a reset comes before, or takes this away as well; and so does what takes old turns away
            held = query.with_for_update(read=True, of=[sessions, turns])
            if (await connection.execute(held)).first() is None:
                return False
            given = {"turn": turn_id, "author": author, "verdict": verdict, "given_at": time.time()}
            await insert_or_update(connection, feedback, given)
            return True
