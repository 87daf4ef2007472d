"""Storing in order, backfill, and the watermark before all messages that are not stored."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from tenacity.wait import wait_fixed, wait_none

from channels.intake import backfill
from channels.intake.backfill import Backfill, filter_missing
from channels.intake.handler import EDIT_MENTION_WINDOW_SECONDS, IncomingMessage
from channels.settings import BackfillLimits
from core.concurrency import retry
from core.errors import StoreError
from core.inbox.watermarks import ActivePlace, Watermarks
from core.inbox_message import InboxOutcome
from core.store.database import Database
from core.store.schema import sessions
from core.turns.queries import record_message
from tests.channels.wiring import wait_until
from tests.fixtures import empty_databases as tables
from tests.fixtures.inbox_messages import inbound

PLACE, SESSION = "test:place", "test:place:1"


@pytest.fixture
async def places(tmp_path: Path) -> AsyncIterator[Watermarks]:
    database = Database(f"sqlite+aiosqlite:///{tmp_path / 'parley.db'}")
    await tables.create_tables(database)
    yield Watermarks(database)
    await database.aclose()


class World:
    """Platform with a history, and a database that may fail.

    Attributes:
        heard_at: the time of the platform's last event.
        taken: the stored texts.
        looks: the start of each fetched gap.
        fetched: the places of each fetch.
        history: the messages that a fetch finds.
        is_down: whether the database fails; failures: the number of further failures while it is up.
        is_stuck: whether all fetches hang; stuck_at: a place whose fetch hangs.
        closed_at: prefix of the places that cannot be fetched; closed: the number of their tries.
        gate: the event that fetches wait for.
        refused: texts that the database always rejects; broken: texts that raise an unknown error.
    """

    def __init__(self, places: Watermarks, bounds: BackfillLimits) -> None:
        self.heard_at = 0.0
        self.taken: list[str] = []
        self.looks: list[float] = []
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
            places,
            bounds,
            store_message=self._take,
            fetch_since=self._look,
            last_event_at=lambda: self.heard_at,
            delays_new_messages=True,
        )

    @property
    def watermark(self) -> float | None:
        return self.backfill._watermark

    @property
    def is_open(self) -> bool:
        return self.backfill._gap is not None

    async def connect(self) -> None:
        """Connect at once."""

    async def fails(self, *calls: IncomingMessage) -> None:
        """Receive messages while the database is down."""
        was_down, self.is_down = self.is_down, True
        for call in calls:
            with pytest.raises(StoreError):
                await self.backfill.receive(call)
        self.is_down = was_down

    async def _take(self, call: IncomingMessage) -> None:
        if call.inbound.text in self.refused:
            refusal = StoreError("what it says cannot be stored")
            refusal.retryable = False
            raise refusal
        if call.inbound.text in self.broken:
            raise ValueError(call.inbound.text)
        if self.is_down or self.failures:
            self.failures = max(0, self.failures - 1)
            raise StoreError("out of reach")
        self.taken.append(call.inbound.text)

    def _look(self, since: float) -> Callable[[ActivePlace], Awaitable[list[IncomingMessage]]]:
        self.looks.append(since)

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
async def world_of(places: Watermarks, *, hours: float = 1e9) -> AsyncIterator[World]:
    world = World(places, BackfillLimits(hours=hours))
    await world.backfill.start(world.connect)
    yield world
    await world.backfill.stop()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backfill, "FETCH_WAIT", wait_fixed(0.01))
    monkeypatch.setattr(backfill, "STORE_WAIT", wait_fixed(0.01))
    monkeypatch.setattr(backfill, "WATERMARK_SECONDS", 0.01)


def called(text: str, at: float, place: str = PLACE) -> IncomingMessage:
    return IncomingMessage(inbound(text, session=f"{place}:1", sent_at=at), is_mention=True)


async def serve(places: Watermarks, place: str = PLACE) -> float:
    """Make a place known; return a time after that."""
    now = time.time()
    row = {"id": f"{place}:1", "app": "app", "user_id": place, "created_at": now - 100, "updated_at": now - 100}
    async with places._database.write() as connection:
        await connection.execute(sa.insert(sessions).values(row))
    return now - 50


# Watermark


async def test_the_watermark_is_stored_on_change_and_not_before_the_first_event(
    places: Watermarks, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes, keep = list[float](), Watermarks.save_watermark

    async def counted(self: Watermarks, channel: str, at: float) -> None:
        await keep(self, channel, at)
        notes.append(at)

    monkeypatch.setattr(Watermarks, "save_watermark", counted)
    async with world_of(places) as world:
        await asyncio.sleep(0.05)
        assert notes == []
        for at in (100.0, 200.0):
            world.heard_at = at
            await wait_until(lambda at=at: notes[-1:] == [at])  # type: ignore[misc]
            await asyncio.sleep(0.05)
        world.heard_at = 300.0
    assert notes == [100.0, 200.0, 300.0]
    assert await places.get_watermark("test") == 300.0
    async with world_of(places) as world:
        await wait_until(lambda: world.looks == [300.0 - backfill.OVERLAP_SECONDS - EDIT_MENTION_WINDOW_SECONDS])


async def test_the_watermark_precedes_all_messages_that_are_not_stored(places: Watermarks) -> None:
    async with world_of(places) as world:
        now = time.time()
        world.is_down = True
        await world.fails(called("second", now - 40), called("first", now - 50), called("second", now - 40))
        world.heard_at = now
        await wait_until(lambda: world.watermark == now - 50)
        world.is_down = False
        await wait_until(lambda: world.watermark == now)
        assert world.taken[0] == "first"
        assert world.looks == []


async def test_a_process_that_ends_early_leaves_the_watermark_unchanged(
    places: Watermarks, monkeypatch: pytest.MonkeyPatch
) -> None:
    await places.save_watermark("test", 50.0)

    async def hangs(_part: str) -> float:
        await asyncio.sleep(60)
        return 0.0

    with monkeypatch.context() as hanging:
        hanging.setattr(places, "get_watermark", hangs)
        world = World(places, BackfillLimits())
        world.heard_at = 100.0
        starting = asyncio.create_task(world.backfill.start(world.connect))
        await asyncio.sleep(0)
        starting.cancel()
        await asyncio.wait([starting])
        await world.backfill.stop()
    assert await places.get_watermark("test") == 50.0


async def test_a_short_database_outage_at_startup_is_retried(
    places: Watermarks, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard_at, failures = places.get_watermark, iter(range(8))

    async def away(part: str) -> float | None:
        if next(failures, None) is not None:
            raise StoreError("out of reach")
        return await heard_at(part)

    world = World(places, BackfillLimits())
    monkeypatch.setattr(places, "get_watermark", away)
    monkeypatch.setattr(retry, "RETRY_WAIT", wait_none())
    await world.backfill.start(world.connect)
    await world.backfill.stop()


async def test_a_shutdown_cancels_a_backfill_and_the_next_process_repeats_it(places: Watermarks) -> None:
    await serve(places)
    async with world_of(places) as world:
        world.is_stuck, world.heard_at = True, 100.0
        world.backfill.open_gap(50.0)
        await wait_until(lambda: world.fetched)
    assert await places.get_watermark("test") == 50.0


async def test_messages_waiting_at_shutdown_are_left_to_the_next_process(places: Watermarks) -> None:
    now = await serve(places)
    async with world_of(places) as world:
        world.heard_at = now + 10
        receiving = await waiting(world, called("question", now + 2), since=now + 5)
        receiving.cancel()
        await asyncio.wait([receiving])
    assert await places.get_watermark("test") == now + 2


# Storing in order


@pytest.mark.parametrize("failures", [0, 1])
async def test_messages_of_a_session_are_stored_in_the_order_they_were_sent(places: Watermarks, failures: int) -> None:
    async with world_of(places) as world:
        now = time.time()
        elsewhere = IncomingMessage(inbound("elsewhere", session="place:2", sent_at=now - 45), is_mention=True)
        await world.fails(called("first", now - 50), elsewhere, called("second", now - 40))
        world.failures = failures
        await wait_until(lambda: len(world.taken) == 3)
        assert [text for text in world.taken if text != "elsewhere"] == ["first", "second"]


async def test_concurrent_messages_are_stored_in_order_within_their_session(
    places: Watermarks, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world_of(places) as world:
        take, slow, now = world.backfill._store_message, asyncio.Event(), time.time()

        async def first_is_slow(call: IncomingMessage) -> None:
            if call.inbound.text == "first":
                await slow.wait()
            await take(call)

        monkeypatch.setattr(world.backfill, "_store_message", first_is_slow)
        elsewhere = IncomingMessage(inbound("elsewhere", session="place:2", sent_at=now), is_mention=True)
        calls = [called("first", now - 2), called("second", now - 1), elsewhere]
        receiving = [asyncio.create_task(world.backfill.receive(call)) for call in calls]
        await receiving[-1]
        slow.set()
        await asyncio.gather(*receiving)
        assert world.taken == ["elsewhere", "first", "second"]


async def test_a_message_is_stored_after_an_earlier_failed_one_of_its_session(
    places: Watermarks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backfill, "STORE_WAIT", wait_fixed(60.0))
    async with world_of(places) as world:
        now = time.time()
        await world.fails(called("first", now - 50))
        await wait_until(lambda: not world.backfill._store_failed.is_set())
        await world.backfill.receive(called("second", now - 40))
        assert world.taken == ["first", "second"]


async def test_a_message_that_fails_to_store_is_retried_and_blocks_no_session(
    places: Watermarks,
) -> None:
    async with world_of(places) as world:
        world.broken, now = {"first"}, time.time()
        with pytest.raises(ValueError, match="first"):
            await world.backfill.receive(called("first", now - 50))
        await world.backfill.receive(called("second", now - 40))
        world.broken = set()
        await wait_until(lambda: world.taken == ["second", "first"])


async def test_a_message_is_stored_although_its_delivery_is_cancelled(
    places: Watermarks, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world_of(places) as world:
        take, storing = world.backfill._store_message, asyncio.Event()

        async def hangs(_call: IncomingMessage) -> None:
            storing.set()
            await asyncio.sleep(60)

        monkeypatch.setattr(world.backfill, "_store_message", hangs)
        receiving = asyncio.create_task(world.backfill.receive(called("a question", time.time())))
        await storing.wait()
        monkeypatch.setattr(world.backfill, "_store_message", take)
        receiving.cancel()
        await wait_until(lambda: world.taken == ["a question"])


async def test_a_message_that_cannot_be_stored_is_given_up_when_it_is_old(
    places: Watermarks, caplog: pytest.LogCaptureFixture
) -> None:
    async with world_of(places, hours=3) as world:
        world.refused = {"first"}
        now = world.heard_at = time.time()
        with pytest.raises(StoreError):
            await world.backfill.receive(called("first", now - 2 * 3600))
        await world.backfill.receive(called("second", now - 60))
        assert world.taken == ["second"]
        await wait_until(lambda: world.watermark == now - 2 * 3600)
        world.backfill._limits = BackfillLimits(hours=1)
        await wait_until(lambda: world.watermark == now)
        assert "test: a message is lost: it could not be stored for too long" in caplog.text


async def test_an_edit_or_deletion_before_storing_is_applied(
    places: Watermarks,
) -> None:
    async with world_of(places) as world:
        world.is_down, now = True, time.time()
        calls = [called(text, now - 50 + at) for at, text in enumerate(("a secret", "my wrods", "as it was"))]
        secret, wrong, _ = calls
        await world.fails(*calls)
        await world.backfill.apply_edit(secret.inbound.event_key, None)
        await world.backfill.apply_edit(wrong.inbound.event_key, "wrong words")
        await world.backfill.apply_edit(wrong.inbound.event_key, "my words")
        world.is_down = False
        await wait_until(lambda: world.taken == ["my words", "as it was"])
        late = called("a slow secret", now)
        await world.backfill.apply_edit(late.inbound.event_key, None)
        for deleted in (secret, late):  # Slack redelivers it late
            await world.backfill.receive(deleted)
        assert world.taken == ["my words", "as it was"]


async def test_an_edit_during_storing_is_applied_afterwards(
    places: Watermarks, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world_of(places) as world:
        storing, slow, done = asyncio.Event(), asyncio.Event(), list[str]()

        async def take(call: IncomingMessage) -> None:
            storing.set()
            await slow.wait()
            done.append(call.inbound.text)

        monkeypatch.setattr(world.backfill, "_store_message", take)
        call = called("my wrods", time.time())
        receiving = asyncio.create_task(world.backfill.receive(call))
        await storing.wait()
        editing = asyncio.create_task(world.backfill.apply_edit(call.inbound.event_key, "my words"))
        await asyncio.sleep(0)
        assert not editing.done()
        slow.set()
        await asyncio.gather(receiving, editing)
        assert done == ["my wrods"]


# Memory


async def test_messages_beyond_the_memory_limit_are_fetched(
    places: Watermarks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backfill, "MAX_PENDING", 1)
    now = await serve(places)
    async with world_of(places) as world:
        world.is_down, calls = True, [called("one", now + 1), called("two", now + 2)]
        world.history = calls[1:]
        await world.fails(*calls)
        await asyncio.sleep(0.2)
        assert len(world.fetched) <= 1, "what is fetched could not be stored either"
        world.is_down = False
        await wait_until(lambda: world.taken == ["one", "two"])


async def test_without_backfill_all_messages_stay_in_memory(
    places: Watermarks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backfill, "MAX_PENDING", 1)
    async with world_of(places, hours=0) as world:
        now = time.time()
        await world.fails(called("one", now - 2), called("two", now - 1))
        await wait_until(lambda: world.taken == ["one", "two"])


# Fetching


async def test_fetched_messages_stay_in_order_despite_database_errors(places: Watermarks) -> None:
    now = await serve(places)
    async with world_of(places) as world:
        world.history, world.failures = [called("second", now + 2), called("first", now + 1)], 1
        world.backfill.open_gap(now)
        await wait_until(lambda: world.taken == ["first", "second"])


@pytest.mark.parametrize("is_down", [False, True])
async def test_fetched_messages_precede_new_ones_after_a_database_outage(
    places: Watermarks, monkeypatch: pytest.MonkeyPatch, is_down: bool
) -> None:
    monkeypatch.setattr(backfill, "FETCH_WAIT", wait_fixed(60.0))
    now, served, failures = await serve(places), places.list_active_places, iter(range(3))

    async def away(*of: Any, **more: Any) -> list[ActivePlace]:
        if next(failures, None) is not None:
            raise StoreError("out of reach")
        return await served(*of, **more)

    async with world_of(places) as world:
        if is_down:
            await world.fails(called("new", now + 2))
        monkeypatch.setattr(places, "list_active_places", away)
        world.history = [called("missing", now + 1)]
        world.backfill.open_gap(now)
        if not is_down:
            await world.backfill.receive(called("new", now + 2))
        await wait_until(lambda: "new" in world.taken)
        assert world.taken == ["missing", "new"]


async def waiting(world: World, call: IncomingMessage, *, since: float) -> asyncio.Task[None]:
    """Return the task of a message that waits for the gated fetch of its place."""
    world.gate.clear()
    world.backfill.open_gap(since)
    receiving = asyncio.create_task(world.backfill.receive(call))
    await wait_until(lambda: call.inbound.place in world.fetched)
    return receiving


async def test_new_messages_wait_for_the_fetch_of_their_place(
    places: Watermarks,
) -> None:
    now = await serve(places)
    async with world_of(places) as world:
        first = await waiting(world, called("first", now + 2), since=now)
        second = asyncio.create_task(world.backfill.receive(called("second", now + 3)))
        elsewhere = IncomingMessage(inbound("elsewhere", session="test:other:1", sent_at=now + 4), is_mention=True)
        await world.backfill.receive(elsewhere)
        assert world.taken == ["elsewhere"]
        world.history = [called("missing", now + 1)]
        world.gate.set()
        await asyncio.gather(first, second)
        assert world.taken == ["elsewhere", "missing", "first", "second"]
        await wait_until(lambda: not world.is_open)
        assert world.fetched == [PLACE]


async def test_messages_wait_for_a_fetch_that_began_before_the_connection(places: Watermarks) -> None:
    now = await serve(places)
    await places.save_watermark("test", now)
    world, receiving = World(places, BackfillLimits()), list[asyncio.Task[None]]()
    world.history = [called("missing", now + 1)]

    async def connect() -> None:
        receiving.append(asyncio.create_task(world.backfill.receive(called("new", now + 2))))

    await world.backfill.start(connect)
    await asyncio.gather(*receiving)
    assert world.taken == ["missing", "new"]
    await world.backfill.stop()


async def test_new_messages_wait_for_a_limited_time(places: Watermarks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backfill, "MAX_WAIT_SECONDS", 0.05)
    now = await serve(places)
    async with world_of(places) as world:
        world.stuck_at = PLACE
        world.backfill.open_gap(now)
        await world.backfill.receive(called("new", now + 2))
        assert world.taken == ["new"]


@pytest.mark.parametrize("word", ["reset", "stop"])
async def test_a_command_waits_for_earlier_messages_but_not_for_a_fetch(places: Watermarks, word: str) -> None:
    now = await serve(places)
    async with world_of(places) as world:
        question = await waiting(world, called("a question", now + 2), since=now)
        await world.backfill.receive(called(word, now + 3))
        assert world.taken == ["a question", word]
        world.gate.set()
        await question
        assert world.taken == ["a question", word]


async def test_a_gap_during_a_backfill_starts_another_fetch(places: Watermarks) -> None:
    now = await serve(places)
    async with world_of(places) as world:
        world.gate.clear()
        world.backfill.open_gap(now)
        await wait_until(lambda: world.fetched)
        world.backfill.open_gap(now + 5)
        world.gate.set()
        await wait_until(lambda: not world.is_open)
        assert world.fetched == [PLACE, PLACE]
        assert world.looks[1] == pytest.approx(world.looks[0])


async def test_a_backfill_that_takes_too_long_is_given_up(
    places: Watermarks, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(backfill, "BACKFILL_TIMEOUT", 1.0)
    await serve(places)
    async with world_of(places) as world:
        world.is_stuck, world.heard_at = True, 100.0
        world.backfill.open_gap(50.0)
        await wait_until(lambda: world.watermark == 50.0)
        await wait_until(lambda: world.watermark == 100.0)
        assert "test: the backfill took too long" in caplog.text
        assert len(world.fetched) == 1


async def serve_many(places: Watermarks, count: int) -> tuple[float, list[str]]:
    others = [f"test:{number}" for number in range(count)]
    for place in others:
        await serve(places, place)
    return time.time() - 50, others


async def test_a_slow_place_does_not_delay_others(places: Watermarks) -> None:
    said, others = await serve_many(places, 2 * backfill.CONCURRENCY)
    async with world_of(places) as world:
        world.stuck_at = others[-1]
        world.history = [called(place, said, place) for place in others]
        world.backfill.open_gap(said - 1)
        await wait_until(lambda: len(world.taken) == len(others) - 1)
    assert sorted(world.taken) == sorted(others[:-1])


async def test_a_failing_place_is_retried_and_delays_no_other(places: Watermarks) -> None:
    said, others = await serve_many(places, 2 * backfill.CONCURRENCY)
    async with world_of(places) as world:
        world.closed_at, world.heard_at = others[-1], time.time()  # it is fetched first
        world.history = [called(place, said, place) for place in others]
        world.backfill.open_gap(said - 1)
        await wait_until(lambda: len(world.taken) == len(others) - 1)
        assert others[-1] not in world.taken
        assert world.is_open
        world.closed_at = ""
        await wait_until(lambda: others[-1] in world.taken)
    assert set(world.taken) == set(others)
    assert all(world.fetched.count(place) == 1 for place in others[:-1])


async def test_a_backfill_stops_after_several_failing_places(places: Watermarks) -> None:
    await serve_many(places, 4 * backfill.CONCURRENCY)
    async with world_of(places) as world:
        world.closed_at = "test:"
        world.backfill.open_gap(time.time())
        await wait_until(lambda: world.closed)
        assert world.closed <= 2 * backfill.CONCURRENCY


async def test_a_stop_cancels_backfilled_messages_of_its_author_only(
    places: Watermarks,
) -> None:
    since = await serve(places)
    session = f"{PLACE}:1"

    def said(text: str, at: float, author: str = "grace") -> IncomingMessage:
        return IncomingMessage(inbound(text, session=session, sent_at=at, author=author), is_mention=True)

    async with places._database.write() as connection:
        await record_message(connection, said("stop", since + 5).inbound, InboxOutcome.COMMAND, kind="stop")
    calls = [said("a story", since), said("reset", since + 1), said("mine", since + 2, "ada"), said("now", since + 6)]
    found = await filter_missing(places, calls, {session}, {PLACE: 0.0}, since=0.0)
    assert [call.inbound.text for call in found] == ["reset", "mine", "now"]


async def test_zero_backfill_hours_fetch_nothing(places: Watermarks) -> None:
    async with world_of(places, hours=0) as world:
        world.heard_at = 100.0
        world.backfill.open_gap(50.0)
        await wait_until(lambda: world.watermark == 100.0)
        assert world.looks == []
