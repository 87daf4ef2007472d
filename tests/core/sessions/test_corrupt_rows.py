"""Damaged sessions: reported, repaired by a reset, without effect on others."""

from typing import Any

import pytest
import sqlalchemy as sa

from core.errors import UnreadableRowError
from core.sessions.service import SessionService
from core.store.database import Database
from tests.core.sessions.events import list_texts, model_event, reset_session, user_event
from tests.core.sessions.test_service import create, load

#: Damage that only SQLite can store: values of any type in each column.
SQLITE = {
    "no JSON in the calls": "UPDATE messages SET event = NULL, tool_calls = '{' WHERE session = 's'",
    "words for a number": "UPDATE messages SET tokens = 'many' WHERE session = 's'",
    "words for a time": "UPDATE messages SET created_at = 'soon' WHERE session = 's'",
    "an event that is not UTF-8": "UPDATE messages SET event = CAST(X'ff' AS TEXT) WHERE session = 's'",
    "no JSON in the state": "UPDATE state SET value = '{' WHERE scope = 'session' AND owner = 's'",
}

#: Damage that both databases can store.
BOTH = {
    "no JSON in the event": "UPDATE messages SET event = '{' WHERE session = 's'",
    "an event of another shape": "UPDATE messages SET event = '{\"content\": 7}' WHERE session = 's'",
    "an empty event": "UPDATE messages SET event = '' WHERE session = 's'",
    "calls that are none": "UPDATE messages SET event = NULL, tool_calls = '7' WHERE session = 's'",
    "calls that are a text": "UPDATE messages SET event = NULL, tool_calls = '[\"x\"]' WHERE session = 's'",
}


async def create_damaged_session(service: SessionService, database: Database, damage: str) -> None:
    """Create the sessions `s` and `whole`, and damage one by an SQL statement.

    Args:
        damage: the statement.
    """
    for name in ("s", "whole"):
        session = await create(service, name, state={"a": 1})
        for event in (user_event("hi"), model_event("hello")):
            await service.append_event(session, event)
    await execute(database, damage)


async def execute(database: Database, sql: str) -> None:
    async with database.write() as connection:
        await connection.exec_driver_sql(sql)


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
@pytest.mark.parametrize("damage", SQLITE)
async def test_a_damaged_sqlite_session_is_reported_and_repaired_by_a_reset(
    service: SessionService, database: Database, damage: str
) -> None:
    await check_report_and_repair(service, database, SQLITE[damage])


@pytest.mark.parametrize("damage", BOTH)
async def test_a_damaged_session_is_reported_and_repaired_by_a_reset(
    service: SessionService, database: Database, damage: str
) -> None:
    await check_report_and_repair(service, database, BOTH[damage])


async def check_report_and_repair(service: SessionService, database: Database, damage: str) -> None:
    await create_damaged_session(service, database, damage)
    with pytest.raises(UnreadableRowError, match=r"^(a )?row .* cannot be read$") as caught:
        await load(service)
    assert "reset" in caught.value.public
    assert not caught.value.retryable
    assert list_texts((await load(service, "whole")).events) == ["hi", "hello"]
    assert await reset_session(service, "s") == 2
    fresh = await load(service)
    assert (fresh.events, fresh.state) == ([], {})
    await service.append_event(fresh, user_event("anew"))
    assert list_texts((await load(service)).events) == ["anew"]


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_a_text_that_is_not_utf8_is_read_with_a_mark(service: SessionService, database: Database) -> None:
    await create_damaged_session(service, database, "UPDATE messages SET event = NULL, content = CAST(X'68ff' AS TEXT)")
    assert list_texts((await load(service)).events) == ["h\ufffd", "h\ufffd"]


async def test_unreadable_open_calls_are_reported_at_the_next_message(
    service: SessionService, database: Database
) -> None:
    session = await create(service)
    await service.append_event(session, user_event("hi"))
    await execute(database, "UPDATE messages SET long_running_calls = '[7]'")
    with pytest.raises(UnreadableRowError):
        await service.append_event(session, user_event("again"))
    async with database.read() as connection:
        count: Any = await connection.execute(sa.text("SELECT count(*) FROM messages"))
        assert count.scalar_one() == 1
