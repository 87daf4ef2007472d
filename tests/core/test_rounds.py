"""Who has much to compute leaves room for others."""

import asyncio

from core.rounds import one_a_round

ROUNDS = 10_000


async def test_of_many_that_are_ready_at_once_each_computes_in_a_round_of_its_own() -> None:
    began = asyncio.Event()
    seen = list[int]()
    count = 0

    async def rounds() -> None:
        nonlocal count
        while len(seen) < 20 and count < ROUNDS:
            count += 1
            await asyncio.sleep(0)

    async def compute() -> None:
        await began.wait()
        await one_a_round()
        seen.append(count)

    async with asyncio.timeout(10), asyncio.TaskGroup() as tasks:
        for _ in range(20):
            tasks.create_task(compute())
        await asyncio.sleep(0)
        began.set()
        tasks.create_task(rounds())
    assert len(set(seen)) == 20
