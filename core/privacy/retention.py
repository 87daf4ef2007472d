"""Cleanup jobs: conversations past their retention, and old turns and workers, a few at a time."""

import asyncio
import logging

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from core.concurrency.tasks import run_every
from core.privacy.deletion import Forgetting, Wish
from core.store.database import Database
from core.store.schema import inbox, refusals, tool_calls, turns, workers
from core.turns.queries import is_waiting
from core.usage.prices import Prices
from core.usage.user_rate_limits import is_over

log = logging.getLogger(__name__)

#: How many rows one transaction takes away at most, and the seconds between two of them.
STEP = 200

PAUSE = 0.5

#: Seconds after which it is tried again when it failed.
AGAIN = 60.0

HOUR, DAY = 3600.0, 86_400.0

#: Seconds between two times that it is looked for what is old.
EVERY = HOUR


class Retention:
    """Deletes what was said longer ago than some days, as `Forgetting` does. Every process looks for it; where an
    answer is on its way, it is left for the next time.

    Args:
        days: how long it is kept; 0 for ever. It goes by whole days (UTC): what a summary tells of goes once a day at
            most, and the summary with it.
    """

    def __init__(self, database: Database, prices: Prices, *, days: float) -> None:
        self._database = database
        self._forgetting = Forgetting(database, prices)
        self._days = days

    async def run(self) -> None:
        """Delete what is old, now and every hour. Until cancelled."""
        if self._days:
            what = "messages older than RETENTION_DAYS cannot be deleted"
            await run_every(EVERY, self.sweep, what=what, retry_seconds=AGAIN)

    async def sweep(self) -> None:
        """Delete what is old now."""
        async with self._database.read() as connection:
            now = await connection.scalar(sa.select(self._database.now)) or 0.0
        before = now // DAY * DAY - self._days * DAY
        old, mixed = await self._forgetting.meant(Wish(before=before))
        whole = parts = 0
        for session in old:
            whole += await self._forgetting.old(session, before)
            await asyncio.sleep(PAUSE)
        for session in mixed:
            parts += await self._forgetting.trim(session, before, waits=False)
            await asyncio.sleep(PAUSE)
        await self._forgetting.spent(before)
        if whole or parts:
            log.info("%d conversations and parts of %d are older than they may be: deleted", whole, parts)


class Pruning:
    """Takes away what is of no use any more.

    Of messages, their author's newest at a place stays: it tells where he speaks. What was said and answered is not
    lost with its turn: sessions keep that. A turn stays for as long as one that answers its messages once more. A
    worker counts as gone for good an hour after its lease has ended.

    Args:
        days: how long a turn is kept after its end.
    """

    def __init__(self, database: Database, *, days: float) -> None:
        self._database = database
        self._days = days

    async def run(self) -> None:
        """Delete old rows, now and every hour, until cancelled."""

        async def prune() -> None:
            while await self.step():  # noqa: ASYNC110 - a pause between transactions
                await asyncio.sleep(PAUSE)

        await run_every(EVERY, prune, what="old turns cannot be deleted", retry_seconds=AGAIN)

    async def step(self) -> int:
        """Take away some of what is old.

        Returns:
            How many rows.
        """
        async with self._database.write() as connection:
            before, an_hour_ago = self._database.now - self._days * DAY, self._database.now - HOUR
            return (
                await _delete(connection, turns, _is_forgotten(before))
                + await _delete(connection, inbox, _is_of_no_use(before))
                + await _delete(connection, tool_calls, tool_calls.c.begun_at < before)
                + await _delete(connection, workers, workers.c.lease < an_hour_ago)
                + await _delete(connection, refusals, is_over())
            )


def _is_forgotten(before: sa.ColumnElement[float]) -> sa.ColumnElement[bool]:
    """Whether a turn has ended long ago, as have all others that answer its messages, and none is asked for."""
    other = turns.alias("other")
    is_young = other.c.finished_at.is_(None) | (other.c.finished_at >= before)
    is_needed = sa.exists().where(other.c.session == turns.c.session, other.c.origin == turns.c.origin, is_young)
    is_wanted = sa.exists().where(inbox.c.session == turns.c.session, is_waiting(inbox), inbox.c.parent == turns.c.id)
    is_counted = turns.c.cost.is_not(None)  # what it cost is kept elsewhere
    return (turns.c.finished_at < before) & is_counted & ~is_needed & ~is_wanted


def _is_of_no_use(before: sa.ColumnElement[float]) -> sa.ColumnElement[bool]:
    """Whether a message of the inbox is old, has come to its end, and is not its author's newest at its place: the
    newest that was for the bot, or the newest of all.
    """
    newer = inbox.alias("newer")
    same_kind = newer.c.outcome.is_distinct_from("overheard") | (inbox.c.outcome == "overheard")
    is_followed = sa.exists().where(
        newer.c.place == inbox.c.place, newer.c.author == inbox.c.author, newer.c.sent_at > inbox.c.sent_at, same_kind
    )
    has_turn = sa.exists().where(turns.c.id == inbox.c.turn)
    has_ended = inbox.c.outcome.is_not(None) | (inbox.c.turn.is_not(None) & ~has_turn)
    return (inbox.c.accepted_at < before) & has_ended & is_followed


async def _delete(connection: AsyncConnection, table: sa.Table, where: sa.ColumnElement[bool]) -> int:
    key = list(table.primary_key)
    old = sa.select(*key).where(where).order_by(*key).limit(STEP)
    return (await connection.execute(sa.delete(table).where(sa.tuple_(*key).in_(old)))).rowcount
