"""Appended events: stored once despite database failures, and never after a reset."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import sqlalchemy as sa
from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions
from google.adk.sessions import Session
from google.genai import types
from sqlalchemy.ext.asyncio import AsyncConnection

from core.errors import SessionResetError, StoreError
from core.sessions.lifecycle import begin_generation
from core.sessions.service import SessionService
from core.store.database import Database, Rows
from core.store.schema import blobs, messages, state
from tests.core.conftest import count_rows, open_database
from tests.core.sessions.events import call_event, list_texts, model_event, response_event, user_event

APP, USER = "app", "place"


class LossyDatabase(Database):
    """Database that executes each statement, and may raise an error instead of rows.

    Attributes:
        lost_answers: the number of next statements that raise `StoreError`.
    """

    lost_answers = 0

    async def run(self, statement: sa.Executable, **values: Any) -> Rows:
        rows = await super().run(statement, **values)
        self._lose_answer()
        return rows

    @asynccontextmanager
    async def write(self) -> AsyncIterator[AsyncConnection]:
        async with super().write() as connection:
            yield connection
        self._lose_answer()

    def _lose_answer(self) -> None:
        if self.lost_answers:
            self.lost_answers -= 1
            raise StoreError("the answer was lost")


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[LossyDatabase]:
    async with open_database(LossyDatabase(database_url)) as database:
        yield database


async def create(service: SessionService) -> Session:
    return await service.create_session(app_name=APP, user_id=USER, session_id="s")


async def load(service: SessionService) -> Session:
    session = await service.get_session(app_name=APP, user_id=USER, session_id="s")
    assert session is not None
    return session


def image() -> Event:
    part = types.Part(inline_data=types.Blob(mime_type="image/png", data=b"\x89" * 5_000))
    return Event(author="user", content=types.Content(role="user", parts=[part]))


@pytest.mark.parametrize(
    "event",
    [
        user_event("hi"),
        image(),
        model_event("hello", actions=EventActions(state_delta={"a": 1, "user:b": 2})),
        call_event("k", long_running_tool_ids={"k"}),
        response_event("c"),
    ],
    ids=["words", "bytes", "state", "waiting call", "answer"],
)
async def test_a_write_repeated_after_a_lost_answer_is_stored_once(
    service: SessionService, database: LossyDatabase, event: Event
) -> None:
    session = await create(service)
    for before in (call_event("c", long_running_tool_ids={"c"}), model_event("wait")):
        await service.append_event(session, before)
    database.lost_answers = 2
    event = event.model_copy(deep=True)
    await service.append_event(session, event)
    assert database.lost_answers == 0
    assert session.events[-1] == event
    assert await count_rows(database, messages) == 3
    assert (await load(service)).events[-1] == event


async def test_a_state_change_is_stored_when_the_answer_of_the_commit_is_lost(
    service: SessionService, database: LossyDatabase
) -> None:
    session = await create(service)
    database.lost_answers = 1
    await service.append_event(session, Event(author="bot", actions=EventActions(state_delta={"a": 1})))
    assert (await load(service)).state == session.state == {"a": 1}
    assert await count_rows(database, state) == 1


async def test_a_load_is_retried_while_the_database_is_unavailable(
    service: SessionService, database: LossyDatabase
) -> None:
    await service.append_event(await create(service), user_event("hi"))
    database.lost_answers = 2
    assert list_texts((await load(service)).events) == ["hi"]
    database.lost_answers = 3
    with pytest.raises(StoreError):
        await load(service)


async def test_an_append_that_waits_for_a_reset_is_not_stored(service: SessionService, database: LossyDatabase) -> None:
    await create(service)
    for event in (user_event("late"), image()):
        session = await load(service)
        async with database.write() as connection:
            await begin_generation(connection, "s")
            appending = asyncio.create_task(service.append_event(session, event))
            await asyncio.wait([appending], timeout=0.05)
            assert not appending.done()
        with pytest.raises(SessionResetError):
            await appending
    assert await count_rows(database, messages) == await count_rows(database, blobs) == 0
