"""Work for several at once."""

import asyncio

import pytest

from core.concurrency.tasks import abreast


async def test_so_many_are_under_way_at_once_begun_in_their_order() -> None:
    begun, most, now = list[int](), 0, 0

    async def work(item: int) -> None:
        nonlocal most, now
        begun.append(item)
        most, now = max(most, now + 1), now + 1
        await asyncio.sleep(0)
        now -= 1

    await abreast(work, range(10), 3)
    assert (begun, most) == (list(range(10)), 3)
    await abreast(work, (), 3)


async def test_one_that_fails_ends_the_others_and_is_told_as_it_is() -> None:
    ended, waits = list[int](), asyncio.Event()

    async def work(item: int) -> None:
        if item == 1:
            raise ValueError(item)
        try:
            await waits.wait()
        finally:
            ended.append(item)

    with pytest.raises(ValueError, match="1"):
        await abreast(work, range(10), 3)
    assert sorted(ended) == [0, 2]
