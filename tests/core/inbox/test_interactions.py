"""Queue of interactions, with workers that crash."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import sqlalchemy as sa

from core.errors import StoreError
from core.inbox import interactions as queue_module
from core.inbox.interactions import MAX_AGE_SECONDS, InteractionQueue
from core.store.database import Database
from core.store.schema import interactions
from core.workers.lease import Lease


@pytest.fixture(autouse=True)
def short_poll_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_module, "POLL_SECONDS", 0.01)


async def create_worker(database: Database) -> InteractionQueue:
    """Return the interaction queue of a worker that starts after all others crashed."""
    async with database.write() as connection:
        await connection.execute(sa.text("DELETE FROM workers"))
    lease = Lease(database)
    await lease.acquire()
    return InteractionQueue(database, lease)


async def list_stored_keys(database: Database) -> list[str]:
    async with database.read() as connection:
        return list((await connection.execute(sa.select(interactions.c.key).order_by(interactions.c.key))).scalars())


@asynccontextmanager
async def run_orphaned(queue: InteractionQueue, loops: int = 1) -> AsyncIterator[asyncio.Queue[tuple[str, str]]]:
    """Process the interactions of dead workers; yield a queue of (key, payload).

    Args:
        loops: the number of concurrent loops.
    """
    found = asyncio.Queue[tuple[str, str]]()

    async def run(key: str, payload: str) -> None:
        async with queue.process(key):
            await asyncio.sleep(0)
        found.put_nowait((key, payload))

    tasks = [asyncio.create_task(queue.run_orphaned("slack", run)) for _ in range(loops)]
    try:
        yield found
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def test_an_interaction_that_is_delivered_twice_is_new_once(database: Database) -> None:
    queue = await create_worker(database)
    assert await queue.add("slack", "a press", "payload")
    assert not await queue.add("slack", "a press", "payload")
    assert await list_stored_keys(database) == ["a press"]


async def test_a_processed_or_failed_interaction_is_deleted_and_a_cancelled_one_stays(database: Database) -> None:
    queue = await create_worker(database)
    for key in ("cancelled", "failed", "processed"):
        await queue.add("slack", key, "payload")
    async with queue.process("processed"):
        assert "processed" in await list_stored_keys(database)
    with pytest.raises(StoreError):
        async with queue.process("failed"):
            raise StoreError("out of reach")
    with pytest.raises(asyncio.CancelledError):
        async with queue.process("cancelled"):
            raise asyncio.CancelledError
    assert await list_stored_keys(database) == ["cancelled"]


async def test_interactions_of_a_dead_worker_are_processed_once(database: Database) -> None:
    dead = await create_worker(database)
    for number in range(3):
        await dead.add("slack", f"press {number}", f"payload {number}")
    await dead.add("discord", "elsewhere", "payload")
    queue = await create_worker(database)
    await queue.add("slack", "my own", "payload")
    async with run_orphaned(queue, loops=2) as found:
        processed = [await asyncio.wait_for(found.get(), 30) for _ in range(3)]
    assert sorted(processed) == [(f"press {number}", f"payload {number}") for number in range(3)]
    assert found.empty()
    assert await list_stored_keys(database) == ["elsewhere", "my own"]


async def test_an_interaction_that_is_too_old_is_dropped(database: Database) -> None:
    dead = await create_worker(database)
    await dead.add("slack", "a press", "payload")
    async with database.write() as connection:
        await connection.execute(
            sa.update(interactions).values(started_at=interactions.c.started_at - MAX_AGE_SECONDS - 1)
        )
    await dead.add("slack", "a later press", "payload")
    async with run_orphaned(await create_worker(database)) as found:
        assert await asyncio.wait_for(found.get(), 30) == ("a later press", "payload")
    assert found.empty()
    assert await list_stored_keys(database) == []
