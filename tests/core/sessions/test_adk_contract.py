"""Documented contract of ADK's session, artifact and memory services.

Each test runs against ADK's own in-memory services as well, so that it states what ADK does. `docs/reference/api.md`
lists the intended differences of Parley; the last section tests those.
"""

import copy
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from google.adk.artifacts import BaseArtifactService, InMemoryArtifactService
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions
from google.adk.memory import BaseMemoryService, InMemoryMemoryService
from google.adk.sessions import BaseSessionService, InMemorySessionService, Session
from google.adk.sessions.base_session_service import GetSessionConfig
from google.genai import types

from core.models.tokens import TokenCounter
from core.sessions.artifacts import ArtifactService
from core.sessions.memory import MemoryService
from core.sessions.service import SessionService
from tests.core.conftest import FailingDatabase, open_database
from tests.core.sessions.events import call_event, list_texts, model_event, response_event, user_event

USER: Mapping[str, Any] = {"app_name": "app", "user_id": "ada"}
OF: Mapping[str, Any] = {**USER, "session_id": "s"}

#: Values that a database may change: numbers at the edges, and strings that look like numbers.
VALUES: Mapping[str, Any] = {
    "big": 2**63,
    "bigger": -(10**30),
    "whole float": 1.0,
    "large float": 1e300,
    "long float": 0.1 + 0.2,
    "zero": -0.0,
    "digits": "1.0",
    "word": "null",
    "nothing": None,
    "true": True,
    "nested": {"list": [1, 1.0, {"float": 2.0, "int": 2, "big": 2**64}], "empty": {}},
}


class Services(NamedTuple):
    """Session, artifact and memory service of ADK or of Parley."""

    sessions: BaseSessionService
    artifacts: BaseArtifactService
    memory: BaseMemoryService


