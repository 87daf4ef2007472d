from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from core.sessions.service import SessionService
from core.store.database import Database
from core.store.migrate import migrate
from core.tokens import TokenCounter


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    database = Database(f"sqlite+aiosqlite:///{tmp_path / 'parley.db'}")
    await migrate(database)
    yield database
    await database.aclose()


@pytest.fixture
def counter(tmp_path: Path) -> TokenCounter:
    return TokenCounter(tmp_path)


@pytest.fixture
def service(database: Database, counter: TokenCounter) -> SessionService:
    return SessionService(database, counter, agent="bot")
