"""Letting go of turns and workers that ended long ago, a few at a time, so that nobody waits for it."""

import asyncio
import logging

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from core.secrets import traced
from core.store.database import Database
from core.store.schema import inbox, tool_calls, turns, workers

log = logging.getLogger(__name__)

#: How many rows one transaction takes away at most, and the seconds between two of them.
STEP = 200
PAUSE = 0.5

#: Seconds after which it is tried again when it failed.
AGAIN = 60.0

HOUR, DAY = 3600.0, 86_400.0

#: Seconds between two times that it is looked for what is old.
EVERY = HOUR


class Pruning:
    """Takes away what is of no use any more.

    Of messages, their author's newest at a place stays: it tells where he speaks. What was said and answered is not
    lost with its turn: sessions keep that. A worker counts as gone for good an hour after its lease has ended.

    Args:
        days: how long a turn is kept after its end.
    """

    def __init__(self, database: Database, *, days: float) -> None:
        self._database = database
        self._days = days

    async def run(self) -> None:
        """Take away what is old, now and every hour. Until cancelled."""
        while True:
            pause = EVERY
            try:
                if await self.step():
                    pause = PAUSE
            except Exception as error:
                pause = AGAIN
                log.warning("old turns cannot be taken away: %s", traced(error))
            await asyncio.sleep(pause)

    async def step(self) -> int:
        """Take away some of what is old.

        Returns:
            How many rows.
        """
        async with self._database.write() as connection:
            before, an_hour_ago = self._database.now - self._days * DAY, self._database.now - HOUR
            return (
                await _delete(connection, turns, turns.c.finished_at < before)
                + await _delete(connection, inbox, _is_of_no_use(before))
                + await _delete(connection, tool_calls, tool_calls.c.begun_at < before)
                + await _delete(connection, workers, workers.c.lease < an_hour_ago)
            )


def _is_of_no_use(before: sa.ColumnElement[float]) -> sa.ColumnElement[bool]:
    """Whether a message of the inbox is old, has come to its end, and is not its author's newest at its place."""
    newer = inbox.alias("newer")
    is_followed = sa.exists().where(
        newer.c.place == inbox.c.place, newer.c.author == inbox.c.author, newer.c.sent_at > inbox.c.sent_at
    )
    has_turn = sa.exists().where(turns.c.id == inbox.c.turn)
    has_ended = inbox.c.outcome.is_not(None) | (inbox.c.turn.is_not(None) & ~has_turn)
    return (inbox.c.accepted_at < before) & has_ended & is_followed


async def _delete(connection: AsyncConnection, table: sa.Table, where: sa.ColumnElement[bool]) -> int:
    key = list(table.primary_key)
    old = sa.select(*key).where(where).order_by(*key).limit(STEP)
    return (await connection.execute(sa.delete(table).where(sa.tuple_(*key).in_(old)))).rowcount
