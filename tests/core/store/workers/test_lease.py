"""Leases of workers on one PostgreSQL server: valid, expired, seemingly expired."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from core.concurrency import event_loop
from core.errors import StoreError, TurnLostError
from core.inbox.store import InboxStore
from core.sessions.agent_routing import AgentRouter
from core.store.schema import workers
from core.store.workers import lease as lease_module
from core.store.workers.lease import Lease
from core.store.workers.shard_assignment import ShardAssignment
from core.turns.store import TurnStore
from core.turns.worker import Worker
from tests.core.conftest import AgeLeases, FailingDatabase
from tests.fixtures.inbox_messages import inbound

SECONDS = 30.0


@pytest.fixture
async def shared_database(postgres: str) -> AsyncIterator[FailingDatabase]:
    database = FailingDatabase(postgres)
    yield database
    await database.aclose()


@pytest.fixture
def frequent_renewals(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let workers renew their leases a thousand times per lease period."""
    monkeypatch.setattr(lease_module, "RENEWALS_PER_LEASE", 1_000)


async def wait_until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not holds():  # noqa: ASYNC110 (the database reports no changes)
            await asyncio.sleep(0.01)


async def age_leases_during_renewals(
    age_leases: AgeLeases, database: FailingDatabase, seconds: float, lease: Lease
) -> None:
    """Move all leases and the clock by `seconds`, in steps of half a lease period.

    After each step it waits until `lease` is renewed.
    """
    for _ in range(int(2 * seconds / SECONDS)):
        await age_leases(database, SECONDS / 2)
        await wait_until(lambda: lease._until > event_loop.now() + 0.9 * SECONDS)


async def acquire_lease(database: FailingDatabase, *, seconds: float = SECONDS) -> Lease:
    lease = Lease(database, seconds=seconds)
    await lease.acquire()
    return lease


async def is_gone(database: FailingDatabase, judge: Lease, worker: str | None) -> bool:
    owner = sa.literal(worker, sa.Text)
    async with database.read() as connection:
        return bool((await connection.execute(sa.select(judge.has_no_live_worker(owner)))).scalar_one())


async def test_a_worker_is_alive_while_its_lease_is_valid(
    shared_database: FailingDatabase, age_leases: AgeLeases
) -> None:
    judge, silent = await acquire_lease(shared_database, seconds=10 * SECONDS), await acquire_lease(shared_database)
    assert not await is_gone(shared_database, judge, silent.worker_id)
    await age_leases(shared_database, SECONDS / 2)
    assert not await is_gone(shared_database, judge, silent.worker_id)
    await age_leases(shared_database, SECONDS / 2)
    assert await is_gone(shared_database, judge, silent.worker_id)


async def test_a_lease_is_renewed_continuously(shared_database: FailingDatabase) -> None:
    judge, living = await acquire_lease(shared_database), await acquire_lease(shared_database, seconds=4.0)
    keeping = asyncio.create_task(living.keep_renewed())
    await asyncio.sleep(5.0)
    assert not await is_gone(shared_database, judge, living.worker_id)
    keeping.cancel()
    await asyncio.wait([keeping])


