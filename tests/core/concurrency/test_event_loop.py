"""Who has much to compute leaves room for others."""

import asyncio
import time

from core.concurrency.event_loop import ENOUGH, room

MANY = 20


async def test_of_many_that_are_ready_at_once_only_some_compute_in_one_round() -> None:
    began = asyncio.Event()
    seen = list[int]()
    count = 0

    async def rounds() -> None:
        nonlocal count
        while len(seen) < MANY:
            count += 1
            await asyncio.sleep(0)

    async def compute() -> None:
        await began.wait()
        await room()
        until = time.thread_time() + ENOUGH * 0.6
        while time.thread_time() < until:
            pass
        seen.append(count)

    async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
        for _ in range(MANY):
            tasks.create_task(compute())
        await asyncio.sleep(0)
        began.set()
        tasks.create_task(rounds())
    assert max(map(seen.count, seen)) <= 2, "two of them are enough for a round"


async def test_who_computes_little_waits_for_nobody() -> None:
    rounds = list[int]()
    asyncio.get_running_loop().call_soon(rounds.append, 1)
    for _ in range(MANY):
        await room()
    assert not rounds


async def test_who_gives_up_while_waiting_keeps_nobody_else_from_going_on() -> None:
    began, through = asyncio.Event(), set[int]()

    async def compute(number: int) -> None:
        await began.wait()
        await room()
        until = time.thread_time() + ENOUGH
        while time.thread_time() < until:
            pass
        through.add(number)

    tasks = [asyncio.create_task(compute(number)) for number in range(MANY)]
    await asyncio.sleep(0)
    began.set()
    await asyncio.sleep(0)
    for task in tasks[::2]:
        task.cancel()
    async with asyncio.timeout(30):
        await asyncio.wait(tasks)
    assert set(range(1, MANY, 2)) <= through
    assert len(through) < MANY
