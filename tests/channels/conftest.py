"""Fixtures for all tests of the platform adapters."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from core.concurrency import retry
from tests.channels.discord.conftest import clean_discord_library
from tests.channels.platforms import PLATFORMS, run_simulator
from tests.fixtures.retry_waits import limited_wait

__all__ = ["clean_discord_library"]


@pytest.fixture(autouse=True)
def _few_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limit a database operation to three tries with pauses of 10 ms."""
    monkeypatch.setattr(retry, "RETRY_WAIT", limited_wait(0.01, 0.01))


@pytest.fixture(params=PLATFORMS)
async def simulator(request: pytest.FixtureRequest) -> AsyncIterator[Any]:
    """Yield the local Slack, then the local Discord: each test runs on both."""
    async with run_simulator(request.param) as simulator:
        yield simulator
