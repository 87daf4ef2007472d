"""Background tasks, bounded concurrency (`run_concurrently`) and periodic work (`run_every`)."""

import asyncio
import logging

import pytest

from core.concurrency.tasks import BackgroundTasks, run_concurrently, run_every, run_in_background


async def test_an_error_of_a_background_task_is_logged_without_its_text(caplog: pytest.LogCaptureFixture) -> None:
    text = "somebody's words"

    async def raise_key_error() -> None:
        raise KeyError(text)

    await BackgroundTasks().start(raise_key_error(), name="press")
    assert "press failed: KeyError" in caplog.text
    assert text not in caplog.text


async def test_tasks_start_in_order_up_to_the_limit() -> None:
    started, peak, now = list[int](), 0, 0

    async def work(item: int) -> None:
        nonlocal peak, now
        started.append(item)
        peak, now = max(peak, now + 1), now + 1
        await asyncio.sleep(0)
        now -= 1

    await run_concurrently(work, range(10), 3)
    assert (started, peak) == (list(range(10)), 3)
    await run_concurrently(work, (), 3)


async def test_a_failed_task_cancels_the_others_and_raises_its_own_error() -> None:
    ended, waits = list[int](), asyncio.Event()

    async def work(item: int) -> None:
        if item == 1:
            raise ValueError(item)
        try:
            await waits.wait()
        finally:
            ended.append(item)

    with pytest.raises(ValueError, match="1"):
        await run_concurrently(work, range(10), 3)
    assert sorted(ended) == [0, 2]


async def test_periodic_work_continues_after_a_logged_failure(caplog: pytest.LogCaptureFixture) -> None:
    calls, repeated = 0, asyncio.Event()

    async def work() -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise ValueError("no")
        if calls == 3:
            repeated.set()

    with caplog.at_level(logging.WARNING):
        async with run_in_background(run_every(0, work, failure="the work cannot be done"), name="work"):
            await repeated.wait()
    (record,) = caplog.records
    assert record.getMessage().startswith("the work cannot be done: ValueError")


async def test_periodic_work_has_its_own_pause_before_a_retry() -> None:
    calls, repeated = 0, asyncio.Event()

    async def work() -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise ValueError("no")
        repeated.set()

    async with run_in_background(
        run_every(3600, work, failure="the work cannot be done", retry_seconds=0), name="work"
    ):
        await asyncio.wait_for(repeated.wait(), 10)
