"""What is limited for all workers together is shared out among them."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import sqlalchemy as sa

from core.secret_redaction import traced
from core.store.database import Database
from core.store.schema import workers
from core.workers.lease import Lease

log = logging.getLogger(__name__)

#: Seconds between two times that workers tell each other what they use.
EVERY = 1.0


class Use(NamedTuple):
    """What one worker uses of what is limited.

    Attributes:
        live: how many replies live on it.
        used: how many calls it has made that still count.
    """

    live: int = 0
    used: int = 0


#: What one worker uses, by the name of what is limited.
Uses = Mapping[str, Use]


class Shares:
    """Tells the other workers what this one uses, and this one what they do. On SQLite there are no others."""

    def __init__(self, database: Database, lease: Lease) -> None:
        self._database = database
        self._lease = lease

    async def keep(self, mine: Callable[[], Uses], told: Callable[[Sequence[Uses]], None]) -> None:
        """Until cancelled, every second.

        Args:
            mine: what this worker uses.
            told: called with what each of the others does.
        """
        known: Uses = {}
        while not self._database.is_sqlite:
            try:
                others = await self._others()
                told(others)
                uses = dict(mine()) if others else {}
                if uses != known:
                    await self._tell(uses)
                    known = uses
            except Exception as error:
                log.warning("the workers cannot tell each other what they use: %s", traced(error))
            await asyncio.sleep(EVERY)

    async def _others(self) -> list[Uses]:
        at_work = (workers.c.id != self._lease.worker) & (workers.c.lease > self._database.now)
        async with self._database.read() as connection:
            rows = await connection.execute(sa.select(workers.c.live).where(at_work))
            return [{key: Use(*use) for key, use in uses.items()} for uses in rows.scalars()]

    async def _tell(self, uses: Uses) -> None:
        mine = sa.update(workers).where(workers.c.id == self._lease.worker)
        async with self._database.write() as connection:
            await connection.execute(mine.values(live={key: list(use) for key, use in uses.items()}))
