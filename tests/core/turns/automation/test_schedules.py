"""Store of schedules: creation, firing, changes, limits."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from core.errors import ScheduleError, SessionResetError
from core.messages.identity import Actor
from core.messages.inbox_message import InboxMessage
from core.sessions.lifecycle import begin_generation, new_session_row
from core.store.schema import inbox, schedules, sessions
from core.turns.automation import schedules as store_module
from core.turns.automation.schedules import Schedule, ScheduleDenial, ScheduleStore, create_user_key
from tests.core.conftest import FailingDatabase

SESSION = "slack:T1:C1:1.0"


@pytest.fixture
async def store(database: FailingDatabase) -> ScheduleStore:
    async with database.write() as connection:
        await connection.execute(sa.insert(sessions).values(new_session_row(SESSION, "app", "slack:T1:C1")))
    return create_store(database)


def create_store(database: FailingDatabase, **limits: Any) -> ScheduleStore:
    return ScheduleStore(database, wake=lambda: None, **limits)


def create_message(text: str = "water the plants", author: str = "U1") -> InboxMessage:
    address = {"team": "T1", "channel": "C1", "thread_ts": "1.0", "ts": "1.0", "speaker": "Ada", "user": author}
    return InboxMessage(f"slack:{author}", SESSION, "slack:T1:C1", "slack", address, author, text, time.time())


def create_schedule(id_: str = "a1", *, seconds: float = 3600, **changes: Any) -> Schedule:
    """Return an active schedule of the first person, due once in some seconds."""
    starts_at = datetime.fromtimestamp(time.time() + seconds, UTC).isoformat()
    once = Schedule(
        id_, create_message(), False, False, starts_at, "Europe/Berlin", None, None, "active", (), "turn1", time.time()
    )
    return replace(once, **changes)


def create_actor(author: str = "U1") -> Actor:
    return Actor("slack", author)


async def list_entries(database: FailingDatabase) -> Sequence[sa.Row[Any]]:
    async with database.read() as connection:
        return (await connection.execute(sa.select(inbox).order_by(inbox.c.id))).all()


async def set_next_at(database: FailingDatabase, next_at: float) -> None:
    async with database.write() as connection:
        await connection.execute(sa.update(schedules).values(next_at=next_at))


async def test_a_schedule_is_created_once_by_its_id(store: ScheduleStore) -> None:
    first = await store.create(create_schedule(), 1)
    again = await store.create(create_schedule(seconds=7200), 1)
    assert again == first
    assert first.next_at is not None
    assert await store.list_of_person("slack", "U1") == [first]
    assert await store.list_of_turn("turn1") == [first]


async def test_a_schedule_fires_once_and_ends(store: ScheduleStore, database: FailingDatabase) -> None:
    await store.create(create_schedule(), 1)
    due = time.time() - 1
    await set_next_at(database, due)
    assert await store.fire_due() == store_module.POLL_SECONDS
    await store.fire_due()
    (entry,) = await list_entries(database)
    assert (entry.kind, entry.outcome, entry.event_key) == ("schedule", "pending", f"schedule:a1:{int(due)}")
    message = InboxMessage.from_json(entry.message)
    assert message.trigger is not None
    assert message.trigger.title == "water the plants"
    assert message.text.endswith("Do it now; do not schedule it again.]\nwater the plants")
    assert "late" not in message.text
    assert await store.list_all() == []


async def test_a_turn_that_continues_after_a_crash_does_not_repeat_what_has_fired(
    store: ScheduleStore, database: FailingDatabase
) -> None:
    await store.create(create_schedule(), 1)
    await set_next_at(database, time.time() - 1)
    await store.fire_due()
    await store.create(create_schedule(), 1)
    assert await store.list_all() == []


async def test_two_workers_fire_a_schedule_once(store: ScheduleStore, database: FailingDatabase) -> None:
    other = create_store(database)
    for number in range(20):
        await store.create(create_schedule(f"a{number}", rule="FREQ=DAILY"), 1)
    due = time.time() - 1
    await set_next_at(database, due)
    await asyncio.gather(store.fire_due(), other.fire_due(), store.fire_due())
    entries = await list_entries(database)
    assert len(entries) == len({entry.event_key for entry in entries}) == 20
    assert all(each.next_at is not None and each.next_at > due for each in await store.list_all())


async def test_what_a_downtime_missed_fires_once_and_says_so(store: ScheduleStore, database: FailingDatabase) -> None:
    start = datetime.now(UTC) - timedelta(days=3)
    await store.create(create_schedule(rule="FREQ=HOURLY", starts_at=start.isoformat()), 1)
    await set_next_at(database, start.timestamp() + 3600)
    await store.fire_due()
    await store.fire_due()
    (entry,) = await list_entries(database)
    assert ", and late: it is " in entry.message["text"]
    (repeated,) = await store.list_all()
    assert repeated.next_at is not None
    assert 0 < repeated.next_at - time.time() <= 3600 + 300


async def test_a_frequent_schedule_keeps_its_times(store: ScheduleStore, database: FailingDatabase) -> None:
    start = datetime.now(UTC) - timedelta(minutes=5, seconds=10)
    await store.create(create_schedule(rule="FREQ=MINUTELY;INTERVAL=5", starts_at=start.isoformat()), 1)
    await set_next_at(database, start.timestamp() + 300)
    await store.fire_due()
    (moved,) = await store.list_all()
    assert moved.next_at == pytest.approx(start.timestamp() + 600, abs=1)


async def test_a_clock_that_jumps_back_fires_nothing_twice(
    store: ScheduleStore, database: FailingDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.create(create_schedule(rule="FREQ=HOURLY"), 1)
    (created,) = await store.list_all()
    assert created.next_at is not None
    for at in (created.next_at + 1, created.next_at - 3000, created.next_at + 2):
        monkeypatch.setattr(time, "time", lambda at=at: at)
        await store.fire_due()
    assert len(await list_entries(database)) == 1


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"seconds": -60}, "has passed"),
        ({"seconds": 6 * 366 * 86_400}, "five years"),
        ({"rule": "FREQ=MINUTELY"}, "too often"),
        ({"rule": "FREQ=DAILY;UNTIL=20200101"}, "never due|has passed"),
        ({"time_zone": "Mars/Base"}, "no time zone"),
    ],
)
async def test_an_impossible_schedule_is_refused(store: ScheduleStore, changes: dict[str, Any], fault: str) -> None:
    with pytest.raises(ScheduleError, match=fault):
        await store.create(create_schedule(**changes), 1)
    assert await store.list_all() == []


async def test_a_person_has_at_most_as_many_as_the_limit(store: ScheduleStore, database: FailingDatabase) -> None:
    small = create_store(database, limit=3)
    created = await asyncio.gather(
        *(small.create(create_schedule(f"a{n}"), 1) for n in range(5)), return_exceptions=True
    )
    assert sum(isinstance(each, ScheduleError) for each in created) == 2
    await small.create(create_schedule("b1", message=create_message(author="U2")), 1)


async def test_a_reset_ends_schedules_and_refuses_later_ones(store: ScheduleStore, database: FailingDatabase) -> None:
    await store.create(create_schedule(), 1)
    async with database.write() as connection:
        await begin_generation(connection, SESSION)
    assert await store.list_all() == []
    with pytest.raises(SessionResetError):
        await store.create(create_schedule(), 1)


async def test_a_paused_schedule_does_not_fire(store: ScheduleStore, database: FailingDatabase) -> None:
    await store.create(create_schedule(rule="FREQ=DAILY"), 1)
    assert await store.pause("a1", "U2") is ScheduleDenial.NOT_OWNER
    paused = await store.pause("a1", "U1")
    assert isinstance(paused, Schedule)
    assert await store.pause("a1", "U1") is ScheduleDenial.GONE
    await store.fire_due()
    assert await list_entries(database) == []
    assert await store.resume("a1", "U2") is ScheduleDenial.NOT_OWNER
    resumed = await store.resume("a1", "U1")
    assert isinstance(resumed, Schedule)
    assert resumed.next_at is not None
    assert await store.delete("a1", "U2") is ScheduleDenial.NOT_OWNER
    assert await store.delete("a1", "U1") == resumed
    assert await store.resume("a1", "U1") is ScheduleDenial.GONE


async def test_a_schedule_whose_time_passed_meanwhile_is_not_resumed(
    store: ScheduleStore, database: FailingDatabase
) -> None:
    await store.create(create_schedule(), 1)
    await store.pause("a1", "U1")
    async with database.write() as connection:
        await connection.execute(sa.update(schedules).values(starts_at="2020-01-01T00:00+00:00"))
    assert await store.resume("a1", "U1") is ScheduleDenial.PAST


async def test_a_proposal_becomes_that_of_the_person_who_confirms_it(store: ScheduleStore) -> None:
    await store.create(create_schedule(state="proposed", speakers=("U1", "U2")), 1)
    await store.fire_due()
    assert await store.confirm("a1", create_actor("U3"), "Eve") is ScheduleDenial.NOT_OWNER
    confirmed = await store.confirm("a1", create_actor("U2"), "Grace")
    assert isinstance(confirmed, Schedule)
    assert confirmed.next_at is not None
    assert confirmed.message.author == "U2"
    assert confirmed.message.address["speaker"] == "Grace"
    assert confirmed.message.address["user"] == "U2"
    assert await store.confirm("a1", create_actor("U1"), "Ada") is ScheduleDenial.GONE
    assert await store.list_of_person("slack", "U1") == []


async def test_a_time_zone_activates_what_waits_for_it_only(store: ScheduleStore) -> None:
    naive = (datetime.now() + timedelta(days=2)).isoformat(timespec="minutes")
    waiting: dict[str, Any] = {"state": "proposed", "time_zone": None, "starts_at": naive}
    await store.create(create_schedule("a1", **waiting), 1)
    await store.create(create_schedule("a2", **waiting, rule="FREQ=WEEKLY;COUNT=2"), 1)
    await store.create(create_schedule("a3", **waiting, speakers=("U1",)), 1)
    assert await store.confirm("a1", create_actor(), "Ada") is ScheduleDenial.NEEDS_ZONE
    activated = await store.choose_time_zone("Asia/Tokyo", create_actor(), "Ada")
    assert sorted(each.id for each in activated) == ["a1", "a2"]
    assert {each.time_zone for each in activated} == {"Asia/Tokyo"}
    assert await store.get_time_zone(create_user_key(create_actor())) == "Asia/Tokyo"
    (last,) = await store.choose_time_zone("Asia/Tokyo", create_actor(), "Ada", "a3")
    assert last.id == "a3"


async def test_a_proposal_that_nobody_confirms_is_deleted(store: ScheduleStore, database: FailingDatabase) -> None:
    await store.create(create_schedule("a1", state="proposed", created_at=time.time() - 90_000), 1)
    await store.create(create_schedule("a2", state="proposed"), 1)
    firing = asyncio.create_task(store.run_firing())
    async with asyncio.timeout(10):
        while [each.id for each in await store.list_all()] != ["a2"]:  # noqa: ASYNC110 - the store sends no event
            await asyncio.sleep(0.01)
    firing.cancel()


async def test_a_new_schedule_wakes_the_loop(store: ScheduleStore, database: FailingDatabase) -> None:
    firing = asyncio.create_task(store.run_firing())
    await asyncio.sleep(0.1)
    await store.create(create_schedule(seconds=0.3), 1)
    async with asyncio.timeout(10):
        while not await list_entries(database):  # noqa: ASYNC110 - the store sends no event
            await asyncio.sleep(0.02)
    firing.cancel()


async def test_an_unreadable_schedule_ends_and_the_others_fire(store: ScheduleStore, database: FailingDatabase) -> None:
    await store.create(create_schedule("a1"), 1)
    await store.create(create_schedule("a2"), 1)
    async with database.write() as connection:
        await connection.execute(sa.update(schedules).where(schedules.c.id == "a1").values(message={"odd": 1}))
    await set_next_at(database, time.time() - 1)
    await store.fire_due()
    (entry,) = await list_entries(database)
    assert entry.event_key.startswith("schedule:a2:")
    assert await store.list_all() == []


async def test_a_worker_that_dies_at_any_step_fires_a_schedule_once(
    store: ScheduleStore, database: FailingDatabase
) -> None:
    other = create_store(database)
    await store.create(create_schedule(rule="FREQ=HOURLY"), 1)
    for steps in range(40):
        await set_next_at(database, 1_000.0 + steps)
        dying = asyncio.create_task(store.fire_due())
        surviving = asyncio.create_task(other.fire_due())
        for _ in range(steps):
            await asyncio.sleep(0.0005)
        dying.cancel()
        await asyncio.wait([dying, surviving])
        surviving.result()
        await other.fire_due()
        assert len(await list_entries(database)) == steps + 1
        (moved,) = await store.list_all()
        assert moved.next_at is not None
        assert moved.next_at > time.time()
