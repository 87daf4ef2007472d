import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import sqlalchemy as sa
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions
from google.adk.sessions import Session
from google.genai import types

from core.errors import SessionResetError, StoreError
from core.models.tokens import TokenCounter
from core.sessions.history import count_sent_turns
from core.sessions.service import SessionService
from core.sessions.writer import StoredSession
from core.store.database import Database
from core.store.schema import blobs, messages, metadata, sessions, state
from tests.core.sessions.events import call_event, list_texts, model_event, reset_session, user_event

APP, USER = "app", "place"


async def create(service: SessionService, session_id: str = "s", **kwargs: Any) -> Session:
    return await service.create_session(app_name=APP, user_id=USER, session_id=session_id, **kwargs)


async def load(service: SessionService, session_id: str = "s", **kwargs: Any) -> Session:
    session = await service.get_session(app_name=APP, user_id=USER, session_id=session_id, **kwargs)
    assert session is not None
    return session


async def rows(database: Database, table: sa.Table = messages) -> list[Any]:
    async with database.read() as connection:
        return list((await connection.execute(sa.select(table).order_by(*table.primary_key))).all())


def state_event(**delta: Any) -> Event:
    return Event(author="bot", actions=EventActions(state_delta=delta))


@contextmanager
def record_statements(database: Database) -> Iterator[list[tuple[str, Any]]]:
    """Yield a list to which each SQL statement of the context is appended.

    Each entry is (SQL, parameters).
    """
    seen: list[tuple[str, Any]] = []

    def record_statement(_c: Any, _cursor: Any, sql: str, parameters: Any, _x: Any, _m: Any) -> None:
        seen.append((sql, parameters))

    sa.event.listen(database.engine.sync_engine, "before_cursor_execute", record_statement)
    try:
        yield seen
    finally:
        sa.event.remove(database.engine.sync_engine, "before_cursor_execute", record_statement)


async def test_a_deleted_session_leaves_nothing_of_its_own(service: SessionService, database: Database) -> None:
    session = await create(service, state={"a": 1, "user:b": 2})
    await service.append_event(session, image())
    await service.delete_session(app_name=APP, user_id=USER, session_id="s")
    assert await rows(database) == await rows(database, blobs) == await rows(database, sessions) == []
    assert [row.scope for row in await rows(database, state)] == ["user"]
    with pytest.raises(SessionNotFoundError):
        await service.append_event(session, user_event("hi"))


# Appending


def image(size: int = 5_000) -> Event:
    part = types.Part(inline_data=types.Blob(mime_type="image/png", data=b"\x89" * size))
    return Event(author="user", content=types.Content(role="user", parts=[types.Part(text="look"), part]))


async def test_bytes_are_stored_once_a_session_and_come_back(service: SessionService, database: Database) -> None:
    session = await create(service)
    for _ in range(2):
        await service.append_event(session, image())
    await service.append_event(session, image(500_000))
    assert len(await rows(database, blobs)) == 2
    assert max(len(row.event) for row in await rows(database)) < 1_000
    assert (await load(service)).events == session.events


async def test_appending_to_a_session_from_elsewhere_is_refused(service: SessionService) -> None:
    await create(service)
    with pytest.raises(StoreError):
        await service.append_event(Session(id="s", app_name=APP, user_id=USER), user_event("hi"))


async def test_a_new_message_closes_open_calls_of_an_ended_turn(service: SessionService) -> None:
    session = await create(service)
    for event in (user_event("1"), call_event("c")):
        await service.append_event(session, event)
    session = await load(service)
    assert [bool(event.get_function_calls()) for event in session.events] == [False, True]
    await service.append_event(session, user_event("2"))
    (answer,) = session.events[2].get_function_responses()
    assert answer.response == {"error": "interrupted, may have taken effect"}
    assert [list_texts([event]) for event in (await load(service)).events] == [list_texts([e]) for e in session.events]


