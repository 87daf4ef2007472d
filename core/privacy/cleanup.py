"""What is older than it may be goes, a conversation at a time, so that nobody waits for it."""

import asyncio
import logging

import sqlalchemy as sa

from core.privacy.deletion import Forgetting, Wish
from core.privacy.pruning import AGAIN, DAY, EVERY, PAUSE
from core.secrets import traced
from core.store.database import Database
from core.usage.prices import Prices

log = logging.getLogger(__name__)


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
        while self._days:
            pause = EVERY
            try:
                await self.sweep()
            except Exception as error:
                pause = AGAIN
                log.warning("what is older than RETENTION_DAYS cannot be deleted: %s", traced(error))
            await asyncio.sleep(pause)

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
