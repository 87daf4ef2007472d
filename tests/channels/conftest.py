"""Fixtures for all tests of the channels."""

import pytest

from core.concurrency import retry
from tests.channels.discord.conftest import nothing_stays_and_nobody_waits
from tests.fixtures.retry_waits import limited_wait

__all__ = ["nothing_stays_and_nobody_waits"]


@pytest.fixture(autouse=True)
def _few_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limit a database operation to three tries."""
    monkeypatch.setattr(retry, "RETRY_WAIT", limited_wait(0.01, 0.01))