@pytest.fixture(params=["adk", "sqlite", pytest.param("postgres", marks=pytest.mark.long)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str | None:
    """Return None for ADK's own services, then an SQLite and a PostgreSQL URL."""
    if request.param == "postgres":
        return str(request.getfixturevalue("postgres"))
    return f"sqlite+aiosqlite:///{tmp_path / 'parley.db'}" if request.param == "sqlite" else None


@pytest.fixture
async def services(url: str | None, tmp_path: Path) -> AsyncIterator[Services]:
    if url is None:
        yield Services(InMemorySessionService(), InMemoryArtifactService(), InMemoryMemoryService())
        return
    async with open_database(FailingDatabase(url)) as database:
        sessions = SessionService(database, TokenCounter(tmp_path), agent="bot")
        yield Services(sessions, ArtifactService(database), MemoryService(database))


@pytest.fixture
def sessions(services: Services) -> BaseSessionService:
    return services.sessions


@pytest.fixture
def artifacts(services: Services) -> BaseArtifactService:
    return services.artifacts


async def load(sessions: BaseSessionService, **kwargs: Any) -> Session:
    session = await sessions.get_session(**{**OF, **kwargs})
    assert session is not None
    return session


def types_of(value: Any) -> Any:
    """Return a value with the type of each of its parts, since `1 == 1.0 == True`."""
    if isinstance(value, Mapping):
        return {key: types_of(item) for key, item in value.items()}
    if isinstance(value, list):
        return [types_of(item) for item in value]
    return type(value), repr(value)


# Sessions


async def test_a_session_is_created_with_its_id_and_state(sessions: BaseSessionService) -> None:
    session = await sessions.create_session(**OF, state={"k": "v"})
    assert (session.id, session.app_name, session.user_id, session.events) == ("s", "app", "ada", [])
    assert session.state == (await load(sessions)).state == {"k": "v"}
    assert session.last_update_time > 0


async def test_sessions_without_an_id_get_one_each(sessions: BaseSessionService) -> None:
    ids = {(await sessions.create_session(**USER)).id for _ in range(3)}
    assert len(ids) == 3
    assert all(ids)


async def test_an_id_that_is_taken_raises_already_exists(sessions: BaseSessionService) -> None:
    await sessions.create_session(**OF)
    with pytest.raises(AlreadyExistsError):
        await sessions.create_session(**OF)


@pytest.mark.parametrize("other", [{"session_id": "t"}, {"user_id": "grace"}, {"app_name": "another"}])
async def test_a_session_of_another_user_is_not_found(sessions: BaseSessionService, other: dict[str, str]) -> None:
    await sessions.create_session(**OF)
    assert await sessions.get_session(**{**OF, **other}) is None


async def test_sessions_are_listed_without_events_the_newest_last(sessions: BaseSessionService) -> None:
    first = await sessions.create_session(**USER, session_id="first", state={"n": 1})
    await sessions.create_session(**USER, session_id="second")
    await sessions.create_session(app_name="app", user_id="grace", session_id="third")
    await sessions.append_event(first, user_event("hi", timestamp=4e9))
    listed = (await sessions.list_sessions(**USER)).sessions
    assert [(one.id, one.events) for one in listed] == [("second", []), ("first", [])]
    assert listed[1].state == {"n": 1}
    everyone = (await sessions.list_sessions(app_name="app")).sessions
    assert [one.id for one in everyone] == ["second", "third", "first"]
    assert (await sessions.list_sessions(app_name="another")).sessions == []


async def test_a_deleted_session_is_gone_and_may_be_deleted_twice(sessions: BaseSessionService) -> None:
    await sessions.create_session(**OF)
    for _ in range(2):
        await sessions.delete_session(**OF)
        assert await sessions.get_session(**OF) is None
    assert (await sessions.list_sessions(**USER)).sessions == []


async def test_each_loaded_session_is_a_copy(sessions: BaseSessionService) -> None:
    await sessions.create_session(**OF, state={"list": [1]})
    first = await load(sessions)
    first.state["list"].append(2)
    first.events.append(user_event("hi"))
    second = await load(sessions)
    assert (second.state, second.events) == ({"list": [1]}, [])


# Events


async def test_an_appended_event_is_in_the_session_and_stored(sessions: BaseSessionService) -> None:
    session = await sessions.create_session(**OF)
    events = [user_event("1"), call_event("c", args={"n": 1.0}), response_event("c"), model_event("2")]
    for event in events:
        assert await sessions.append_event(session, event) is event
    assert session.events == (await load(sessions)).events == events
    assert (await load(sessions)).last_update_time == pytest.approx(events[-1].timestamp)


async def test_a_partial_event_is_returned_and_not_stored(sessions: BaseSessionService) -> None:
    session = await sessions.create_session(**OF)
    event = model_event("hal", partial=True, actions=EventActions(state_delta={"k": 1}))
    assert await sessions.append_event(session, event) is event
    assert (session.events, session.state) == ([], {})
    assert ((await load(sessions)).events, (await load(sessions)).state) == ([], {})


async def test_all_fields_of_an_event_come_back(sessions: BaseSessionService) -> None:
    session = await sessions.create_session(**OF)
    full_event = model_event(
        "Hello.",
        invocation_id="run",
        branch="root.bot",
        long_running_tool_ids={"c"},
        finish_reason=types.FinishReason.MAX_TOKENS,
        turn_complete=True,
        interrupted=False,
        custom_metadata={"k": {"n": 1.0}},
        model_version="m",
        usage_metadata=types.GenerateContentResponseUsageMetadata(prompt_token_count=1, total_token_count=2),
        citation_metadata=types.CitationMetadata(citations=[types.Citation(title="t", uri="https://example.com")]),
        grounding_metadata=types.GroundingMetadata(web_search_queries=["q"]),
        actions=EventActions(artifact_delta={"a.txt": 0}, transfer_to_agent="other", escalate=True),
    )
    signed = types.Part(text="Hm.", thought=True, thought_signature=b"\x00\xff")
    data = types.Part.from_bytes(data=b"\x89PNG" * 1000, mime_type="image/png")
    media = Event(author="bot", content=types.Content(role="model", parts=[signed, data, types.Part(text="See.")]))
    for event in (user_event("Hi"), full_event, media):
        await sessions.append_event(session, event)
    assert (await load(sessions)).events[1:] == [full_event, media]


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (GetSessionConfig(num_recent_events=2), ["3", "4"]),
        (GetSessionConfig(num_recent_events=0), []),
        (GetSessionConfig(num_recent_events=9), ["0", "1", "2", "3", "4"]),
        (GetSessionConfig(after_timestamp=3.0), ["3", "4"]),
        (GetSessionConfig(after_timestamp=9.0), []),
        (GetSessionConfig(after_timestamp=2.0, num_recent_events=1), ["4"]),
    ],
)
async def test_a_config_picks_events(
    sessions: BaseSessionService, config: GetSessionConfig, expected: list[str]
) -> None:
    session = await sessions.create_session(**OF)
    for n in range(5):
        await sessions.append_event(session, user_event(str(n), timestamp=float(n)))
    assert list_texts((await load(sessions, config=config)).events) == expected


async def test_an_event_for_a_session_never_created_raises(sessions: BaseSessionService) -> None:
    with pytest.raises(SessionNotFoundError):
        await sessions.append_event(Session(id="s", app_name="app", user_id="ada"), user_event("hi"))


async def test_an_event_for_a_deleted_session_raises(sessions: BaseSessionService) -> None:
    session = await sessions.create_session(**OF)
    await sessions.delete_session(**OF)
    with pytest.raises(SessionNotFoundError):
        await sessions.append_event(session, user_event("hi"))


