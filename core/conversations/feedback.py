"""Feedback: ratings of answers by users, `good` or `bad`."""

import time
from typing import Literal

import sqlalchemy as sa

from core.store.database import Database
from core.store.schema import feedback, sessions, turns
from core.store.upsert import insert_or_update

Rating = Literal["good", "bad"]


class FeedbackStore:
    """Store of ratings in the table `feedback`: each person's last rating of a turn."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def save_feedback(self, turn_id: str, author: str, rating: Rating) -> bool:
        """Store a person's rating; False if the turn is deleted or its session was reset."""
        locked = sa.select(turns.c.session, turns.c.generation).where(turns.c.id == turn_id).with_for_update(read=True)
        async with self._database.write() as connection:
            # a reset writes to the turns first: this lock makes it come before or after
            turn = (await connection.execute(locked)).one_or_none()
            if turn is None:
                return False
            in_generation = sessions.c.id == turn.session, sessions.c.generation == turn.generation
            if (await connection.execute(sa.select(sessions.c.id).where(*in_generation))).first() is None:
                return False
            given = {"turn": turn_id, "author": author, "rating": rating, "rated_at": time.time()}
            await insert_or_update(connection, feedback, given)
            return True
