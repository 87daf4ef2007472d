import asyncio
import time

from core.store.database import Database
from core.usage.rate_limits import Refusals


async def test_of_all_workers_one_tells_a_person_and_none_before_the_time_is_over(database: Database) -> None:
    workers = [Refusals(database) for _ in range(3)]
    told = await asyncio.gather(*(worker.is_to_be_told("slack:U1", "door") for worker in workers for _ in range(3)))
    assert sorted(told) == [False] * 8 + [True]
    assert await workers[0].is_to_be_told("slack:U2", "door")
    assert await workers[0].is_to_be_told("slack:U1", "rate", until=time.time() - 1)
    assert await workers[1].is_to_be_told("slack:U1", "rate", until=time.time() + 60)
    assert not await workers[2].is_to_be_told("slack:U1", "rate")
