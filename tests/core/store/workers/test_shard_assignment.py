import asyncio
from collections.abc import AsyncGenerator, Callable, Collection
from contextlib import aclosing
from itertools import count
from typing import Any

import pytest
import sqlalchemy as sa

from core.errors import StoreError
from core.store.schema import workers as workers_table
from core.store.workers import shard_assignment
from core.store.workers.lease import Lease
from core.store.workers.shard_assignment import ShardAssignment
from tests.core.conftest import AgeLeases, FailingDatabase


@pytest.fixture(autouse=True)
def _short_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shard_assignment, "LOOK_SECONDS", 0.02)
    monkeypatch.setattr(shard_assignment, "SLOT_SECONDS", 0.02)


_ids = count()


async def create_candidate(database: FailingDatabase, *, seconds: float = 30) -> tuple[Lease, ShardAssignment]:
    """Return the lease and the shard assignment of a new worker.

    Workers with equally many shards are sorted by their ids, here the order of their creation.
    """
    lease = Lease(database, seconds=seconds)
    lease.worker_id = f"{next(_ids):012}"
    await lease.acquire()
    return lease, ShardAssignment(database, lease, "discord")


Parts = AsyncGenerator[frozenset[int], None]


async def get_next_shards(changes: Parts) -> frozenset[int]:
    return await asyncio.wait_for(anext(changes), 30)


class ShardFollower:
    """Worker that applies changes of its assigned shards after a delay of 50 ms.

    Attributes:
        shards: the current shards.
        all_shards: the shards after each change.
    """

    def __init__(self, assignment: ShardAssignment, shards: int) -> None:
        self.shards = frozenset[int]()
        self.all_shards = list[frozenset[int]]()
        self._changes = assignment.watch(shards)
        self.task = asyncio.create_task(self._follow())

    async def _follow(self) -> None:
        async with aclosing(self._changes) as changes:
            async for led in changes:
                self.shards &= led
                await asyncio.sleep(0.05)
                self.shards = led
                self.all_shards.append(led)


