"""Artifact service on SQLite and PostgreSQL."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions
from google.genai import types

from core.agents.event_mapper import EventMapper
from core.agents.events import StreamEvent
from core.errors import SessionResetError, TurnLostError
from core.models.tokens import TokenCounter
from core.sessions.artifacts import ArtifactService, GeneratedFile
from core.sessions.resume import correction_run_id, discard_run
from core.sessions.service import SessionService
from core.store.schema import turns
from core.store.workers.fencing import FencingToken
from tests.core.conftest import FailingDatabase
from tests.core.sessions.events import reset_session

PIXELS = b"\x89PNG\r\n\x1a\npixels"
PNG = types.Part.from_bytes(data=PIXELS, mime_type="image/png")
TURN = {"session": "s", "generation": 1, "state": "done", "owner": "w", "chunks": [], "created_at": 1.0}
OF: Mapping[str, Any] = {"app_name": "app", "user_id": "place", "session_id": "s"}


@pytest.fixture
async def service(database: FailingDatabase, tmp_path: Path) -> SessionService:
    service = SessionService(database, TokenCounter(tmp_path))
    for session in ("s", "other"):
        await service.create_session(app_name="app", user_id="place", session_id=session)
    return service


async def test_files_of_a_run_are_the_newest_of_each_name_and_a_rerun_deletes_them(
    database: FailingDatabase, service: SessionService
) -> None:
    for turn in ("t", "u"):
        async with database.write() as connection:
            await connection.execute(sa.insert(turns).values({**TURN, "id": turn, "origin": turn}))
    fence = FencingToken("t", "w", 1)
    run, correction = (ArtifactService(database).bind_run(id_, 1, fence) for id_ in ("r", correction_run_id("r")))
    await (
        ArtifactService(database)
        .bind_run("another", 1)
        .save_artifact(**OF, filename="b.txt", artifact=types.Part(text="b"))
    )
    await run.save_artifact(**OF, filename="a.txt", artifact=types.Part(text="draft"))
    await run.save_artifact(**OF, filename="charts/c.png", artifact=PNG, custom_metadata={"alt": "A cat"})
    await correction.save_artifact(**OF, filename="a.txt", artifact=types.Part(text="final"))
    assert await run.list_generated_files("s", "t") == [
        GeneratedFile("c.png", PIXELS, "image/png", "A cat"),
        GeneratedFile("a.txt", b"final", "text/plain"),
    ]
    resumed = ArtifactService(database).bind_run("r", 1, FencingToken("u", "w", 1))  # a resumed run after a decision
    await resumed.save_artifact(**OF, filename="d.txt", artifact=types.Part(text="d"))
    assert [made.name for made in await run.list_generated_files("s", "u")] == ["d.txt"]
    assert len(await run.list_generated_files("s", "t")) == 2
    async with database.write() as connection:
        await discard_run(connection, "s", "r", keep_prompt=True)
    assert await run.list_generated_files("s", "t") == []
    assert await run.list_artifact_keys(**OF) == ["b.txt"]


async def test_no_file_is_saved_for_a_reset_session(database: FailingDatabase, service: SessionService) -> None:
    run = ArtifactService(database).bind_run("r", 1)
    await run.save_artifact(**OF, filename="a.png", artifact=PNG)
    await run.save_artifact(**OF, filename="user:me.png", artifact=PNG)
    await reset_session(service, "s")
    assert await run.list_artifact_keys(**OF) == ["user:me.png"]
    with pytest.raises(SessionResetError):
        await run.save_artifact(**OF, filename="a.png", artifact=PNG)
    await run.bind_run("r", 2).save_artifact(**OF, filename="a.png", artifact=PNG)
    await service.delete_session(**OF)
    assert await run.list_artifact_keys(**OF) == ["user:me.png"]


async def test_a_turn_that_another_worker_has_neither_saves_nor_deletes_a_file(
    database: FailingDatabase, service: SessionService
) -> None:
    async with database.write() as connection:
        await connection.execute(sa.insert(turns).values({**TURN, "id": "t", "origin": "t"}))
    own, fenced = (ArtifactService(database).bind_run("r", 1, FencingToken("t", "w", attempt)) for attempt in (1, 0))
    for name in ("a.png", "user:me.png"):
        await own.save_artifact(**OF, filename=name, artifact=PNG)
        with pytest.raises(TurnLostError):
            await fenced.save_artifact(**OF, filename=name, artifact=PNG)
        with pytest.raises(TurnLostError):
            await fenced.delete_artifact(**OF, filename=name)
        assert await own.list_versions(**OF, filename=name) == [0]


def test_a_run_tells_of_each_file_that_it_makes() -> None:
    event = Event(author="agent", actions=EventActions(artifact_delta={"a.png": 0, "b.txt": 2}))
    assert list(EventMapper().map_event(event)) == [
        StreamEvent("file", data={"name": "a.png", "version": 0}),
        StreamEvent("file", data={"name": "b.txt", "version": 2}),
    ]