# State


async def test_state_is_shared_by_its_scope(sessions: BaseSessionService) -> None:
    session = await sessions.create_session(**OF, state={"own": 1, "user:theirs": 2, "app:all": 3})
    delta = {"own": 4, "user:theirs": 5, "app:all": 6, "temp:now": 7}
    await sessions.append_event(session, user_event("hi", actions=EventActions(state_delta=delta)))
    assert session.state == delta
    assert (await load(sessions)).state == {"own": 4, "user:theirs": 5, "app:all": 6}
    same_user = await sessions.create_session(**USER, session_id="t")
    assert same_user.state == {"user:theirs": 5, "app:all": 6}
    other_user = await sessions.create_session(app_name="app", user_id="grace", session_id="u")
    assert other_user.state == {"app:all": 6}
    assert await sessions.get_user_state(**USER) == {"theirs": 5}
    assert await sessions.get_user_state(app_name="app", user_id="grace") == {}


async def test_temporary_state_is_not_in_the_stored_event(sessions: BaseSessionService) -> None:
    session = await sessions.create_session(**OF)
    await sessions.append_event(session, user_event("hi", actions=EventActions(state_delta={"temp:k": 1, "k": 2})))
    (event,) = (await load(sessions)).events
    assert event.actions.state_delta == {"k": 2}


@pytest.mark.parametrize("prefix", ["", "user:", "app:"])
@pytest.mark.parametrize("created", [True, False], ids=["created", "appended"])
async def test_state_comes_back_with_its_types(sessions: BaseSessionService, prefix: str, created: bool) -> None:
    state = {f"{prefix}{key}": copy.deepcopy(value) for key, value in VALUES.items()}
    session = await sessions.create_session(**OF, state=state if created else None)
    if not created:
        await sessions.append_event(session, user_event("hi", actions=EventActions(state_delta=state)))
    (listed,) = (await sessions.list_sessions(**USER)).sessions
    for found in (await load(sessions)).state, listed.state:
        assert types_of(found) == types_of(state)


# Artifacts


async def test_each_save_of_an_artifact_makes_a_version(artifacts: BaseArtifactService) -> None:
    parts = [types.Part(text="words"), types.Part.from_bytes(data=b"\x89", mime_type="image/png")]
    for number, part in enumerate(parts):
        assert await artifacts.save_artifact(**OF, filename="a", artifact=part) == number
        assert await artifacts.load_artifact(**OF, filename="a") == part
    assert await artifacts.load_artifact(**OF, filename="a", version=0) == parts[0]
    assert await artifacts.load_artifact(**OF, filename="a", version=2) is None
    assert await artifacts.load_artifact(**OF, filename="b") is None
    assert await artifacts.list_versions(**OF, filename="a") == [0, 1]
    assert await artifacts.list_versions(**OF, filename="b") == []


async def test_an_artifact_keeps_all_that_its_part_holds(artifacts: BaseArtifactService) -> None:
    blob = types.Blob(data=b"\x89", mime_type="image/png", display_name="A cat.png")
    file = types.FileData(file_uri="https://example.com/a.pdf", mime_type="application/pdf", display_name="A")
    for part in (types.Part(inline_data=blob), types.Part(file_data=file), types.Part(text="words")):
        await artifacts.save_artifact(**OF, filename="a", artifact=part)
        assert await artifacts.load_artifact(**OF, filename="a") == part
    given = {"inlineData": {"data": "iQ==", "mimeType": "image/png"}}
    await artifacts.save_artifact(**OF, filename="dict", artifact=given)
    loaded = await artifacts.load_artifact(**OF, filename="dict")
    assert loaded is not None
    assert loaded.inline_data == types.Blob(data=b"\x89", mime_type="image/png")


async def test_an_artifact_of_a_user_is_found_in_all_sessions(artifacts: BaseArtifactService) -> None:
    own, other = types.Part(text="own"), {**OF, "session_id": "t"}
    await artifacts.save_artifact(**OF, filename="own.txt", artifact=own)
    await artifacts.save_artifact(**OF, filename="user:shared.txt", artifact=own)
    assert await artifacts.load_artifact(**other, filename="own.txt") is None
    assert await artifacts.load_artifact(**other, filename="user:shared.txt") == own
    assert await artifacts.list_artifact_keys(**OF) == ["own.txt", "user:shared.txt"]
    assert await artifacts.list_artifact_keys(**other) == ["user:shared.txt"]
    assert await artifacts.list_artifact_keys(**USER) == ["user:shared.txt"]


