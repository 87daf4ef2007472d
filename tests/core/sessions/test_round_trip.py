"""Events of any content, stored in and read from the real tables."""

import asyncio
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import sqlalchemy as sa
from google.adk.events.event import Event
from hypothesis import given, settings
from hypothesis import strategies as st

from core.models.tokens import TokenCounter
from core.sessions import codec as record
from core.sessions.service import SessionService
from core.store.database import Database
from core.store.schema import blobs, messages
from tests.core.sessions import strategies
from tests.fixtures import empty_databases as tables


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("empty") / "parley.db"

    async def prepare() -> None:
        database = Database(f"sqlite+aiosqlite:///{path}")
        await tables.create_tables(database)
        await database.aclose()

    asyncio.run(prepare())
    return path


async def store_and_read(path: Path, events: list[Event]) -> list[Event]:
    database = Database(f"sqlite+aiosqlite:///{path}")
    try:
        service = SessionService(database, TokenCounter(path.parent))
        session = await service.create_session(app_name="app", user_id="place", session_id="s")
        for event in events:
            await service.append_event(session, event)
        assert await service.get_session(app_name="app", user_id="place", session_id="s") is not None
        async with database.read() as connection:
            query = sa.select(messages.c.event).order_by(messages.c.id)
            texts = (await connection.execute(query)).scalars().all()
            rows = await connection.execute(sa.select(blobs.c.hash, blobs.c.data))
            data = {row.hash: row.data for row in rows}
    finally:
        await database.aclose()
    parsed = [record.parse_event(text, 0) for text in texts]
    return [record.restore_blobs(event, data) for event in parsed if event is not None]


@given(st.lists(strategies.events, max_size=8))
@settings(max_examples=25, deadline=None)
def test_any_events_come_back_from_the_database_equal_and_in_order(empty: Path, events: list[Event]) -> None:
    with TemporaryDirectory() as folder:
        path = Path(shutil.copy(empty, folder))
        expected = [event for event in events if not record.is_state_only(event)]
        assert asyncio.run(store_and_read(path, events)) == expected
