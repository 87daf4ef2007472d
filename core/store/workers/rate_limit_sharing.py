"""Exchange of rate limit usage among workers, which share the platforms' limits."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import sqlalchemy as sa

from core.concurrency.tasks import run_every
from core.store.database import Database
from core.store.schema import workers
from core.store.workers.lease import Lease

#: Seconds between two exchanges.
EXCHANGE_SECONDS = 1.0


class LimitUsage(NamedTuple):
    """One worker's usage of a platform's rate limit.

    Attributes:
        live: number of the worker's replies in progress that use the limit, or of its reserved slots if it is greater.
        used: number of the worker's API calls that still count against the limit.
    """

    live: int = 0
    used: int = 0


#: One worker's usage of all rate limits, by the name of the limit.
LimitUsages = Mapping[str, LimitUsage]


async def exchange_usage(
    database: Database,
    lease: Lease,
    announce: Callable[[], LimitUsages],
    share: Callable[[Sequence[LimitUsages]], None],
) -> None:
    """Write this worker's rate limit usage, and read the other workers', every second.

    It runs until it is cancelled. A failure is logged. On SQLite there are no other workers, and it returns at once.

    Args:
        announce: returns this worker's usage.
        share: called every second with the usages of the other live workers, one mapping per worker.
    """
    announced: LimitUsages = {}
    is_own = workers.c.id == lease.worker_id

    async def exchange() -> None:
        nonlocal announced
        others = sa.select(workers.c.rate_limit_usage).where(~is_own, workers.c.lease_expires_at > database.now)
        async with database.read() as connection:
            rows = (await connection.execute(others)).scalars().all()
        share([{name: LimitUsage(*use) for name, use in uses.items()} for uses in rows])
        if (uses := dict(announce())) != announced:
            async with database.write() as connection:
                await connection.execute(sa.update(workers).where(is_own).values(rate_limit_usage=uses))
            announced = uses

    if not database.is_sqlite:
        await run_every(EXCHANGE_SECONDS, exchange, failure="the workers cannot exchange their rate limit usage")
