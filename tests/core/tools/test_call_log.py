"""Log of tool calls, with a failing database."""

from dataclasses import replace
from typing import Any

import pytest
import sqlalchemy as sa
from google.adk.events.event_actions import EventActions
from google.genai import types
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from core.errors import SessionResetError, StoreError
from core.models.tokens import TokenCounter
from core.sessions.service import SessionService
from core.store.schema import tool_calls
from core.tools.call_log import ToolCallLog
from core.turns.automation.jobs import ToolInvocation
from tests.core.conftest import FailingDatabase
from tests.core.sessions.events import reset_session

CALL = ToolInvocation(session="s", generation=1, run="run-1", id="c1", tool="pay", arguments={"sum": 3, "to": "Ada"})


@pytest.fixture
async def sessions(database: FailingDatabase, tmp_path: Any) -> SessionService:
    sessions = SessionService(database, TokenCounter(tmp_path))
    await sessions.create_session(app_name="app", user_id="place", session_id="s")
    return sessions


@pytest.fixture
def journal(database: FailingDatabase, sessions: SessionService) -> ToolCallLog:
    return ToolCallLog(database)


async def list_states(database: FailingDatabase) -> list[str]:
    async with database.read() as connection:
        return list((await connection.execute(sa.select(tool_calls.c.state))).scalars())


async def test_a_call_begins_once(journal: ToolCallLog, database: FailingDatabase) -> None:
    assert await journal.begin(CALL) is None
    assert await list_states(database) == ["begun"]
    entry = await journal.begin(replace(CALL, arguments={"to": "Ada", "sum": 3}))
    assert entry is not None
    assert not entry.has_ended
    assert await journal.begin(replace(CALL, id="c2")) is None
    assert await journal.begin(replace(CALL, run="run-2")) is None


async def test_an_ended_call_is_logged_with_its_result_and_actions(journal: ToolCallLog) -> None:
    await journal.begin(CALL)
    await journal.end(CALL, {"paid": 3}, EventActions(state_delta={"paid": 3}, transfer_to_agent="till"))
    entry = await journal.begin(CALL)
    assert entry is not None
    assert (entry.has_ended, entry.result) == (True, {"paid": 3})
    assert entry.actions == EventActions(state_delta={"paid": 3}, transfer_to_agent="till")


@pytest.mark.parametrize("other", [{"tool": "refund"}, {"arguments": {"sum": 4, "to": "Ada"}}])
async def test_another_call_under_the_same_id_is_a_call_of_its_own(journal: ToolCallLog, other: dict[str, Any]) -> None:
    await journal.begin(CALL)
    await journal.end(CALL, "paid", EventActions())
    assert await journal.begin(replace(CALL, **other)) is None
    entry = await journal.begin(replace(CALL, **other))
    assert entry is not None
    assert not entry.has_ended


async def test_a_repeated_call_has_begun_and_not_ended(journal: ToolCallLog) -> None:
    await journal.begin(CALL)
    await journal.end(CALL, "asked", EventActions())
    assert await journal.begin(CALL, lambda _entry: True) is None
    entry = await journal.begin(CALL)
    assert entry is not None
    assert (entry.has_ended, entry.result) == (False, None)


async def test_a_transient_database_error_is_retried(journal: ToolCallLog, database: FailingDatabase) -> None:
    database.failures = 2
    assert await journal.begin(CALL) is None
    database.failures = 2
    await journal.end(CALL, "paid", EventActions())
    assert await list_states(database) == ["ended"]


async def test_a_lasting_database_error_is_raised(journal: ToolCallLog, database: FailingDatabase) -> None:
    database.failures = 100
    with pytest.raises(StoreError):
        await journal.begin(CALL)
    assert database.failures == 97


async def test_a_reset_deletes_the_calls_and_refuses_new_ones(
    journal: ToolCallLog, sessions: SessionService, database: FailingDatabase
) -> None:
    await journal.begin(CALL)
    await reset_session(sessions, "s")
    assert await list_states(database) == []
    await journal.end(CALL, "paid", EventActions())
    with pytest.raises(SessionResetError):
        await journal.begin(replace(CALL, id="c2"))
    assert await list_states(database) == []


pictures = st.builds(lambda data: types.Part.from_bytes(data=data, mime_type="image/png"), st.binary(min_size=1))
keys = st.text(max_size=3) | st.sampled_from(["$media", "$media$", "$"])
results = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text() | pictures,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(result=results)
async def test_a_result_survives_storage(journal: ToolCallLog, result: Any) -> None:
    await journal.begin(CALL)
    assert await journal.begin(CALL, lambda _entry: True) is None
    await journal.end(CALL, result, EventActions())
    entry = await journal.begin(CALL)
    assert entry is not None
    assert entry.result == result
