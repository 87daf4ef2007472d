"""Exchange of rate limit usage among workers, which divide the platforms' limits by it."""

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

#: Seconds between two exchanges.
EXCHANGE_SECONDS = 1.0


class Use(NamedTuple):
    """Use of a rate limit by one worker.

    Attributes:
        live: how many replies share the limit.
        used: how many of the calls that it has made still count.
    """

    live: int = 0
    used: int = 0


#: What one worker uses, by the name of the rate limit.
Uses = Mapping[str, Use]


async def exchange_usage(
    database: Database, lease: Lease, announce: Callable[[], Uses], share: Callable[[Sequence[Uses]], None]
) -> None:
    """Tell the other workers what this one uses, and this one what they do, every second until cancelled.

    On SQLite there are no other workers.

    Args:
        announce: returns what this worker uses.
        share: called with what each of the others uses.
    """
    announced: Uses = {}
    own = workers.c.id == lease.worker
    while not database.is_sqlite:
        try:
            others = sa.select(workers.c.live).where(~own, workers.c.lease > database.now)
            async with database.read() as connection:
                rows = (await connection.execute(others)).scalars().all()
            share([{name: Use(*use) for name, use in uses.items()} for uses in rows])
            if (uses := dict(announce())) != announced:
                async with database.write() as connection:
                    await connection.execute(sa.update(workers).where(own).values(live=uses))
                announced = uses
        except Exception as error:
            log.warning("the workers cannot exchange their rate limit usage: %s", traced(error))
        await asyncio.sleep(EXCHANGE_SECONDS)