# Resetting


async def test_a_reset_takes_the_sessions_own_and_leaves_what_is_shared(
    service: SessionService, database: Database
) -> None:
    session = await create(service, state={"a": 1, "user:b": 2, "app:c": 3})
    await create(service, "t", state={"a": 1})
    await service.append_event(session, image())
    assert await reset_session(service, "s") == 2
    assert await rows(database) == await rows(database, blobs) == []
    fresh = await load(service)
    assert (fresh.state, fresh.events) == ({"user:b": 2, "app:c": 3}, [])
    assert (await load(service, "t")).state["a"] == 1
    assert await reset_session(service, "nowhere") is None


async def test_a_session_loaded_before_a_reset_stores_nothing(service: SessionService, database: Database) -> None:
    session = await create(service)
    await service.append_event(session, user_event("hi"))
    await reset_session(service, "s")
    for stale in (session, copy.deepcopy(session)):
        for event in (model_event("late"), image(), state_event(**{"user:late": 1})):
            with pytest.raises(SessionResetError):
                await service.append_event(stale, event)
    assert await rows(database) == await rows(database, blobs) == await rows(database, state) == []
    assert list_texts(session.events) == ["hi"]
    await service.append_event(await load(service), user_event("anew"))
    assert [row.generation for row in await rows(database)] == [2]


# Loading


async def fill(database: Database, turns: int, *, session: str = "s") -> None:
    """Insert a long history into a session directly, without the service.

    Args:
        turns: the number of pairs of a question and an answer.
    """
    base = {"session": session, "generation": 1, "invocation_id": "", "tool_calls": [], "tokens": 5, "created_at": 1.0}
    talk = [
        {**base, "role": role, "author": "", "content": f"{role} {n}"}
        for n in range(turns)
        for role in ("user", "assistant")
    ]
    async with database.write() as connection:
        await connection.execute(sa.insert(messages), talk)


async def test_the_cost_of_loading_does_not_grow_with_the_history(service: SessionService, database: Database) -> None:
    for name, turns in (("short", 100), ("long", 3_000)):
        await create(service, name)
        await fill(database, turns, session=name)
        with record_statements(database) as run:
            events = (await load(service, name)).events
        sent_turns = count_sent_turns(turns)
        assert len(events) == 2 * sent_turns
        assert list_texts(events)[0] == f"user {turns - sent_turns}"
        assert len(run) == 3  # turns are counted, and imported rows are rebuilt from their columns


async def test_the_start_of_a_long_history_is_the_same_on_each_worker(
    database: Database, counter: TokenCounter
) -> None:
    service = SessionService(database, counter, turns=6, agent="bot")
    session = await create(service)
    starts = list[str]()
    for n in range(14):
        for event in (user_event(f"q{n}"), model_event(f"a{n}")):
            await service.append_event(session, event)
        first, second = [SessionService(database, counter, turns=6, agent="bot") for _ in range(2)]
        loaded = list_texts((await load(first)).events)
        assert list_texts((await load(second)).events) == loaded
        starts.append(loaded[0])
    assert starts == ["q0"] * 6 + ["q4"] * 4 + ["q8"] * 4


async def test_fewer_tokens_than_turns_leave_the_limit_of_turns_in_force(
    database: Database, counter: TokenCounter
) -> None:
    service = SessionService(database, counter, budget=45, turns=6, agent="bot")
    await create(service)
    await fill(database, 15)  # 10 tokens each: 4 of them fit
    session = await load(service)
    assert isinstance(session, StoredSession)
    assert list_texts(session.events)[0] == "user 12"
    assert (session.window.limit, session.window.turns) == ("turns", 3)


async def test_a_turn_takes_three_statements(service: SessionService, database: Database) -> None:
    session = await create(service)
    for n in range(40):
        for event in (user_event(f"q{n}"), model_event(f"a{n}")):
            await service.append_event(session, event)
    with record_statements(database) as run:
        session = await load(service)
        await service.append_event(session, user_event("q"))
        await service.append_event(session, model_event("a"))
    assert len(session.events) == 82
    assert len(run) == 3


