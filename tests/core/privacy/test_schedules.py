"""Schedules in exports, deletions and retention."""

import json
import time
from dataclasses import replace

import pytest
import sqlalchemy as sa

from core.inbox.store import InboxStore
from core.messages.identity import Actor
from core.privacy.deletion import DeletionRequest, DeletionService
from core.privacy.export import ExportFormat, ExportViewer, stream_export
from core.privacy.known_users import find_users
from core.sessions.service import SessionService
from core.store.schema import inbox, messages, schedules, sessions, time_zones
from core.turns.automation.schedules import Schedule, ScheduleStore
from core.turns.store import TurnStore
from core.usage.prices import Prices
from tests.core.conftest import FailingDatabase, complete_turn
from tests.fixtures.inbox_messages import inbound

SESSION = "place:1"


@pytest.fixture
async def store(
    database: FailingDatabase, inbox: InboxStore, turns: TurnStore, service: SessionService
) -> ScheduleStore:
    """Return a store with a schedule of Ada and one of Bob in a session with messages of both."""
    for author in ("ada", "bob"):
        await inbox.accept(inbound("hello", session=SESSION, author=author))
        (turn,) = await turns.claim(1)
        await complete_turn(turns, turn)
    store = ScheduleStore(database, wake=lambda: None)
    for author, text in (("ada", "water the plants"), ("bob", "ask Ada Lovelace about it")):
        message = inbound(text, session=SESSION, author=author)
        message = replace(message, address={"speaker": {"ada": "Ada Lovelace", "bob": "Bob"}[author]})
        starts_at = "2030-01-01T09:00"
        await store.create(
            Schedule(
                f"id-{author}", message, False, False, starts_at, "UTC", "FREQ=DAILY", None, "active", (), "t", 1.0
            ),
            1,
        )
        await store.choose_time_zone("Asia/Tokyo", Actor("test", author), author)
    return store


async def test_forgetting_a_person_deletes_their_schedules_and_redacts_the_others(
    store: ScheduleStore, database: FailingDatabase
) -> None:
    service = DeletionService(database, Prices())
    assert (await service.preview(DeletionRequest(user_id="ada"))).records == 2
    await service.delete(DeletionRequest(user_id="ada"))
    (kept,) = await store.list_all()
    assert kept.id == "id-bob"
    assert kept.state == "active"
    assert "Lovelace" not in kept.message.text
    async with database.read() as connection:
        assert (await connection.execute(sa.select(time_zones.c.user_key))).scalars().all() == ["test:bob"]
        assert [user.id for user in await find_users(connection, "Ada Lovelace")] == []


async def test_a_person_with_only_a_schedule_is_known(store: ScheduleStore, database: FailingDatabase) -> None:
    async with database.write() as connection:
        await connection.execute(sa.update(inbox).values(author="", message=None))
    async with database.read() as connection:
        (user,) = await find_users(connection, "Lovelace")
    assert (user.id, user.names) == ("ada", ("Ada Lovelace",))


async def test_retention_keeps_an_open_schedule(store: ScheduleStore, database: FailingDatabase) -> None:
    service = DeletionService(database, Prices())
    async with database.write() as connection:
        await connection.execute(sa.update(sessions).values(updated_at=1.0))
        await connection.execute(sa.update(inbox).values(sent_at=1.0))
    await service.delete(DeletionRequest(before=time.time()))
    assert len(await store.list_all()) == 2
    async with database.write() as connection:
        await connection.execute(sa.delete(schedules))
    result = await service.delete(DeletionRequest(before=time.time()))
    assert result.conversations == 1


async def test_deleting_a_session_deletes_its_schedules(store: ScheduleStore, database: FailingDatabase) -> None:
    await DeletionService(database, Prices()).delete(DeletionRequest(session_id=SESSION))
    assert await store.list_all() == []


async def export(database: FailingDatabase, format_: ExportFormat, viewer: ExportViewer | None = None) -> str:
    pieces = stream_export(database, SESSION, format_, Prices(), viewer=viewer)
    return "".join([piece async for piece in pieces])


async def test_an_export_has_the_schedules_of_its_reader(store: ScheduleStore, database: FailingDatabase) -> None:
    message = {"session": SESSION, "generation": 1, "role": "user", "author": "user", "content": "hello"}
    message |= {"created_at": 1.0, "tool_calls": [], "invocation_id": "run", "tokens": 1}
    async with database.write() as connection:
        await connection.execute(sa.insert(messages).values(message))
    everything = json.loads(await export(database, "json"))["schedules"]
    assert [schedule["text"] for schedule in everything] == ["water the plants", "ask Ada Lovelace about it"]
    assert everything[0]["next_at"].startswith("2030-01-01T09:00")
    ada = ExportViewer("ada", is_admin=False, is_private=True)
    own = json.loads(await export(database, "json", ada))["schedules"]
    assert [schedule["id"] for schedule in own] == ["id-ada"]
    listed = "## Schedules\n\n- 2030-01-01 09:00:00 UTC, repeated by `FREQ=DAILY`: `water the plants`"
    assert listed in await export(database, "md")