async def test_a_deleted_artifact_loses_all_versions(artifacts: BaseArtifactService) -> None:
    for _ in range(2):
        await artifacts.save_artifact(**OF, filename="a", artifact=types.Part(text="words"))
    await artifacts.delete_artifact(**OF, filename="a")
    await artifacts.delete_artifact(**OF, filename="never there")
    assert await artifacts.list_versions(**OF, filename="a") == []
    assert await artifacts.list_artifact_keys(**OF) == []


async def test_versions_are_described(artifacts: BaseArtifactService) -> None:
    await artifacts.save_artifact(**OF, filename="a", artifact=types.Part(text="w"), custom_metadata={"by": "Ada"})
    await artifacts.save_artifact(**OF, filename="a", artifact=types.Part.from_bytes(data=b"\x89", mime_type="image/x"))
    first, second = await artifacts.list_artifact_versions(**OF, filename="a")
    assert (first.version, first.mime_type, first.custom_metadata) == (0, "text/plain", {"by": "Ada"})
    assert (second.version, second.mime_type, second.custom_metadata) == (1, "image/x", {})
    assert await artifacts.get_artifact_version(**OF, filename="a") == second
    assert await artifacts.get_artifact_version(**OF, filename="a", version=0) == first
    assert await artifacts.get_artifact_version(**OF, filename="b") is None


# Memory


async def test_memory_finds_sessions_of_the_user_and_app(services: Services) -> None:
    session = await services.sessions.create_session(**OF)
    for event in (user_event("My dog has the name Bello."), model_event("Noted.")):
        await services.sessions.append_event(session, event)
    await services.memory.add_session_to_memory(session)
    await services.memory.add_events_to_memory(**OF, events=[user_event("Tea with milk.")])
    for query, expected in (("bello", "My dog has the name Bello."), ("MILK", "Tea with milk.")):
        (entry,) = (await services.memory.search_memory(**USER, query=query)).memories
        assert [part.text for part in entry.content.parts or ()] == [expected]
        assert entry.author == "user"
        assert entry.timestamp
    for other in ({"app_name": "another"}, {"user_id": "grace"}):
        assert not (await services.memory.search_memory(**{**USER, **other}, query="bello")).memories
    assert not (await services.memory.search_memory(**USER, query="umbrella")).memories


# Differences from ADK


@pytest.fixture
def ours(database: FailingDatabase, tmp_path: Path) -> SessionService:
    return SessionService(database, TokenCounter(tmp_path), agent="bot")


async def test_an_event_that_is_appended_twice_is_there_once(ours: SessionService) -> None:
    session = await ours.create_session(**OF)
    event = user_event("hi", actions=EventActions(state_delta={"n": 1}))
    await ours.append_event(session, event)
    await ours.append_event(session, user_event("more", actions=EventActions(state_delta={"n": 2})))
    for loaded in (session, await load(ours)):
        await ours.append_event(loaded, event)
        assert list_texts(loaded.events) == ["hi", "more"]
        assert loaded.state == {"n": 2}
    assert list_texts((await load(ours)).events) == ["hi", "more"]
    assert (await load(ours)).state == {"n": 2}


async def test_a_session_id_is_unique_over_all_users(ours: SessionService) -> None:
    await ours.create_session(**OF)
    with pytest.raises(AlreadyExistsError):
        await ours.create_session(app_name="app", user_id="grace", session_id="s")


async def test_a_stale_session_may_append_and_all_events_are_kept(ours: SessionService) -> None:
    await ours.create_session(**OF)
    first, second = await load(ours), await load(ours)
    for session, text in ((first, "1"), (second, "2"), (first, "3")):
        await ours.append_event(session, user_event(text))
    assert list_texts((await load(ours)).events) == ["1", "2", "3"]


async def test_infinite_numbers_come_back_as_null(ours: SessionService) -> None:
    await ours.create_session(**OF, state={"n": float("inf")})
    assert (await load(ours)).state == {"n": None}


async def test_the_text_of_an_error_is_not_stored(ours: SessionService) -> None:
    session = await ours.create_session(**OF)
    await ours.append_event(session, Event(author="bot", error_code="X", error_message="secret"))
    (event,) = (await load(ours)).events
    assert (event.error_code, event.error_message) == ("X", None)


async def test_a_reference_to_an_artifact_is_not_resolved(database: FailingDatabase) -> None:
    artifacts = ArtifactService(database)
    await artifacts.save_artifact(**OF, filename="a", artifact=types.Part(text="w"))
    uri = "artifact://apps/app/users/ada/sessions/s/artifacts/a/versions/0"
    reference = types.Part(file_data=types.FileData(file_uri=uri))
    await artifacts.save_artifact(**OF, filename="b", artifact=reference)
    assert await artifacts.load_artifact(**OF, filename="b") == reference