async def test_each_read_of_a_turn_uses_an_index(service: SessionService, database: Database) -> None:
    session = await create(service, state={"a": 1, "user:b": 2, "app:c": 3})
    await service.append_event(session, call_event("k", long_running_tool_ids={"k"}))
    await fill(database, 400)
    if not database.is_sqlite:
        async with database.write() as connection:  # statistics: one session has nearly all messages
            await connection.exec_driver_sql("ANALYZE messages")
    with record_statements(database) as run:
        session = await load(service)
        await service.append_event(session, model_event("hi"))
    assert len(run) > 3
    for sql, parameters in run:
        steps = await get_query_plan(database, sql, parameters)
        scans = [step for step in steps if step.startswith("SCAN") or "Seq Scan" in step]
        assert not [step for step in scans if any(table in step for table in metadata.tables)], (sql, steps)
        if "UNION ALL" in sql:
            assert not any("TEMP B-TREE" in step or "Sort" in step for step in steps), (sql, steps)
            assert not any("pk_messages" in step for step in steps), (sql, steps)  # that index covers all sessions
        if database.is_sqlite and "count(*)" in sql:
            assert any("COVERING INDEX ix_messages_turns" in step for step in steps), (sql, steps)
        if (
            database.is_sqlite and "long_running_calls IS NOT NULL" in sql
        ):  # PostgreSQL chooses another plan for few rows
            assert any("ix_messages_long_running_calls" in step for step in steps), (sql, steps)


async def test_reads_of_one_session_do_not_scan_the_others(service: SessionService, database: Database) -> None:
    session = await create(service)
    assert isinstance(session, StoredSession)
    await fill(database, 3_000)
    if not database.is_sqlite:
        async with database.write() as connection:  # statistics: one session has nearly all messages
            await connection.exec_driver_sql("ANALYZE messages")
    with record_statements(database) as run:
        assert len((await service.list_sessions(app_name="app")).sessions) == 1
        assert len(await service.search_messages(session, ["user"], limit=3)) == 3
    assert len([sql for sql, _ in run if "FROM messages" in sql]) == 2
    for sql, parameters in run:
        steps = await get_query_plan(database, sql, parameters)
        assert not any("Backward using pk_messages" in step or "PRIMARY KEY" in step for step in steps), (sql, steps)


async def get_query_plan(database: Database, sql: str, parameters: Any) -> list[str]:
    """Return the lines of a statement's query plan.

    PostgreSQL plans without sequential scans, which it prefers for small tables.
    """
    async with database.read() as connection:
        if database.is_sqlite:
            return [row.detail for row in await connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {sql}", parameters)]
        driver: Any = (await connection.get_raw_connection()).driver_connection
        await driver.execute("SET enable_seqscan = off")
        try:
            return [str(row[0]) for row in await driver.fetch(f"EXPLAIN {sql}", *parameters)]
        finally:
            await driver.execute("RESET enable_seqscan")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Привет мир", ["привет", "Привет", "МИР"]),
        ("Über den Wolken", ["über", "ÜBER", "u\u0308ber", "WOLKEN"]),
        ("Die Straße ist 100% lang", ["Straße", "STRASSE", "100%"]),
    ],
)
async def test_history_is_found_whatever_its_script_and_case(
    service: SessionService, text: str, words: list[str]
) -> None:
    session = await create(service)
    assert isinstance(session, StoredSession)
    for event in (user_event(text), model_event("nothing of it")):
        await service.append_event(session, event)
    for word in words:
        assert [found.text for found in await service.search_messages(session, [word], limit=3)] == [text]
    assert [found.text for found in await service.search_messages(session, words, limit=3)] == [text]
