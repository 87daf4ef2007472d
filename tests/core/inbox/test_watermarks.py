import time
from dataclasses import replace

from core.inbox.store import InboxStore
from core.inbox.watermarks import Watermarks
from core.messages.inbox_message import InboxOutcome
from core.store.database import Database
from core.turns.queries import record_message
from tests.fixtures.inbox_messages import inbound

DAY_SECONDS = 86_400.0


async def test_each_platform_has_its_own_watermark(database: Database) -> None:
    places = Watermarks(database)
    assert await places.get_watermark("slack") is None
    await places.save_watermark("slack", 10.5)
    await places.save_watermark("discord", 20.0)
    await places.save_watermark("slack", 30.5)
    assert (await places.get_watermark("slack"), await places.get_watermark("discord")) == (30.5, 20.0)


async def test_active_places_are_listed_with_their_sessions_newest_first(database: Database, inbox: InboxStore) -> None:
    start = time.time()
    for age, session in enumerate(["slack:T:A:1", "slack:T:A:2", "slack:T:B:1", "slack:T:C:1", "slackish:T:D:1"], 1):
        for earlier in (5, 0):
            await inbox.accept(inbound(session=session, sent_at=time.time() - (age + earlier) * DAY_SECONDS))
    places = Watermarks(database)
    found = await places.list_active_places("slack", since=time.time() - 3.5 * DAY_SECONDS, limit=10)
    assert [(place.id, place.sessions) for place in found] == [
        ("slack:T:A", ("slack:T:A:1", "slack:T:A:2")),
        ("slack:T:B", ("slack:T:B:1",)),
        ("slack:T:C", ()),
    ]
    assert all(place.begun_at >= start for place in found)
    (newest,) = await places.list_active_places("slack", since=0.0, limit=1)
    assert (newest.id, newest.sessions) == ("slack:T:A", ("slack:T:A:1",))


async def test_accepted_keys_are_known_and_resets_are_listed_with_their_times(
    database: Database, inbox: InboxStore
) -> None:
    places, message = Watermarks(database), inbound()
    await inbox.accept(message)
    assert await places.find_known_keys([message.event_key, "another", *(str(n) for n in range(1_000))]) == {
        message.event_key
    }
    assert await places.get_cancellation_times([message.session_id]) == ({}, {})
    for at in (50.0, 40.0):
        await inbox.reset_session(replace(inbound("reset"), sent_at=at))
    assert await places.get_cancellation_times([message.session_id, "another"]) == ({message.session_id: 50.0}, {})


async def test_stops_are_listed_by_session_and_author(database: Database) -> None:
    places, message = Watermarks(database), inbound()
    async with database.write() as connection:
        for at, author in ((50.0, "grace"), (40.0, "grace"), (45.0, "ada")):
            stop = replace(message, event_key=f"stop:{at}", author=author, sent_at=at)
            await record_message(connection, stop, InboxOutcome.COMMAND, kind="stop")
        status = replace(message, event_key="status", sent_at=60.0)
        await record_message(connection, status, InboxOutcome.COMMAND, kind="status")
    resets, stops = await places.get_cancellation_times([message.session_id, "another"])
    assert resets == {}
    assert stops == {(message.session_id, "grace"): 50.0, (message.session_id, "ada"): 45.0}
