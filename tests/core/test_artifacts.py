"""The files that tools make, on both databases."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions
from google.genai import types

from core.artifacts import Artifacts, Made
from core.errors import SessionResetError
from core.events import StreamEvent
from core.sessions.reopening import correction_of, rewind
from core.sessions.service import SessionService
from core.steps import Steps
from core.tokens import TokenCounter
from tests.core.conftest import Faulty

PNG = types.Part.from_bytes(data=b"pixels", mime_type="image/png")
OF: Mapping[str, Any] = {"app_name": "app", "user_id": "place", "session_id": "s"}


@pytest.fixture
async def service(database: Faulty, tmp_path: Path) -> SessionService:
    service = SessionService(database, TokenCounter(tmp_path))
    for session in ("s", "other"):
        await service.create_session(app_name="app", user_id="place", session_id=session)
    return service


async def test_each_version_of_a_file_is_kept_for_its_session_or_its_user(
    database: Faulty, service: SessionService
) -> None:
    kept, other = Artifacts(database), {**OF, "session_id": "other"}
    assert await kept.save_artifact(**OF, filename="a.png", artifact=PNG, custom_metadata={"alt": "A cat"}) == 0
    assert await kept.save_artifact(**OF, filename="a.png", artifact=types.Part(text="words")) == 1
    assert await kept.save_artifact(**OF, filename="user:me.png", artifact=PNG) == 0
    assert await kept.load_artifact(**OF, filename="a.png", version=0) == PNG
    assert await kept.load_artifact(**OF, filename="a.png") == types.Part(text="words")
    assert await kept.load_artifact(**OF, filename="a.png", version=7) is None
    assert await kept.load_artifact(**other, filename="a.png") is None
    assert await kept.load_artifact(**other, filename="user:me.png") == PNG
    assert await kept.list_artifact_keys(**OF) == ["a.png", "user:me.png"]
    assert await kept.list_artifact_keys(**other) == ["user:me.png"]
    assert await kept.list_versions(**OF, filename="a.png") == [0, 1]
    first, second = await kept.list_artifact_versions(**OF, filename="a.png")
    assert (first.custom_metadata, first.mime_type, second.mime_type) == ({"alt": "A cat"}, "image/png", "text/plain")
    assert await kept.get_artifact_version(**OF, filename="a.png") == second
    await kept.delete_artifact(**OF, filename="a.png")
    assert await kept.list_artifact_keys(**OF) == ["user:me.png"]


async def test_what_a_run_has_made_is_the_newest_of_each_name_and_goes_when_it_runs_anew(
    database: Faulty, service: SessionService
) -> None:
    run, again = (Artifacts(database).of(id_, 1) for id_ in ("r", correction_of("r")))
    await Artifacts(database).of("another", 1).save_artifact(**OF, filename="b.txt", artifact=types.Part(text="b"))
    await run.save_artifact(**OF, filename="a.txt", artifact=types.Part(text="draft"))
    await run.save_artifact(**OF, filename="charts/c.png", artifact=PNG, custom_metadata={"alt": "A cat"})
    await again.save_artifact(**OF, filename="a.txt", artifact=types.Part(text="final"))
    assert await run.made("s", "r") == [
        Made("c.png", b"pixels", "image/png", "A cat"),
        Made("a.txt", b"final", "text/plain"),
    ]
    async with database.write() as connection:
        await rewind(connection, "s", "r", keeps_question=True)
    assert await run.made("s", "r") == []
    assert await run.list_artifact_keys(**OF) == ["b.txt"]


async def test_nothing_is_saved_for_a_conversation_that_was_started_over(
    database: Faulty, service: SessionService
) -> None:
    run = Artifacts(database).of("r", 1)
    await run.save_artifact(**OF, filename="a.png", artifact=PNG)
    await run.save_artifact(**OF, filename="user:me.png", artifact=PNG)
    await service.reset("s")
    assert await run.list_artifact_keys(**OF) == ["user:me.png"]
    with pytest.raises(SessionResetError):
        await run.save_artifact(**OF, filename="a.png", artifact=PNG)
    await run.of("r", 2).save_artifact(**OF, filename="a.png", artifact=PNG)
    await service.delete_session(**OF)
    assert await run.list_artifact_keys(**OF) == ["user:me.png"]


def test_a_run_tells_of_each_file_that_it_makes() -> None:
    event = Event(author="agent", actions=EventActions(artifact_delta={"a.png": 0, "b.txt": 2}))
    assert list(Steps().take(event)) == [
        StreamEvent("file", data={"name": "a.png", "version": 0}),
        StreamEvent("file", data={"name": "b.txt", "version": 2}),
    ]
