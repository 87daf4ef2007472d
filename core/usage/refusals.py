"""Refusals: who was told that he is not answered, so that nobody is told it all the time."""

import time
from typing import Literal

import sqlalchemy as sa

from core.store.database import Database
from core.store.schema import refusals
from core.store.upsert import insert_of

#: Why somebody is not answered: he may not speak, or has spoken too often.
Kind = Literal["door", "rate"]

#: Seconds for which somebody is not told again that he may not speak.
HOUR = 3600.0


class Refusals:
    """The `refusals` table: until when each person is not told again, over all workers."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def is_to_be_told(self, person: str, kind: Kind, *, until: float | None = None) -> bool:
        """Whether somebody is to be told now; he counts as told then.

        Args:
            person: the platform's name and the person's id, with a colon in between.
            until: he is not told again before (seconds since the epoch); an hour from now if it is not given.

        Raises:
            StoreError: it is not known.
        """
        now = time.time()
        row = {"person": person, "kind": kind, "until": now + HOUR if until is None else until}
        async with self._database.write() as connection:
            insert = insert_of(connection.dialect.name, refusals).values(row)
            told = insert.on_conflict_do_update(
                index_elements=list(refusals.primary_key),
                set_={"until": insert.excluded.until},
                where=refusals.c.until <= now,
            )
            return (await connection.execute(told.returning(refusals.c.person))).first() is not None


def is_over() -> sa.ColumnElement[bool]:
    """Whether a row says nothing any more."""
    return refusals.c.until < time.time()
