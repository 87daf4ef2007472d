import asyncio
import logging

import pytest
from tenacity import AsyncRetrying, RetryCallState
from tenacity.wait import wait_none

from core.concurrency import retry
from core.concurrency.retry import RETRY_TIMEOUT_SECONDS, RETRY_WAIT, retry_forever, retry_store
from core.concurrency.tasks import run_in_background
from core.errors import SessionResetError, StoreError
from tests.fixtures.retry_waits import limited_wait


class Operation:
    """Operation that raises each of `errors` in turn, and then succeeds.

    Attributes:
        tries: the number of calls.
    """

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.tries = 0

    async def __call__(self) -> str:
        self.tries += 1
        if self.errors:
            raise self.errors.pop(0)
        return "done"


async def test_a_transient_failure_is_retried_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    operation = Operation(StoreError("away"), StoreError("away"))
    with caplog.at_level(logging.WARNING):
        assert await retry_store(operation, operation="a turn") == "done"
    assert operation.tries == 3
    assert [record.getMessage() for record in caplog.records] == ["a turn: away; retry in 0.0 s"] * 2


async def test_after_the_last_pause_the_error_goes_to_the_caller() -> None:
    operation = Operation(*[StoreError("away")] * 9)
    with pytest.raises(StoreError, match="away"):
        await retry_store(operation, operation="a turn")
    assert operation.tries == 3


@pytest.mark.parametrize("error", [SessionResetError("over"), ValueError("a bug")])
async def test_a_permanent_failure_is_not_retried(error: Exception) -> None:
    operation = Operation(error)
    with pytest.raises(type(error)):
        await retry_store(operation, operation="a turn")
    assert operation.tries == 1


async def test_a_cancelled_operation_ends_with_the_reason_of_its_cancellation() -> None:
    started = asyncio.Event()

    async def hang() -> None:
        started.set()
        await asyncio.Event().wait()

    running = asyncio.create_task(retry_store(hang, operation="a turn"))
    await started.wait()
    running.cancel("a reason")
    with pytest.raises(asyncio.CancelledError, match="a reason"):
        await running


async def test_tries_that_take_long_count_against_the_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "RETRY_WAIT", wait_none())
    operation = Operation(*[StoreError("away")] * 50)

    async def succeed_slowly() -> str:
        await asyncio.sleep(0.03)
        return await operation()

    with pytest.raises(StoreError):
        await retry_store(succeed_slowly, operation="a turn", timeout_seconds=0.05)
    assert operation.tries <= 3


def test_a_minute_without_a_database_is_outlived_and_its_return_noticed_soon() -> None:
    state = RetryCallState(AsyncRetrying(), None, (), {})
    pauses = list[float]()
    while sum(pauses) <= RETRY_TIMEOUT_SECONDS:
        pauses.append(RETRY_WAIT(state))
        state.prepare_for_next_attempt()
    assert sum(pauses[:-1]) > 60
    assert max(pauses) <= 5


async def test_a_job_is_retried_until_it_succeeds_and_each_reason_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    job = Operation(StoreError("away"), StoreError("away"), StoreError("full"))
    wake, done = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        await job()
        done.set()

    wake.set()
    with caplog.at_level(logging.WARNING):
        async with run_in_background(
            retry_forever(work, wake, wait_none(), failure="messages are not stored yet"), name="job"
        ):
            await asyncio.wait_for(done.wait(), 10)
    assert job.tries == 4
    messages = [record.getMessage() for record in caplog.records]
    assert messages == ["messages are not stored yet: away", "messages are not stored yet: full"]


async def test_waking_a_job_ends_its_pause() -> None:
    job, wake, started, done = Operation(StoreError("away")), asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def work() -> None:
        started.set()
        await job()
        done.set()

    wake.set()
    async with run_in_background(
        retry_forever(work, wake, limited_wait(), failure="messages are not stored yet"), name="job"
    ):
        await started.wait()
        wake.set()
        await asyncio.wait_for(done.wait(), 10)