async def cancel_tasks(*tasks: asyncio.Task[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


async def wait_until(predicate: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not predicate():  # noqa: ASYNC110 (the database reports no changes)
            await asyncio.sleep(0.01)


async def test_the_only_worker_leads_at_once(database: FailingDatabase) -> None:
    _, only = await create_candidate(database)
    async with aclosing(only.watch()) as changes:
        assert await get_next_shards(changes)


async def test_one_leads_until_it_gives_up_and_another_one_follows(postgres: str) -> None:
    database = FailingDatabase(postgres)
    (lease, first), (_, second) = await create_candidate(database), await create_candidate(database)
    async with aclosing(first.watch()) as one, aclosing(second.watch()) as other:
        assert await get_next_shards(one) == {0}
        assert not await get_next_shards(other)
        await first.release()
        await lease.release()
        assert await get_next_shards(other)
        await first.release()  # a lease that the worker does not have any more
        assert not await get_next_shards(one)
    await database.aclose()


async def test_a_leader_whose_lease_has_ended_is_followed(postgres: str, age_leases: AgeLeases) -> None:
    database = FailingDatabase(postgres)
    (_, first), (_, second) = await create_candidate(database), await create_candidate(database, seconds=300)
    async with aclosing(first.watch()) as one, aclosing(second.watch()) as other:
        assert await get_next_shards(one)
        assert not await get_next_shards(other)
        await age_leases(database, 30)
        assert await get_next_shards(other)
    await database.aclose()


async def test_a_leader_without_the_database_stays_the_leader(postgres: str, monkeypatch: pytest.MonkeyPatch) -> None:
    database = FailingDatabase(postgres)
    _, only = await create_candidate(database)
    async with aclosing(only.watch()) as changes:
        assert await get_next_shards(changes)
        assigned = asyncio.Event()

        async def fail_to_count(_count: int) -> frozenset[int]:
            assigned.set()
            raise StoreError("out of reach")

        monkeypatch.setattr(only, "_assign", fail_to_count)
        change = asyncio.create_task(get_next_shards(changes))
        await asyncio.wait_for(assigned.wait(), 30)
        assert not (await asyncio.wait([change], timeout=0.2))[0]
        await cancel_tasks(change)
    await database.aclose()


async def test_shards_are_distributed_evenly_over_live_workers(postgres: str) -> None:
    database = FailingDatabase(postgres)
    workers, leases, keepers = list[ShardFollower](), list[Lease](), list[asyncio.Task[None]]()

    def list_shards() -> list[frozenset[int]]:
        found = [worker.shards for worker in workers]
        assert sum(map(len, found)) == len(frozenset[int]().union(*found)), "two workers run the same shard"
        return found

    def is_even() -> bool:
        counts = sorted(map(len, list_shards()))
        return sum(counts) == 4 and counts[-1] - counts[0] <= 1

    for _ in range(3):  # the others release shards to each new worker
        lease, assignment = await create_candidate(database)
        keeping = asyncio.create_task(lease.keep_renewed())
        workers.append(ShardFollower(assignment, 4))
        leases.append(lease)
        keepers.append(keeping)
        await wait_until(is_even)
    await cancel_tasks(workers.pop(0).task, keepers.pop(0))  # the others share the shards of a dead worker
    async with database.write() as connection:
        is_gone = sa.update(workers_table).where(workers_table.c.id == leases[0].worker_id)
        await connection.execute(is_gone.values(lease_expires_at=0.0))
    await wait_until(is_even)
    _, assignment = await create_candidate(database)
    assert await assignment.get_shard_count() == 4
    await cancel_tasks(*(worker.task for worker in workers), *keepers)
    await database.aclose()


async def test_all_shards_of_a_worker_that_cannot_connect_one_go_to_others(postgres: str) -> None:
    database = FailingDatabase(postgres)
    (_, first), (_, second) = await create_candidate(database), await create_candidate(database)
    async with aclosing(first.watch(4)) as one, aclosing(second.watch(4)) as other:
        assert await get_next_shards(one) == {0, 1}
        assert await get_next_shards(other) == {2, 3}
        await first.release_failed_shards({1}, 4)
        assert await get_next_shards(other) == {1, 2, 3}
        assert await get_next_shards(one) == set()
        released = asyncio.create_task(get_next_shards(one))  # asking for the next change releases the shard
        assert await get_next_shards(other) == {0, 1, 2, 3}
        await cancel_tasks(released)
    await database.aclose()


async def test_the_only_worker_tries_a_shard_again_that_it_could_not_connect(database: FailingDatabase) -> None:
    _, only = await create_candidate(database)
    async with aclosing(only.watch(2)) as changes:
        for _ in range(3):
            assert await get_next_shards(changes) == {0, 1}
            await only.release_failed_shards({1}, 2)


async def test_identifies_in_one_bucket_keep_their_interval(database: FailingDatabase) -> None:
    (_, first), (_, second) = await create_candidate(database), await create_candidate(database)
    async with aclosing(first.watch(2)) as changes:
        await get_next_shards(changes)
    began = asyncio.get_running_loop().time()
    groups = (first, 0), (second, 0), (second, 1)
    await asyncio.gather(*(candidate.acquire_identify_slot(group, 2, 0.3) for candidate, group in groups))
    assert 0.3 <= asyncio.get_running_loop().time() - began < 3.0


async def test_a_leader_with_a_late_renewal_stays_the_leader(postgres: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lease, only = await create_candidate(FailingDatabase(postgres), seconds=0.05)
    claim = only._claim

    async def renew_and_claim(shards: Collection[int], shard_count: int) -> frozenset[int]:
        await lease.acquire()
        return await claim(shards, shard_count)

    monkeypatch.setattr(only, "_claim", renew_and_claim)
    async with aclosing(only.watch()) as changes:
        assert await get_next_shards(changes)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(changes), 0.3)
