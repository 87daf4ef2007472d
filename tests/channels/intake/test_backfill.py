"""Backfill, storing in order, and the watermark before all unstored messages."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from tenacity.wait import wait_fixed, wait_none

from channels.intake import backfill
from channels.intake.backfill import Backfill, filter_missing
from channels.intake.incoming import EDIT_MENTION_WINDOW_SECONDS, Incoming, IncomingChange, IncomingMessage
from channels.settings import BackfillLimits
from core.concurrency import retry
from core.errors import StoreError
from core.inbox.watermarks import ActivePlace, Watermarks
from core.messages.inbox_message import InboxOutcome
from core.store.database import Database
from core.store.schema import sessions
from core.turns.queries import record_message
from tests.channels.wiring import wait_until
from tests.fixtures import empty_databases as tables
from tests.fixtures.inbox_messages import inbound

PLACE, SESSION = "test:place", "test:place:1"


@pytest.fixture
async def watermarks(tmp_path: Path) -> AsyncIterator[Watermarks]:
    database = Database(f"sqlite+aiosqlite:///{tmp_path / 'parley.db'}")
    await tables.create_tables(database)
    yield Watermarks(database)
    await database.aclose()


class FaultyPlatform:
    """Platform with a message history, and a store that can fail.

    Attributes:
        heard_at: the time of the platform's last event.
        stored: the stored texts.
        gaps: the start of each fetched gap.
        fetched: the places of each fetch.
        history: the messages that a fetch finds.
        is_down: whether the database fails; failures: the number of further failures while it is up.
        is_stuck: whether all fetches hang; stuck_at: a place whose fetch hangs.
        closed_at: prefix of the places that cannot be fetched; closed: the number of their tries.
        gate: the event that fetches wait for.
        refused: texts that the database always rejects; broken: texts that raise an unknown error.
    """

    def __init__(self, watermarks: Watermarks, bounds: BackfillLimits) -> None:
        self.heard_at = 0.0
        self.stored: list[str] = []
        self.gaps: list[float] = []
        self.fetched: list[str] = []
        self.history: list[IncomingMessage] = []
        self.is_down = self.is_stuck = False
        self.failures = 0
        self.gate = asyncio.Event()
        self.gate.set()
        self.refused: set[str] = set()
        self.broken: set[str] = set()
        self.stuck_at = self.closed_at = ""
        self.closed = 0
        self.backfill = Backfill(
            "test",
            watermarks,
            bounds,
            store=self._store,
            create_fetch=self._create_fetch,
            delays_new_messages=True,
        )

    @property
    def watermark(self) -> float | None:
        return self.backfill._watermark

    @property
    def is_open(self) -> bool:
        return self.backfill._gap is not None

    async def connect(self) -> None:
        """Return at once: the platform is always connected."""

    async def start(self, connect: Callable[[], Awaitable[None]] | None = None) -> None:
        await self.backfill.start(connect or self.connect, lambda: self.heard_at)

    async def fail_to_receive(self, *calls: Incoming) -> None:
        """Receive messages while the database is down; each must raise `StoreError`."""
        was_down, self.is_down = self.is_down, True
        for call in calls:
            with pytest.raises(StoreError):
                await self.backfill.receive(call)
        self.is_down = was_down

    async def _store(self, call: Incoming) -> None:
        if call.inbound.text in self.refused:
            refusal = StoreError("what it says cannot be stored")
            refusal.retryable = False
            raise refusal
        if call.inbound.text in self.broken:
            raise ValueError(call.inbound.text)
        if self.is_down or self.failures:
            self.failures = max(0, self.failures - 1)
            raise StoreError("out of reach")
        self.stored.append(call.inbound.text if isinstance(call, IncomingMessage) else f"edit: {call.text}")

    def _create_fetch(self, since: float) -> Callable[[ActivePlace], Awaitable[list[IncomingMessage]]]:
        self.gaps.append(since)

        async def fetch(place: ActivePlace) -> list[IncomingMessage]:
            self.fetched.append(place.id)
            if self.is_stuck or place.id == self.stuck_at:
                await asyncio.sleep(60)
            if self.closed_at and place.id.startswith(self.closed_at):
                self.closed += 1
                raise TimeoutError
            await self.gate.wait()
            return [call for call in self.history if call.inbound.place == place.id]

        return fetch


@asynccontextmanager
async def run_platform(watermarks: Watermarks, *, hours: float = 1e9) -> AsyncIterator[FaultyPlatform]:
    platform = FaultyPlatform(watermarks, BackfillLimits(hours=hours))
    await platform.start()
    yield platform
    await platform.backfill.stop()


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backfill, "FETCH_WAIT", wait_fixed(0.01))
    monkeypatch.setattr(backfill, "STORE_WAIT", wait_fixed(0.01))
    monkeypatch.setattr(backfill, "WATERMARK_SECONDS", 0.01)


def create_mention(text: str, at: float, place: str = PLACE) -> IncomingMessage:
    return IncomingMessage(inbound(text, session=f"{place}:1", sent_at=at), is_mention=True)


async def add_session(watermarks: Watermarks, place: str = PLACE) -> float:
    """Insert a session of a place into the database.

    Returns:
        A time (Unix seconds) after its creation and before now, as the start of a gap.
    """
    now = time.time()
    row = {"id": f"{place}:1", "app": "app", "user_id": place, "created_at": now - 100, "updated_at": now - 100}
    async with watermarks._database.write() as connection:
        await connection.execute(sa.insert(sessions).values(row))
    return now - 50


# Watermark


async def test_the_watermark_is_stored_on_change_and_not_before_the_first_event(
    watermarks: Watermarks, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes, keep = list[float](), Watermarks.save_watermark

    async def count_saves(self: Watermarks, name: str, at: float) -> None:
        await keep(self, name, at)
        notes.append(at)

    monkeypatch.setattr(Watermarks, "save_watermark", count_saves)
    async with run_platform(watermarks) as platform:
        await asyncio.sleep(0.05)
        assert notes == []
        for at in (100.0, 200.0):
            platform.heard_at = at
            await wait_until(lambda at=at: notes[-1:] == [at])  # type: ignore[misc]
            await asyncio.sleep(0.05)
        platform.heard_at = 300.0
    assert notes == [100.0, 200.0, 300.0]
    assert await watermarks.get_watermark("test") == 300.0
    async with run_platform(watermarks) as platform:
        await wait_until(lambda: platform.gaps == [300.0 - backfill.OVERLAP_SECONDS - EDIT_MENTION_WINDOW_SECONDS])


async def test_the_watermark_precedes_all_messages_that_are_not_stored(watermarks: Watermarks) -> None:
    async with run_platform(watermarks) as platform:
        now = time.time()
        platform.is_down = True
        await platform.fail_to_receive(
            create_mention("second", now - 40), create_mention("first", now - 50), create_mention("second", now - 40)
        )
        platform.heard_at = now
        await wait_until(lambda: platform.watermark == now - 50)
        platform.is_down = False
        await wait_until(lambda: platform.watermark == now)
        assert platform.stored[0] == "first"
        assert platform.gaps == []


async def test_a_process_that_ends_early_leaves_the_watermark_unchanged(
    watermarks: Watermarks, monkeypatch: pytest.MonkeyPatch
) -> None:
    await watermarks.save_watermark("test", 50.0)

    async def hang(_part: str) -> float:
        await asyncio.sleep(60)
        return 0.0

    with monkeypatch.context() as hanging:
        hanging.setattr(watermarks, "get_watermark", hang)
        platform = FaultyPlatform(watermarks, BackfillLimits())
        platform.heard_at = 100.0
        starting = asyncio.create_task(platform.start())
        await asyncio.sleep(0)
        starting.cancel()
        await asyncio.wait([starting])
        await platform.backfill.stop()
    assert await watermarks.get_watermark("test") == 50.0


async def test_a_short_database_outage_at_startup_is_retried(
    watermarks: Watermarks, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard_at, failures = watermarks.get_watermark, iter(range(8))

    async def fail_at_first(part: str) -> float | None:
        if next(failures, None) is not None:
            raise StoreError("out of reach")
        return await heard_at(part)

    platform = FaultyPlatform(watermarks, BackfillLimits())
    monkeypatch.setattr(watermarks, "get_watermark", fail_at_first)
    monkeypatch.setattr(retry, "RETRY_WAIT", wait_none())
    await platform.start()
    await platform.backfill.stop()


async def test_a_shutdown_cancels_a_backfill_and_the_next_process_repeats_it(watermarks: Watermarks) -> None:
    await add_session(watermarks)
    async with run_platform(watermarks) as platform:
        platform.is_stuck, platform.heard_at = True, 100.0
        platform.backfill.open_gap(50.0)
        await wait_until(lambda: platform.fetched)
    assert await watermarks.get_watermark("test") == 50.0


async def test_messages_waiting_at_shutdown_are_left_to_the_next_process(watermarks: Watermarks) -> None:
    now = await add_session(watermarks)
    async with run_platform(watermarks) as platform:
        platform.heard_at = now + 10
        receiving = await start_receiving(platform, create_mention("question", now + 2), since=now + 5)
        receiving.cancel()
        await asyncio.wait([receiving])
    assert await watermarks.get_watermark("test") == now + 2


# Storing in order


@pytest.mark.parametrize("failures", [0, 1])
async def test_messages_of_a_session_are_stored_in_the_order_they_were_sent(
    watermarks: Watermarks, failures: int
) -> None:
    async with run_platform(watermarks) as platform:
        now = time.time()
        elsewhere = IncomingMessage(inbound("elsewhere", session="place:2", sent_at=now - 45), is_mention=True)
        await platform.fail_to_receive(create_mention("first", now - 50), elsewhere, create_mention("second", now - 40))
        platform.failures = failures
        await wait_until(lambda: len(platform.stored) == 3)
        assert [text for text in platform.stored if text != "elsewhere"] == ["first", "second"]


async def test_concurrent_messages_are_stored_in_order_within_their_session(
    watermarks: Watermarks, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with run_platform(watermarks) as platform:
        take, slow, now = platform.backfill._store_incoming, asyncio.Event(), time.time()

        async def store_first_slowly(call: IncomingMessage) -> None:
            if call.inbound.text == "first":
                await slow.wait()
            await take(call)

        monkeypatch.setattr(platform.backfill, "_store_incoming", store_first_slowly)
        elsewhere = IncomingMessage(inbound("elsewhere", session="place:2", sent_at=now), is_mention=True)
        calls = [create_mention("first", now - 2), create_mention("second", now - 1), elsewhere]
        receiving = [asyncio.create_task(platform.backfill.receive(call)) for call in calls]
        await receiving[-1]
        slow.set()
        await asyncio.gather(*receiving)
        assert platform.stored == ["elsewhere", "first", "second"]


async def test_a_message_is_stored_after_an_earlier_failed_one_of_its_session(
    watermarks: Watermarks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backfill, "STORE_WAIT", wait_fixed(60.0))
    async with run_platform(watermarks) as platform:
        now = time.time()
        await platform.fail_to_receive(create_mention("first", now - 50))
        await wait_until(lambda: not platform.backfill._store_failed.is_set())
        await platform.backfill.receive(create_mention("second", now - 40))
        assert platform.stored == ["first", "second"]


async def test_a_message_that_fails_to_store_is_retried_and_blocks_no_session(
    watermarks: Watermarks,
) -> None:
    async with run_platform(watermarks) as platform:
        platform.broken, now = {"first"}, time.time()
        with pytest.raises(ValueError, match="first"):
            await platform.backfill.receive(create_mention("first", now - 50))
        await platform.backfill.receive(create_mention("second", now - 40))
        platform.broken = set()
        await wait_until(lambda: platform.stored == ["second", "first"])


async def test_a_message_is_stored_although_its_delivery_is_cancelled(
    watermarks: Watermarks, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with run_platform(watermarks) as platform:
        take, storing = platform.backfill._store_incoming, asyncio.Event()

        async def hang(_call: IncomingMessage) -> None:
            storing.set()
            await asyncio.sleep(60)

        monkeypatch.setattr(platform.backfill, "_store_incoming", hang)
        receiving = asyncio.create_task(platform.backfill.receive(create_mention("a question", time.time())))
        await storing.wait()
        monkeypatch.setattr(platform.backfill, "_store_incoming", take)
        receiving.cancel()
        await wait_until(lambda: platform.stored == ["a question"])


async def test_a_message_that_cannot_be_stored_is_given_up_when_it_is_old(
    watermarks: Watermarks, caplog: pytest.LogCaptureFixture
) -> None:
    async with run_platform(watermarks, hours=3) as platform:
        platform.refused = {"first"}
        now = platform.heard_at = time.time()
        with pytest.raises(StoreError):
            await platform.backfill.receive(create_mention("first", now - 2 * 3600))
        await platform.backfill.receive(create_mention("second", now - 60))
        assert platform.stored == ["second"]
        await wait_until(lambda: platform.watermark == now - 2 * 3600)
        platform.backfill._limits = BackfillLimits(hours=1)
        await wait_until(lambda: platform.watermark == now)
        assert "test: a message is dropped: it could not be stored for too long" in caplog.text


def create_change(message: IncomingMessage, text: str | None, at: float) -> IncomingChange:
    key = message.inbound.event_key
    entry = replace(message.inbound, event_key=f"{key}:{at}", session_id="unknown", text="", sent_at=at)
    return IncomingChange(entry, key, text)


async def test_a_message_that_is_deleted_before_it_is_stored_is_not_stored(watermarks: Watermarks) -> None:
    async with run_platform(watermarks) as platform:
        now = time.time()
        secret, other = create_mention("a secret", now - 50), create_mention("as it was", now - 49)
        await platform.fail_to_receive(secret, other, create_change(secret, None, now - 48))
        await wait_until(lambda: platform.stored == ["as it was", "edit: None"])
        late = create_mention("a slow secret", now)
        await platform.backfill.receive(create_change(late, None, now))
        for deleted in (secret, late):  # Slack redelivers it late
            await platform.backfill.receive(deleted)
        assert platform.stored == ["as it was", "edit: None", "edit: None"]


async def test_edits_are_stored_in_order_after_their_message(watermarks: Watermarks) -> None:
    async with run_platform(watermarks) as platform:
        now = time.time()
        call = create_mention("my wrods", now - 50)
        edits = [create_change(call, "wrong words", now - 40), create_change(call, "my words", now - 30)]
        await platform.fail_to_receive(call, *edits)
        await wait_until(lambda: platform.stored == ["my wrods", "edit: wrong words", "edit: my words"])


async def test_an_edit_during_storing_is_stored_afterwards(
    watermarks: Watermarks, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with run_platform(watermarks) as platform:
        storing, slow, done = asyncio.Event(), asyncio.Event(), list[bool]()

        async def store_slowly(call: Incoming) -> None:
            storing.set()
            await slow.wait()
            done.append(isinstance(call, IncomingMessage))

        monkeypatch.setattr(platform.backfill, "_store_incoming", store_slowly)
        call = create_mention("my wrods", time.time())
        receiving = asyncio.create_task(platform.backfill.receive(call))
        await storing.wait()
        editing = asyncio.create_task(platform.backfill.receive(create_change(call, "my words", time.time())))
        await asyncio.sleep(0)
        assert not editing.done()
        slow.set()
        await asyncio.gather(receiving, editing)
        assert done == [True, False]


async def test_messages_beyond_the_memory_limit_are_fetched(
    watermarks: Watermarks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backfill, "MAX_PENDING", 1)
    now = await add_session(watermarks)
    async with run_platform(watermarks) as platform:
        platform.is_down, calls = True, [create_mention("one", now + 1), create_mention("two", now + 2)]
        platform.history = calls[1:]
        await platform.fail_to_receive(*calls)
        await asyncio.sleep(0.2)
        assert len(platform.fetched) <= 1, "what is fetched could not be stored either"
        platform.is_down = False
        await wait_until(lambda: platform.stored == ["one", "two"])


async def test_without_backfill_all_messages_stay_in_memory(
    watermarks: Watermarks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backfill, "MAX_PENDING", 1)
    async with run_platform(watermarks, hours=0) as platform:
        now = time.time()
        await platform.fail_to_receive(create_mention("one", now - 2), create_mention("two", now - 1))
        await wait_until(lambda: platform.stored == ["one", "two"])


# Fetching


async def test_fetched_messages_stay_in_order_despite_database_errors(watermarks: Watermarks) -> None:
    now = await add_session(watermarks)
    async with run_platform(watermarks) as platform:
        platform.history, platform.failures = [create_mention("second", now + 2), create_mention("first", now + 1)], 1
        platform.backfill.open_gap(now)
        await wait_until(lambda: platform.stored == ["first", "second"])


@pytest.mark.parametrize("is_down", [False, True])
async def test_fetched_messages_precede_new_ones_after_a_database_outage(
    watermarks: Watermarks, monkeypatch: pytest.MonkeyPatch, is_down: bool
) -> None:
    monkeypatch.setattr(backfill, "FETCH_WAIT", wait_fixed(60.0))
    now, served, failures = await add_session(watermarks), watermarks.list_active_places, iter(range(3))

    async def fail_at_first(*args: Any, **kwargs: Any) -> list[ActivePlace]:
        if next(failures, None) is not None:
            raise StoreError("out of reach")
        return await served(*args, **kwargs)

    async with run_platform(watermarks) as platform:
        if is_down:
            await platform.fail_to_receive(create_mention("new", now + 2))
        monkeypatch.setattr(watermarks, "list_active_places", fail_at_first)
        platform.history = [create_mention("missing", now + 1)]
        platform.backfill.open_gap(now)
        if not is_down:
            await platform.backfill.receive(create_mention("new", now + 2))
        await wait_until(lambda: "new" in platform.stored)
        assert platform.stored == ["missing", "new"]


async def start_receiving(platform: FaultyPlatform, call: IncomingMessage, *, since: float) -> asyncio.Task[None]:
    """Start to receive a message, and return the task once a fetch of its place waits.

    The task ends after `platform.gate` is set.
    """
    platform.gate.clear()
    platform.backfill.open_gap(since)
    receiving = asyncio.create_task(platform.backfill.receive(call))
    await wait_until(lambda: call.inbound.place in platform.fetched)
    return receiving


async def test_new_messages_wait_for_the_fetch_of_their_place(
    watermarks: Watermarks,
) -> None:
    now = await add_session(watermarks)
    async with run_platform(watermarks) as platform:
        first = await start_receiving(platform, create_mention("first", now + 2), since=now)
        second = asyncio.create_task(platform.backfill.receive(create_mention("second", now + 3)))
        elsewhere = IncomingMessage(inbound("elsewhere", session="test:other:1", sent_at=now + 4), is_mention=True)
        await platform.backfill.receive(elsewhere)
        assert platform.stored == ["elsewhere"]
        platform.history = [create_mention("missing", now + 1)]
        platform.gate.set()
        await asyncio.gather(first, second)
        assert platform.stored == ["elsewhere", "missing", "first", "second"]
        await wait_until(lambda: not platform.is_open)
        assert platform.fetched == [PLACE]


async def test_messages_wait_for_a_fetch_that_began_before_the_connection(watermarks: Watermarks) -> None:
    now = await add_session(watermarks)
    await watermarks.save_watermark("test", now)
    platform, receiving = FaultyPlatform(watermarks, BackfillLimits()), list[asyncio.Task[None]]()
    platform.history = [create_mention("missing", now + 1)]

    async def connect() -> None:
        receiving.append(asyncio.create_task(platform.backfill.receive(create_mention("new", now + 2))))

    await platform.start(connect)
    await asyncio.gather(*receiving)
    assert platform.stored == ["missing", "new"]
    await platform.backfill.stop()


async def test_new_messages_wait_for_a_limited_time(watermarks: Watermarks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backfill, "MAX_WAIT_SECONDS", 0.05)
    now = await add_session(watermarks)
    async with run_platform(watermarks) as platform:
        platform.stuck_at = PLACE
        platform.backfill.open_gap(now)
        await platform.backfill.receive(create_mention("new", now + 2))
        assert platform.stored == ["new"]


@pytest.mark.parametrize("word", ["reset", "stop"])
async def test_a_command_waits_for_earlier_messages_but_not_for_a_fetch(watermarks: Watermarks, word: str) -> None:
    now = await add_session(watermarks)
    async with run_platform(watermarks) as platform:
        question = await start_receiving(platform, create_mention("a question", now + 2), since=now)
        await platform.backfill.receive(create_mention(word, now + 3))
        assert platform.stored == ["a question", word]
        platform.gate.set()
        await question
        assert platform.stored == ["a question", word]


async def test_a_gap_during_a_backfill_starts_another_fetch(watermarks: Watermarks) -> None:
    now = await add_session(watermarks)
    async with run_platform(watermarks) as platform:
        platform.gate.clear()
        platform.backfill.open_gap(now)
        await wait_until(lambda: platform.fetched)
        platform.backfill.open_gap(now + 5)
        platform.gate.set()
        await wait_until(lambda: not platform.is_open)
        assert platform.fetched == [PLACE, PLACE]
        assert platform.gaps[1] == pytest.approx(platform.gaps[0])


async def test_a_backfill_that_takes_too_long_is_given_up(
    watermarks: Watermarks, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(backfill, "BACKFILL_TIMEOUT_SECONDS", 1.0)
    await add_session(watermarks)
    async with run_platform(watermarks) as platform:
        platform.is_stuck, platform.heard_at = True, 100.0
        platform.backfill.open_gap(50.0)
        await wait_until(lambda: platform.watermark == 50.0)
        await wait_until(lambda: platform.watermark == 100.0)
        assert "test: the backfill took too long" in caplog.text
        assert len(platform.fetched) == 1


async def add_sessions(watermarks: Watermarks, count: int) -> tuple[float, list[str]]:
    """Insert `count` sessions, each of a place of its own.

    Returns:
        A time (Unix seconds) before now, and the places.
    """
    places = [f"test:{number}" for number in range(count)]
    for place in places:
        await add_session(watermarks, place)
    return time.time() - 50, places


async def test_a_slow_place_does_not_delay_others(watermarks: Watermarks) -> None:
    sent_at, places = await add_sessions(watermarks, 2 * backfill.MAX_CONCURRENT_TASKS)
    async with run_platform(watermarks) as platform:
        platform.stuck_at = places[-1]
        platform.history = [create_mention(place, sent_at, place) for place in places]
        platform.backfill.open_gap(sent_at - 1)
        await wait_until(lambda: len(platform.stored) == len(places) - 1)
    assert sorted(platform.stored) == sorted(places[:-1])


async def test_a_failing_place_is_retried_and_delays_no_other(watermarks: Watermarks) -> None:
    sent_at, places = await add_sessions(watermarks, 2 * backfill.MAX_CONCURRENT_TASKS)
    async with run_platform(watermarks) as platform:
        platform.closed_at, platform.heard_at = places[-1], time.time()  # newest, so fetched first
        platform.history = [create_mention(place, sent_at, place) for place in places]
        platform.backfill.open_gap(sent_at - 1)
        await wait_until(lambda: len(platform.stored) == len(places) - 1)
        assert places[-1] not in platform.stored
        assert platform.is_open
        platform.closed_at = ""
        await wait_until(lambda: places[-1] in platform.stored)
    assert set(platform.stored) == set(places)
    assert all(platform.fetched.count(place) == 1 for place in places[:-1])


async def test_a_backfill_stops_after_several_failing_places(watermarks: Watermarks) -> None:
    await add_sessions(watermarks, 4 * backfill.MAX_CONCURRENT_TASKS)
    async with run_platform(watermarks) as platform:
        platform.closed_at = "test:"
        platform.backfill.open_gap(time.time())
        await wait_until(lambda: platform.closed)
        assert platform.closed <= 2 * backfill.MAX_CONCURRENT_TASKS


async def test_a_stop_cancels_backfilled_messages_of_its_author_only(
    watermarks: Watermarks,
) -> None:
    since = await add_session(watermarks)
    session = f"{PLACE}:1"

    def create_message(text: str, at: float, author: str = "grace") -> IncomingMessage:
        return IncomingMessage(inbound(text, session=session, sent_at=at, author=author), is_mention=True)

    async with watermarks._database.write() as connection:
        await record_message(connection, create_message("stop", since + 5).inbound, InboxOutcome.COMMAND, kind="stop")
    calls = [
        create_message("a story", since),
        create_message("reset", since + 1),
        create_message("mine", since + 2, "ada"),
        create_message("now", since + 6),
    ]
    found = await filter_missing(watermarks, calls, {session}, {PLACE: 0.0}, since=0.0)
    assert [call.inbound.text for call in found] == ["reset", "mine", "now"]


async def test_zero_backfill_hours_fetch_nothing(watermarks: Watermarks) -> None:
    async with run_platform(watermarks, hours=0) as platform:
        platform.heard_at = 100.0
        platform.backfill.open_gap(50.0)
        await wait_until(lambda: platform.watermark == 100.0)
        assert platform.gaps == []