async def test_a_renewal_that_is_rolled_back_does_not_extend_the_lease(
    shared_database: FailingDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease, write = await acquire_lease(shared_database, seconds=0.4), shared_database.write

    @asynccontextmanager
    async def write_and_roll_back() -> AsyncIterator[AsyncConnection]:
        async with write() as connection:
            yield connection
            raise StoreError("it could not be committed")

    monkeypatch.setattr(shared_database, "write", write_and_roll_back)
    keeping = asyncio.create_task(lease.keep_renewed())
    await asyncio.sleep(0.6)
    assert not lease.is_valid
    keeping.cancel()
    await asyncio.wait([keeping])


async def test_a_released_or_unknown_lease_has_no_live_worker(
    shared_database: FailingDatabase,
) -> None:
    judge, ended = await acquire_lease(shared_database), await acquire_lease(shared_database)
    await ended.release()
    for worker in (ended.worker_id, "stranger", None):
        assert await is_gone(shared_database, judge, worker)


async def test_a_release_does_not_wait_for_a_hanging_database(
    shared_database: FailingDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = await acquire_lease(shared_database)
    assignment = ShardAssignment(shared_database, lease, "discord")
    for module in ("core.store.workers.lease", "core.store.workers.shard_assignment"):
        monkeypatch.setattr(f"{module}.RELEASE_SECONDS", 0.1)
    async with shared_database.engine.begin() as other:
        await other.execute(sa.text("LOCK TABLE workers, channels"))
        async with asyncio.timeout(30):
            await assignment.release()
            await lease.release()
    assert await list_worker_ids(shared_database) == [lease.worker_id]


@pytest.mark.usefixtures("frequent_renewals")
async def test_after_a_database_outage_no_worker_is_declared_dead_at_once(
    shared_database: FailingDatabase, age_leases: AgeLeases
) -> None:
    judge, other = await acquire_lease(shared_database), await acquire_lease(shared_database)
    shared_database.failures = 1
    keeping = asyncio.create_task(judge.keep_renewed())
    await asyncio.wait_for(shared_database.recovered.wait(), 30)
    await age_leases_during_renewals(age_leases, shared_database, SECONDS, judge)
    assert not await is_gone(shared_database, judge, other.worker_id)
    assert await is_gone(shared_database, judge, None)
    await age_leases_during_renewals(age_leases, shared_database, 2 * SECONDS, judge)
    assert await is_gone(shared_database, judge, other.worker_id)
    keeping.cancel()
    await asyncio.wait([keeping])


@pytest.mark.usefixtures("frequent_renewals")
async def test_a_stalled_worker_declares_nobody_dead_before_all_could_renew(
    shared_database: FailingDatabase, age_leases: AgeLeases
) -> None:
    judge, other = await acquire_lease(shared_database), await acquire_lease(shared_database)
    await age_leases(shared_database, SECONDS)  # the whole machine paused
    assert not await is_gone(shared_database, judge, other.worker_id)
    keeping = [asyncio.create_task(lease.keep_renewed()) for lease in (judge, other)]
    await wait_until(lambda: judge.is_valid and other.is_valid)
    assert not judge.may_take_over
    assert not await is_gone(shared_database, judge, other.worker_id)
    keeping[1].cancel()
    await age_leases_during_renewals(age_leases, shared_database, SECONDS, judge)
    assert not await is_gone(shared_database, judge, other.worker_id)
    await age_leases_during_renewals(age_leases, shared_database, 2 * SECONDS, judge)
    assert await is_gone(shared_database, judge, other.worker_id)
    keeping[0].cancel()
    await asyncio.wait(keeping)


async def test_a_turn_is_owned_after_a_failed_renewal_until_the_lease_ends(
    shared_database: FailingDatabase, age_leases: AgeLeases
) -> None:
    lease = await acquire_lease(shared_database)
    turns = TurnStore(shared_database, lease, AgentRouter("app"))
    await InboxStore(shared_database, turns, Worker(turns)).accept(inbound())
    (turn,) = await turns.claim(1)
    shared_database.failures, shared_database.fails_reads = 1_000, True
    with pytest.raises(StoreError):
        await lease._renew()
    await turns.check_owned(turn)
    shared_database.failures = 0
    await age_leases(shared_database, SECONDS)
    shared_database.failures = 1_000
    with pytest.raises(StoreError):
        await turns.check_owned(turn)


async def test_a_worker_with_a_new_lease_has_lost_its_former_turn(
    shared_database: FailingDatabase, age_leases: AgeLeases
) -> None:
    leases = [await acquire_lease(shared_database), await acquire_lease(shared_database, seconds=10 * SECONDS)]
    slow, other = [TurnStore(shared_database, lease, AgentRouter("app")) for lease in leases]
    inbox = InboxStore(shared_database, slow, Worker(slow))
    await inbox.accept(inbound())
    (turn,) = await slow.claim(1)
    await slow.check_owned(turn)
    await age_leases(shared_database, SECONDS)
    assert await other.claim(1)
    await slow._lease.acquire()
    assert slow._lease.is_valid
    with pytest.raises(TurnLostError):
        await slow.check_owned(turn)


async def test_on_sqlite_the_newest_worker_is_the_only_one(database: FailingDatabase) -> None:
    first = await acquire_lease(database)
    second = await acquire_lease(database)
    if database.is_sqlite:
        assert await list_worker_ids(database) == [second.worker_id]
        assert await is_gone(database, second, first.worker_id)
    else:
        assert await list_worker_ids(database) == sorted([first.worker_id, second.worker_id])


async def list_worker_ids(database: FailingDatabase) -> list[str]:
    async with database.read() as connection:
        return sorted((await connection.execute(sa.select(workers.c.id))).scalars())
