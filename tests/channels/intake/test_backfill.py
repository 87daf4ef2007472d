"""What is looked for, what is noted, and what is given up: whatever the platform."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from channels.intake import backfill as gaps
from channels.intake.backfill import Gaps
from channels.intake.handler import MOMENT, Call
from channels.intake.pending import unheard
from channels.settings import Bounds
from core.errors import StoreError
from core.inbox.watermarks import Place, Places
from core.store.database import Database
from core.store.schema import sessions
from core.turns.queries import note
from tests.channels.wiring import until
from tests.fixtures import empty_databases as tables
from tests.fixtures.inbox_messages import inbound

PLACE, SESSION = "test:place", "test:place:1"


@pytest.fixture
async def places(tmp_path: Path) -> AsyncIterator[Places]:
    database = Database(f"sqlite+aiosqlite:///{tmp_path / 'parley.db'}")
    await tables.lay(database)
    yield Places(database)
    await database.aclose()


class World:
    """A platform that says when it was last heard, and a database that may take what is said.

    Attributes:
        looks: since when was looked back, each time.
        finds: what a look finds.
        is_stuck: whether a look finds no end.
        stuck_at: a place at which it finds none.
        closed_at: how the names of places begin that cannot be looked into; none of them, if it is empty.
        closed: how often one was tried.
        gates: what the first look waits for, and the second, and so on.
        failures: how often the database fails, as long as it is not down.
        refused: what the database will never take.
        broken: what nobody foresaw how it fails.
    """

    def __init__(self, places: Places, bounds: Bounds) -> None:
        self.heard_at = 0.0
        self.taken: list[str] = []
        self.looks: list[float] = []
        self.is_down = self.is_stuck = False
        self.failures = 0
        self.finds: list[Call] = []
        self.gates: list[asyncio.Event] = []
        self.refused: set[str] = set()
        self.broken: set[str] = set()
        self.stuck_at = self.closed_at = ""
        self.closed = 0
        self.gaps = Gaps(
            "test", places, bounds, take=self._take, look=self._look, heard_at=lambda: self.heard_at, holds=True
        )

    async def _take(self, call: Call) -> None:
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

    def _look(self, since: float) -> Callable[[Place], Awaitable[list[Call]]]:
        gates = self.gates[len(self.looks) :][:1]
        self.looks.append(since)

        async def said(place: Place) -> list[Call]:
            if self.is_stuck or place.id == self.stuck_at:
                await asyncio.sleep(60)
            if self.closed_at and place.id.startswith(self.closed_at):
                self.closed += 1
                raise TimeoutError
            for gate in gates:
                await gate.wait()
            return [call for call in self.finds if call.inbound.place == place.id]

        return said


@asynccontextmanager
async def world_of(places: Places, *, hours: float = 1e9) -> AsyncIterator[World]:
    world = World(places, Bounds(hours=hours))
    await world.gaps.start()
    yield world
    await world.gaps.stop()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gaps, "PAUSES", (0.01,))
    monkeypatch.setattr(gaps, "KEEP_PAUSES", (0.01,))
    monkeypatch.setattr(gaps, "KEEP_SECONDS", 0.01)


def called(text: str, at: float, place: str = PLACE) -> Call:
    return Call(inbound(text, session=f"{place}:1", sent_at=at), is_called=True)


async def serve(places: Places, place: str = PLACE) -> float:
    """The bot has spoken there since then."""
    now = time.time()
    row = {"id": f"{place}:1", "app": "app", "user_id": place, "created_at": now - 100, "updated_at": now - 100}
    async with places._database.write() as connection:
        await connection.execute(sa.insert(sessions).values(row))
    return now - 50


async def test_until_when_all_was_heard_is_noted_when_it_has_changed_and_not_before_the_first_sign(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes, keep = list[float](), Places.keep_heard_at

    async def counted(self: Places, channel: str, at: float) -> None:
        await keep(self, channel, at)
        notes.append(at)

    monkeypatch.setattr(Places, "keep_heard_at", counted)
    async with world_of(places) as world:
        await asyncio.sleep(0.05)
        assert notes == []
        for at in (100.0, 200.0):
            world.heard_at = at
            await until(lambda at=at: notes[-1:] == [at])  # type: ignore[misc]
            await asyncio.sleep(0.05)
        world.heard_at = 300.0
    assert notes == [100.0, 200.0, 300.0]
    assert await places.heard_at("test") == 300.0
    async with world_of(places) as world:
        await until(lambda: world.looks == [300.0 - gaps.MARGIN - MOMENT])


async def test_what_could_not_be_kept_holds_the_note_back_and_is_kept_in_its_order(places: Places) -> None:
    async with world_of(places) as world:
        world.is_down = True
        now = time.time()
        first, second = called("first", now - 50), called("second", now - 40)
        for call in (second, first, second):
            world.gaps.missed(call)
        world.heard_at = now
        await until(lambda: world.gaps._kept == now - 50)
        world.is_down = False
        await until(lambda: world.gaps._kept == now)
        assert world.taken == ["first", "second"]
        assert world.looks == []


@pytest.mark.parametrize("looks", [1, 2])
async def test_that_order_holds_though_the_database_comes_back_between_the_one_and_the_other(
    places: Places, monkeypatch: pytest.MonkeyPatch, looks: int
) -> None:
    async with world_of(places) as world:
        heard_at, seen = places.heard_at, 0

        async def back(part: str) -> float | None:
            nonlocal seen
            seen += 1
            world.is_down = seen < looks
            return await heard_at(part)

        monkeypatch.setattr(places, "heard_at", back)
        world.is_down, now = True, time.time()
        elsewhere = Call(inbound("elsewhere", session="place:2", sent_at=now - 45), is_called=True)
        for call in (called("first", now - 50), elsewhere, called("second", now - 40)):
            world.gaps.missed(call)
        await until(lambda: len(world.taken) == 3)
        assert [text for text in world.taken if text != "elsewhere"] == ["first", "second"]


async def test_what_is_said_behind_what_could_not_be_kept_in_its_session_is_kept_behind_it(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gaps, "KEEP_PAUSES", (60.0,))
    async with world_of(places) as world:
        now = time.time()
        first, second = called("first", now - 50), called("second", now - 40)
        elsewhere = Call(inbound("elsewhere", session="place:2", sent_at=now - 30), is_called=True)
        world.is_down = True
        with pytest.raises(StoreError):
            await world.gaps.hear(first)
        world.is_down = False
        await world.gaps.hear(elsewhere)
        await world.gaps.hear(second)
        assert world.taken[:3] == ["elsewhere", "first", "second"]


async def test_what_is_found_by_looking_back_is_kept_in_its_order_when_the_database_fails_in_the_middle(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gaps, "KEEP_PAUSES", (60.0,))
    now = await serve(places)
    async with world_of(places) as world:
        world.finds, world.failures = [called("first", now + 1), called("second", now + 2)], 1
        world.gaps.open(now)
        await until(lambda: len(world.taken) == 2)
        assert world.taken == ["first", "second"]


@pytest.mark.parametrize("is_kept_at_once", [True, False])
async def test_what_was_not_heard_goes_before_what_was_said_behind_it_though_the_database_was_away(
    places: Places, monkeypatch: pytest.MonkeyPatch, is_kept_at_once: bool
) -> None:
    monkeypatch.setattr(gaps, "PAUSES", (60.0,))
    now, served, failures = await serve(places), places.served, iter(range(3))

    async def away(*of: Any, **more: Any) -> list[Place]:
        if next(failures, None) is not None:
            raise StoreError("out of reach")
        return await served(*of, **more)

    monkeypatch.setattr(places, "served", away)
    async with world_of(places) as world:
        world.finds = [called("unheard", now + 1)]
        world.gaps.open(now)
        heard = called("heard", now + 2)
        if is_kept_at_once:
            await world.gaps.hear(heard)
        else:
            world.gaps.missed(heard)
        await until(lambda: "heard" in world.taken)
        assert world.taken == ["unheard", "heard"]


async def held(world: World, call: Call, *, since: float) -> asyncio.Task[None]:
    """A call that waits for the look at its place, behind the first gate, for its own behind the second."""
    world.gates = [asyncio.Event(), asyncio.Event()]
    world.gaps.open(since)
    await until(lambda: len(world.looks) == 1)
    hearing = asyncio.create_task(world.gaps.hear(call))
    await until(lambda: len(world.looks) == 2)
    return hearing


async def test_what_waits_for_a_look_is_not_overtaken_by_what_is_said_when_the_gap_is_closed(places: Places) -> None:
    now = await serve(places)
    async with world_of(places) as world:
        first = await held(world, called("first", now + 2), since=now)
        world.gates[0].set()
        await until(lambda: not world.gaps._is_open)
        second = asyncio.create_task(world.gaps.hear(called("second", now + 3)))
        elsewhere = Call(inbound("elsewhere", session=f"{SESSION}:other", sent_at=now + 4), is_called=True)
        await world.gaps.hear(elsewhere)
        assert world.taken == ["elsewhere"]
        world.finds = [called("unheard", now + 1)]
        world.gates[1].set()
        await asyncio.gather(first, second)
        assert world.taken == ["elsewhere", "unheard", "first", "second"]


@pytest.mark.parametrize("word", ["reset", "stop"])
async def test_who_waits_for_a_look_is_not_overtaken_by_his_own_word_that_ends_it(places: Places, word: str) -> None:
    now = await serve(places)
    async with world_of(places) as world:
        question = await held(world, called("a question", now + 2), since=now)
        await world.gaps.hear(called(word, now + 3))
        assert world.taken == ["a question", word]
        for gate in world.gates:
            gate.set()
        await question


async def test_what_is_asked_of_the_bot_itself_holds_up_nothing_that_is_said_behind_it(places: Places) -> None:
    async with world_of(places) as world:
        world.failures, now = 1, time.time()
        with pytest.raises(StoreError):
            await world.gaps.hear(called("status", now - 50))
        world.failures = 1
        await world.gaps.hear(called("a question", now - 40))
        assert world.taken == ["a question"]


async def test_a_message_that_fails_with_whatever_is_tried_again_and_holds_up_no_other(places: Places) -> None:
    async with world_of(places) as world:
        world.broken, now = {"first"}, time.time()
        with pytest.raises(ValueError, match="first"):
            await world.gaps.hear(called("first", now - 50))
        await world.gaps.hear(called("second", now - 40))
        world.broken = set()
        await until(lambda: world.taken == ["second", "first"])


async def test_what_was_edited_or_deleted_before_it_could_be_kept_is_taken_as_it_is_then(places: Places) -> None:
    async with world_of(places) as world:
        world.is_down, now = True, time.time()
        calls = [called(text, now - 50 + at) for at, text in enumerate(("a secret", "my wrods", "as it was"))]
        secret, wrong, _ = calls
        for call in calls:
            with pytest.raises(StoreError):
                await world.gaps.hear(call)
        world.gaps.changed(secret.inbound.event_key, None)
        world.gaps.changed(wrong.inbound.event_key, "my words")
        world.is_down = False
        await until(lambda: world.taken == ["my words", "as it was"])
        await world.gaps.hear(secret)  # Slack brings it again
        assert world.taken == ["my words", "as it was"]


async def test_what_is_edited_twice_says_what_it_says_last_though_it_was_kept_in_between(places: Places) -> None:
    async with world_of(places) as world:
        call, now = called("one", time.time()), "two"
        with world.gaps.holding(call):
            world.gaps.changed(call.inbound.event_key, now)
        await world.gaps.hear(call)
        world.gaps.changed(call.inbound.event_key, "three")
        await world.gaps.hear(call)
        assert world.taken == ["two", "three"]


async def test_a_message_that_is_seen_into_is_not_noted_as_heard_and_looked_for_if_that_is_broken_off(
    places: Places,
) -> None:
    async def see(since: float) -> None:
        with world.gaps.seeing(since):
            await asyncio.sleep(60)

    async with world_of(places) as world:
        world.heard_at = 100.0
        seeing = asyncio.create_task(see(50.0))
        await until(lambda: world.gaps._kept == 50.0)
        world.heard_at = 110.0
        seeing.cancel()
        await asyncio.wait([seeing])
    assert await places.heard_at("test") == 50.0


async def test_a_process_that_ends_before_it_knows_its_gap_leaves_the_note_as_it_was(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    await places.keep_heard_at("test", 50.0)

    async def hangs(_part: str) -> float:
        await asyncio.sleep(60)
        return 0.0

    with monkeypatch.context() as hanging:
        hanging.setattr(places, "heard_at", hangs)
        world = World(places, Bounds())
        world.heard_at = 100.0  # the line stands already
        starting = asyncio.create_task(world.gaps.start())
        await asyncio.sleep(0)
        starting.cancel()
        await asyncio.wait([starting])
        await world.gaps.stop()
    assert await places.heard_at("test") == 50.0


async def test_what_can_never_be_kept_holds_up_nothing_that_is_said_behind_it(places: Places) -> None:
    async with world_of(places) as world:
        world.refused, now = {"first"}, time.time()
        with pytest.raises(StoreError):
            await world.gaps.hear(called("first", now - 50))
        await world.gaps.hear(called("second", now - 40))
        assert world.taken == ["second"]


async def test_who_speaks_before_it_is_known_since_when_to_look_waits_for_that_but_not_for_long(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gaps, "BEHIND_SECONDS", 0.05)
    world = World(places, Bounds())
    await world.gaps.hear(called("early", 10.0))
    assert world.taken == ["early"]
    monkeypatch.setattr(gaps, "BEHIND_SECONDS", 5.0)
    waiting = asyncio.create_task(world.gaps.hear(called("late", 20.0)))
    await asyncio.sleep(0.05)
    assert world.taken == ["early"]
    await world.gaps.start()
    await waiting
    assert world.taken == ["early", "late"]
    await world.gaps.stop()


async def test_a_message_that_is_refused_holds_up_no_other_one_and_is_given_up_when_it_is_old(
    places: Places, caplog: pytest.LogCaptureFixture
) -> None:
    async with world_of(places, hours=3) as world:
        world.refused = {"first"}
        now = world.heard_at = time.time()
        world.gaps.missed(called("first", now - 2 * 3600))
        world.gaps.missed(called("second", now - 60))
        world.gaps.open(now - 50)
        await until(lambda: world.taken == ["second"] and world.looks)
        assert not caplog.messages[-1].endswith("could not be kept for too long")
        world.gaps._bounds = Bounds(hours=1)
        await until(lambda: world.gaps._kept == now)
        assert "test: a message is lost, as it could not be kept for too long" in caplog.text


async def test_more_than_can_be_remembered_is_looked_for(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gaps, "MOST_MISSED", 1)
    async with world_of(places) as world:
        world.is_down = True
        world.gaps.missed(called("one", 10.0))
        world.gaps.missed(called("two", 20.0))
        world.is_down = False
        await until(lambda: world.taken and world.looks)
        assert (world.taken, world.looks) == (["one"], [20.0 - gaps.MARGIN - MOMENT])


async def test_more_than_can_be_remembered_is_not_looked_for_all_the_time_while_it_cannot_be_kept(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gaps, "MOST_MISSED", 1)
    now = await serve(places)
    async with world_of(places) as world:
        world.is_down, calls = True, [called("one", now + 1), called("two", now + 2)]
        world.finds = calls[1:]
        for call in calls:
            world.gaps.missed(call)
        await asyncio.sleep(0.2)
        assert len(world.looks) <= 1
        world.is_down = False
        await until(lambda: {"one", "two"} <= set(world.taken))


async def test_all_is_remembered_where_nothing_is_looked_for(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gaps, "MOST_MISSED", 1)
    async with world_of(places, hours=0) as world:
        now, world.is_down = time.time(), True
        for text, ago in (("one", 2), ("two", 1)):
            world.gaps.missed(called(text, now - ago))
        world.is_down = False
        await until(lambda: world.taken == ["one", "two"])


async def test_a_look_that_finds_no_end_is_given_up(
    places: Places, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(gaps, "LOOK_SECONDS", 1.0)
    await serve(places)
    async with world_of(places) as world:
        world.is_stuck, world.heard_at = True, 100.0
        world.gaps.open(50.0)
        await until(lambda: world.gaps._kept == 50.0)
        await until(lambda: world.gaps._kept == 100.0)
        assert "test: looking back took too long" in caplog.text
        assert len(world.looks) == 1


async def test_a_place_that_takes_long_does_not_keep_others_from_being_looked_at(places: Places) -> None:
    said = await serve(places)
    others = [f"test:{number}" for number in range(2 * gaps.AT_ONCE)]
    for place in others:
        await serve(places, place)
    async with world_of(places) as world:
        world.stuck_at = others[-1]
        world.finds = [called(place, said, place) for place in others]
        world.gaps.open(said - 1)
        await until(lambda: len(world.taken) == len(others) - 1)
    assert sorted(world.taken) == sorted(others[:-1])


async def test_a_place_that_cannot_be_looked_into_keeps_no_other_one_from_it_and_is_tried_again(
    places: Places,
) -> None:
    said = await serve(places)
    others = [f"test:{number}" for number in range(2 * gaps.AT_ONCE)]
    for place in others:
        await serve(places, place)
    async with world_of(places) as world:
        world.closed_at, world.heard_at = others[-1], time.time()  # it comes first
        world.finds = [called(place, said, place) for place in others]
        world.gaps.open(said - 1)
        await until(lambda: len(world.taken) == len(others) - 1)
        assert others[-1] not in world.taken
        assert world.gaps._is_open
        world.closed_at = ""
        await until(lambda: others[-1] in world.taken)
    assert set(world.taken) == set(others)


async def test_where_no_place_can_be_looked_into_not_each_of_them_is_tried(places: Places) -> None:
    for number in range(4 * gaps.AT_ONCE):
        await serve(places, f"test:{number}")
    async with world_of(places) as world:
        world.closed_at = "test:"
        world.gaps.open(time.time())
        await until(lambda: len(world.looks) > 1)
        assert world.closed <= 2 * gaps.AT_ONCE * len(world.looks)


async def test_what_takes_too_long_within_a_look_ends_no_look(places: Places) -> None:
    said = await serve(places)
    async with world_of(places) as world:
        world.closed_at, world.finds = PLACE, [called("unheard", said)]
        world.gaps.open(said - 1)
        await until(lambda: world.closed)
        world.closed_at = ""
        await until(lambda: world.taken == ["unheard"])


async def test_a_stop_breaks_a_look_off_and_leaves_it_to_the_next_process(places: Places) -> None:
    await serve(places)
    async with world_of(places) as world:
        world.is_stuck, world.heard_at = True, 100.0
        world.gaps.open(50.0)
        await until(lambda: world.looks)
    assert await places.heard_at("test") == 50.0


async def test_a_stop_ends_what_its_author_asked_before_and_is_found_after_it_but_no_command_nor_what_others_asked(
    places: Places,
) -> None:
    since = await serve(places)
    session = f"{PLACE}:1"

    def said(text: str, at: float, author: str = "grace") -> Call:
        return Call(inbound(text, session=session, sent_at=at, author=author), is_called=True)

    async with places._database.write() as connection:
        await note(connection, said("stop", since + 5).inbound, "command", kind="stop")
    calls = [said("a story", since), said("reset", since + 1), said("mine", since + 2, "ada"), said("now", since + 6)]
    found = await unheard(places, calls, {session}, {PLACE: 0.0}, since=0.0)
    assert [call.inbound.text for call in found] == ["reset", "mine", "now"]


async def test_who_does_not_want_it_has_nothing_looked_for(places: Places) -> None:
    async with world_of(places, hours=0) as world:
        world.heard_at = 100.0
        world.gaps.open(50.0)
        await until(lambda: world.gaps._kept == 100.0)
        assert world.looks == []


async def test_a_database_that_is_away_for_seconds_when_the_bot_begins_to_hear_ends_nothing(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard_at, sleep, failures = places.heard_at, asyncio.sleep, iter(range(8))

    async def away(part: str) -> float | None:
        if next(failures, None) is not None:
            raise StoreError("out of reach")
        return await heard_at(part)

    world = World(places, Bounds())
    monkeypatch.setattr(places, "heard_at", away)
    with monkeypatch.context() as quick:
        quick.setattr(asyncio, "sleep", lambda _: sleep(0))
        await world.gaps.start()
    await world.gaps.stop()
