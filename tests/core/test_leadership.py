import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

import pytest

from core import leadership
from core.errors import StoreError
from core.leadership import Leadership
from core.lease import Lease
from tests.core.conftest import Faulty


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leadership, "LOOK", 0.02)


async def candidate(database: Faulty, *, seconds: float = 30) -> tuple[Lease, Leadership]:
    lease = Lease(database, seconds=seconds)
    await lease.take()
    return lease, Leadership(database, lease, "discord")


async def following(changes: AsyncGenerator[bool, None]) -> bool:
    return await asyncio.wait_for(anext(changes), 5)


async def test_the_only_worker_leads_at_once(database: Faulty) -> None:
    _, only = await candidate(database)
    async with aclosing(only.changes()) as changes:
        assert await following(changes)


async def test_one_leads_until_it_gives_up_and_another_one_follows(postgres: str) -> None:
    database = Faulty(postgres)
    (_, first), (_, second) = await candidate(database), await candidate(database)
    async with aclosing(first.changes()) as one, aclosing(second.changes()) as other:
        assert await following(one)
        assert not await following(other)
        await first.give_up()
        assert await following(other)
        await first.give_up()  # which it does not have any more
        assert not await following(one)
    await database.aclose()


async def test_a_leader_whose_lease_has_ended_is_followed(postgres: str) -> None:
    database = Faulty(postgres)
    (_, first), (_, second) = await candidate(database, seconds=0.3), await candidate(database)
    async with aclosing(first.changes()) as one, aclosing(second.changes()) as other:
        assert await following(one)
        assert not await following(other)
        assert await following(other)
    await database.aclose()


async def test_a_leader_that_cannot_reach_the_database_goes_on(postgres: str, monkeypatch: pytest.MonkeyPatch) -> None:
    database = Faulty(postgres)
    _, only = await candidate(database)
    async with aclosing(only.changes()) as changes:
        assert await following(changes)
        asked = asyncio.Event()

        async def out_of_reach() -> bool:
            asked.set()
            raise StoreError("out of reach")

        monkeypatch.setattr(only, "_seek", out_of_reach)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(changes), 0.2)
        assert asked.is_set()
    await database.aclose()
