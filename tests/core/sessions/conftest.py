from pathlib import Path

import pytest

from core.models.tokens import TokenCounter
from core.sessions.service import SessionService
from core.store.database import Database


@pytest.fixture
def counter(tmp_path: Path) -> TokenCounter:
    return TokenCounter(tmp_path)


@pytest.fixture
def service(database: Database, counter: TokenCounter) -> SessionService:
    return SessionService(database, counter, agent="bot")
