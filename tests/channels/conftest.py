"""What all tests of the channels stand on."""

import pytest

from core.concurrency import retry
from tests.channels.discord.conftest import nothing_stays_and_nobody_waits
from tests.fixtures.retry_waits import limited

__all__ = ["nothing_stays_and_nobody_waits"]


@pytest.fixture(autouse=True)
def _few_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a database operation fail after its third try."""
    monkeypatch.setattr(retry, "RETRY_WAIT", limited(0.01, 0.01))
