"""Several workers on one PostgreSQL: who is gone, and who only seems to be."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from core.concurrency import event_loop
from core.errors import StoreError, TurnLostError
from core.inbox.store import InboxStore
from core.sessions.routing import AgentRouter
from core.store.schema import workers
from core.turns.store import TurnStore
from core.turns.worker import Worker
from core.workers import lease as lease_module
from core.workers.lease import Lease
from core.workers.shard_assignment import ShardAssignment
from tests.core.conftest import Faulty, Passes, never
from tests.fixtures.inbox_messages import inbound

SECONDS = 30.0


@pytest.fixture
async def shared(postgres: str) -> AsyncIterator[Faulty]:
    database = Faulty(postgres)
    yield database
    await database.aclose()


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leases are lengthened soon after whatever happens to them."""
    monkeypatch.setattr(lease_module, "RENEWALS_PER_LEASE", 1_000)


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not holds():  # noqa: ASYNC110 (the database tells nothing)
            await asyncio.sleep(0.01)


async def passes_while_it_is_kept(passes: Passes, database: Faulty, seconds: float, lease: Lease) -> None:
    """So many seconds pass, and the lease is lengthened all the while."""
    for _ in range(int(2 * seconds / SECONDS)):
        await passes(database, SECONDS / 2)
        await until(lambda: lease._until > event_loop.now() + 0.9 * SECONDS)


async def taken(database: Faulty, *, seconds: float = SECONDS) -> Lease:
    lease = Lease(database, seconds=seconds)
    await lease.acquire()
    return lease


async def is_gone(database: Faulty, judge: Lease, worker: str | None) -> bool:
    owner = sa.literal(worker, sa.Text)
    async with database.read() as connection:
        return bool((await connection.execute(sa.select(judge.has_no_live_worker(owner)))).scalar_one())


async def test_a_worker_is_there_while_its_lease_lasts_and_gone_when_it_ends(shared: Faulty, passes: Passes) -> None:
    judge, silent = await taken(shared, seconds=10 * SECONDS), await taken(shared)
    assert not await is_gone(shared, judge, silent.worker_id)
    await passes(shared, SECONDS / 2)
    assert not await is_gone(shared, judge, silent.worker_id)
    await passes(shared, SECONDS / 2)
    assert await is_gone(shared, judge, silent.worker_id)


async def test_a_lease_is_lengthened_all_the_while(shared: Faulty) -> None:
    judge, living = await taken(shared), await taken(shared, seconds=4.0)
    keeping = asyncio.create_task(living.keep_renewed())
    await asyncio.sleep(5.0)
    assert not await is_gone(shared, judge, living.worker_id)
    keeping.cancel()
    await asyncio.wait([keeping])


async def test_a_lease_that_is_not_written_is_not_lengthened(shared: Faulty, monkeypatch: pytest.MonkeyPatch) -> None:
    lease, write = await taken(shared, seconds=0.4), shared.write

    @asynccontextmanager
    async def rolled_back() -> AsyncIterator[AsyncConnection]:
        async with write() as connection:
            yield connection
            raise StoreError("it could not be committed")

    monkeypatch.setattr(shared, "write", rolled_back)
    keeping = asyncio.create_task(lease.keep_renewed())
    await asyncio.sleep(0.6)
    assert not lease.is_valid
    keeping.cancel()
    await asyncio.wait([keeping])


async def test_a_worker_that_gave_up_its_lease_is_gone_at_once_and_so_is_a_stranger(shared: Faulty) -> None:
    judge, ended = await taken(shared), await taken(shared)
    await ended.release()
    for worker in (ended.worker_id, "stranger", None):
        assert await is_gone(shared, judge, worker)


async def test_who_ends_waits_for_no_database_that_hangs(shared: Faulty, monkeypatch: pytest.MonkeyPatch) -> None:
    lease = await taken(shared)
    assignment = ShardAssignment(shared, lease, "discord")
    for module in ("core.workers.lease", "core.workers.shard_assignment"):
        monkeypatch.setattr(f"{module}.RELEASE_SECONDS", 0.1)
    async with shared.engine.begin() as other:
        await other.execute(sa.text("LOCK TABLE workers, channels"))
        async with asyncio.timeout(30):
            await assignment.release()
            await lease.release()
    assert await ids(shared) == [lease.worker_id]


@pytest.mark.usefixtures("often")
async def test_when_nobody_could_lengthen_his_lease_nobody_is_taken_for_dead_at_once(
    shared: Faulty, passes: Passes
) -> None:
    judge, other = await taken(shared), await taken(shared)
    shared.failures = 1
    keeping = asyncio.create_task(judge.keep_renewed())
    await asyncio.wait_for(shared.recovered.wait(), 30)
    await passes_while_it_is_kept(passes, shared, SECONDS, judge)
    assert not await is_gone(shared, judge, other.worker_id)
    assert await is_gone(shared, judge, None)
    await passes_while_it_is_kept(passes, shared, 2 * SECONDS, judge)
    assert await is_gone(shared, judge, other.worker_id)
    keeping.cancel()
    await asyncio.wait([keeping])


@pytest.mark.usefixtures("often")
async def test_who_was_held_up_himself_takes_nobody_for_dead_before_all_could_come_back(
    shared: Faulty, passes: Passes
) -> None:
    judge, other = await taken(shared), await taken(shared)
    await passes(shared, SECONDS)  # the machine stands still
    assert not await is_gone(shared, judge, other.worker_id)
    keeping = [asyncio.create_task(lease.keep_renewed()) for lease in (judge, other)]
    await until(lambda: judge.is_valid and other.is_valid)
    assert not judge.is_trustworthy
    assert not await is_gone(shared, judge, other.worker_id)
    keeping[1].cancel()
    await passes_while_it_is_kept(passes, shared, SECONDS, judge)
    assert not await is_gone(shared, judge, other.worker_id)
    await passes_while_it_is_kept(passes, shared, 2 * SECONDS, judge)
    assert await is_gone(shared, judge, other.worker_id)
    keeping[0].cancel()
    await asyncio.wait(keeping)


async def test_who_comes_back_sees_whether_a_turn_is_his_still_though_he_has_a_lease_again(
    shared: Faulty, passes: Passes
) -> None:
    leases = [await taken(shared), await taken(shared, seconds=10 * SECONDS)]
    slow, other = [TurnStore(shared, lease, AgentRouter("app")) for lease in leases]
    inbox = InboxStore(shared, slow, Worker(slow, never))
    await inbox.accept(inbound())
    (turn,) = await slow.claim(1)
    await slow.check_owned(turn)
    await passes(shared, SECONDS)
    assert await other.claim(1)
    await slow._lease.acquire()
    assert slow._lease.is_valid
    with pytest.raises(TurnLostError):
        await slow.check_owned(turn)


async def test_on_sqlite_who_comes_next_is_the_only_one(database: Faulty) -> None:
    first = await taken(database)
    second = await taken(database)
    if database.is_sqlite:
        assert await ids(database) == [second.worker_id]
        assert await is_gone(database, second, first.worker_id)
    else:
        assert await ids(database) == sorted([first.worker_id, second.worker_id])


async def ids(database: Faulty) -> list[str]:
    async with database.read() as connection:
        return sorted((await connection.execute(sa.select(workers.c.id))).scalars())
