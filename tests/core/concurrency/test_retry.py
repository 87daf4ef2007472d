import asyncio
import logging

import pytest

from core.concurrency import retry as retrying
from core.concurrency.retry import PATIENCE, PAUSES, retried
from core.errors import SessionResetError, StoreError


class Errand:
    """Fails with each of `errors`, then succeeds."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.tries = 0

    async def __call__(self) -> str:
        self.tries += 1
        if self.errors:
            raise self.errors.pop(0)
        return "done"


async def test_what_fails_in_passing_is_done_again_and_said(caplog: pytest.LogCaptureFixture) -> None:
    errand = Errand(StoreError("away"), StoreError("away"))
    with caplog.at_level(logging.WARNING):
        assert await retried(errand, what="a turn", pauses=(0.0, 0.0)) == "done"
    assert errand.tries == 3
    assert [record.getMessage() for record in caplog.records] == ["a turn: away; trying again in 0.0 s"] * 2


async def test_after_the_last_pause_the_error_goes_to_the_caller() -> None:
    errand = Errand(*[StoreError("away")] * 9)
    with pytest.raises(StoreError):
        await retried(errand, what="a turn", pauses=(0.0, 0.0))
    assert errand.tries == 3


@pytest.mark.parametrize("error", [SessionResetError("over"), ValueError("a bug")])
async def test_what_will_not_pass_is_not_done_again(error: Exception) -> None:
    errand = Errand(error)
    with pytest.raises(type(error)):
        await retried(errand, what="a turn", pauses=(0.0,))
    assert errand.tries == 1


async def test_tries_that_take_long_count_against_the_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retrying, "PATIENCE", 0.05)

    errand = Errand(*[StoreError("away")] * 50)

    async def slow() -> str:
        await asyncio.sleep(0.03)
        return await errand()

    with pytest.raises(StoreError):
        await retried(slow, what="a turn", pauses=(0.0,) * 50)
    assert errand.tries <= 3


def test_a_minute_without_a_database_is_outlived_and_its_return_noticed_soon() -> None:
    assert 60 < sum(PAUSES) <= PATIENCE + 0.001
    assert max(PAUSES) <= 5
