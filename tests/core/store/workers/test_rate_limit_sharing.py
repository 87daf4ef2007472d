import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from core.store.workers import rate_limit_sharing
from core.store.workers.lease import Lease
from core.store.workers.rate_limit_sharing import LimitUsage, LimitUsages, exchange_usage
from tests.channels.wiring import wait_until
from tests.core.conftest import FailingDatabase


@asynccontextmanager
async def share_usage(database: FailingDatabase, uses: LimitUsages) -> AsyncIterator[list[Sequence[LimitUsages]]]:
    """Run a worker that reports its used calls and receives those of others.

    Yields the list to which the others' reports are appended.

    Args:
        uses: the used calls to report.
    """
    lease, reports = Lease(database, seconds=30), list[Sequence[LimitUsages]]()
    await lease.acquire()
    keeping = asyncio.create_task(exchange_usage(database, lease, lambda: uses, reports.append))
    try:
        yield reports
    finally:
        keeping.cancel()
        await asyncio.wait([keeping])
        await lease.release()


async def test_workers_get_the_usage_of_other_live_workers(postgres: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rate_limit_sharing, "EXCHANGE_SECONDS", 0.02)
    database = FailingDatabase(postgres)
    async with share_usage(database, {"edit": LimitUsage(2, 20)}) as reports:
        await wait_until(lambda: reports[-1:] == [[]])
        async with share_usage(database, {"edit": LimitUsage(1, 5), "post": LimitUsage(0, 1)}) as other:
            await wait_until(lambda: reports[-1] == [{"edit": LimitUsage(1, 5), "post": LimitUsage(0, 1)}])
            await wait_until(lambda: other[-1:] == [[{"edit": LimitUsage(2, 20)}]])
        await wait_until(lambda: reports[-1] == [])
    await database.aclose()
