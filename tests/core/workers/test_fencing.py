"""A worker that is only slow, and whose turn another one has meanwhile, stores nothing more and begins no tool."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions
from google.genai import types
from sqlalchemy.ext.asyncio import AsyncConnection

from core.agents.config import AgentConfig
from core.agents.factory import create_app, create_plugins
from core.agents.runtime import AgentRuntime, RunRequest
from core.errors import TurnLostError
from core.inbox.store import InboxStore
from core.models.provider import Done, Text, ToolCall
from core.models.tokens import TokenCounter
from core.sessions.history import INTERRUPTED
from core.sessions.lifecycle import begin_generation
from core.sessions.service import SessionService
from core.sessions.writer import StoredSession
from core.store.fast_path import Statement
from core.store.schema import messages, tool_calls
from core.store.schema import turns as turns_table
from core.tools.call_log import ToolCallLog, ToolInvocation
from core.tools.tool import Tool, to_adk_tool
from core.turns import claims
from core.turns.store import TurnStore
from core.turns.turn import Turn
from tests.core.conftest import Faulty, with_tables, worker_on
from tests.core.sessions.events import answer_ids, answered, call_ids, called, replied, said, texts
from tests.fixtures.conversation import ScriptedProvider, adapter
from tests.fixtures.inbox_messages import inbound

APP, PLACE, SESSION = "app", "place", "place:1"


class Slow(Faulty):
    """Before what it is asked for the `slow`-th time, something else is done.

    Attributes:
        meanwhile: what is done then.
        met: what was being asked for.
    """

    slow = 0
    meanwhile: Callable[[], Coroutine[Any, Any, None]] | None = None
    met = ""

    async def run(self, statement: Statement, **values: Any) -> list[tuple[Any, ...]]:
        await self._wait("statement")
        return await super().run(statement, **values)

    @asynccontextmanager
    async def write(self) -> AsyncIterator[AsyncConnection]:
        await self._wait("transaction")
        async with super().write() as connection:
            yield connection

    async def _wait(self, what: str) -> None:
        self.slow -= 1
        if not self.slow and self.meanwhile is not None:
            meanwhile, self.meanwhile, self.met = self.meanwhile, None, what
            await asyncio.create_task(meanwhile())


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Slow]:
    async with with_tables(Slow(database_url)) as database:
        yield database


@pytest.fixture
def sessions(database: Slow, tmp_path: Path) -> SessionService:
    return SessionService(database, TokenCounter(tmp_path), agent=APP)


@pytest.fixture
async def turn(inbox: InboxStore, turns: TurnStore) -> Turn:
    """One that `turns` has claimed."""
    await inbox.accept(inbound())
    (turn,) = await turns.claim(1)
    return turn


async def loaded(sessions: SessionService, turns: TurnStore, turn: Turn) -> StoredSession:
    """The session, for a run of the turn."""
    session = await sessions.get_session(app_name=APP, user_id=PLACE, session_id=SESSION)
    assert isinstance(session, StoredSession)
    session.fence = turns.fencing_token(turn)
    return session


async def taken(turns: TurnStore, database: Slow) -> tuple[TurnStore, Turn]:
    """Another worker, and the turn that it has when the lease of the first one has ended."""
    await turns._lease.release()
    other = await worker_on(database)
    for _ in range(1_000):  # PostgreSQL: a turn that the former one writes for just then is passed over
        if claimed := await other.claim(1):
            return other, claimed[0]
        await asyncio.sleep(0.01)
    raise AssertionError("nobody takes it up")


def call(turns: TurnStore, turn: Turn) -> ToolInvocation:
    return ToolInvocation(SESSION, 1, turn.origin, "c1", "pay", {"sum": 3}, turns.fencing_token(turn))


async def count(database: Slow, table: sa.Table) -> int:
    async with database.read() as connection:
        return int((await connection.execute(sa.select(sa.func.count()).select_from(table))).scalar_one())


def image() -> Event:
    part = types.Part(inline_data=types.Blob(mime_type="image/png", data=b"\x89" * 500))
    return Event(author="user", content=types.Content(role="user", parts=[part]))


KINDS: dict[str, Callable[[], Event]] = {
    "words": lambda: replied("late"),
    "bytes": image,
    "state": lambda: replied("late", actions=EventActions(state_delta={"a": 1})),
    "state alone": lambda: Event(author="bot", actions=EventActions(state_delta={"a": 1, "user:b": 2})),
    "answer": lambda: answered("c"),
}


@pytest.mark.parametrize("kind", KINDS)
async def test_writes_of_a_former_owner_are_refused(
    sessions: SessionService, database: Slow, turns: TurnStore, turn: Turn, kind: str
) -> None:
    late = await loaded(sessions, turns, turn)
    for event in (said("hello", invocation_id=turn.origin), called("c", long_running_tool_ids={"c"})):
        await sessions.append_event(late, event)
    other, again = await taken(turns, database)
    with pytest.raises(TurnLostError):
        await sessions.append_event(late, KINDS[kind]())
    session = await loaded(sessions, other, again)
    assert (len(session.events), session.state) == (2, {})
    await sessions.append_event(session, KINDS[kind]())
    session = await loaded(sessions, other, again)
    assert (session.state != {}) == ("state" in kind)
    assert len(session.events) == (2 if kind == "state alone" else 3)


async def test_the_former_owner_neither_begins_nor_ends_a_tool(database: Slow, turns: TurnStore, turn: Turn) -> None:
    journal, late = ToolCallLog(database), call(turns, turn)
    assert await journal.begin(late) is None
    other, again = await taken(turns, database)
    for write in (journal.begin(late), journal.end(late, "paid", EventActions())):
        with pytest.raises(TurnLostError):
            await write
    entry = await journal.begin(call(other, again))
    assert entry is not None
    assert not entry.has_ended
    await journal.end(call(other, again), "broken off", EventActions())
    await journal.end(call(other, again), "twice", EventActions())
    entry = await journal.begin(call(other, again))
    assert entry is not None
    assert entry.result == "broken off"


async def test_who_was_slow_sees_that_the_turn_is_another_ones_before_he_shows_more(
    database: Slow, turns: TurnStore, turn: Turn
) -> None:
    await turns.check_owned(turn)
    turns._lease._until = 0.0
    await turns.check_owned(turn)
    await taken(turns, database)
    with pytest.raises(TurnLostError):
        await turns.check_owned(turn)


async def test_who_waits_for_the_claim_to_be_committed_is_refused_then(
    sessions: SessionService, database: Slow, turns: TurnStore, turn: Turn
) -> None:
    late, journal = await loaded(sessions, turns, turn), ToolCallLog(database)
    await turns._lease.release()
    other = await worker_on(database)
    async with database.write() as connection:
        assert await claims._claim_abandoned(connection, other._lease, 1, ())
        writes: list[Coroutine[Any, Any, object]] = [
            sessions.append_event(late, replied("late")),
            sessions.append_event(late, replied("late", actions=EventActions(state_delta={"a": 1}))),
            journal.begin(call(turns, turn)),
        ]
        waiting = [asyncio.ensure_future(write) for write in writes]
        done, _ = await asyncio.wait(waiting, timeout=0.1)
        assert not done
    outcomes = await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), 30)
    assert [type(outcome) for outcome in outcomes] == [TurnLostError] * 3
    assert (await count(database, messages), await count(database, tool_calls)) == (0, 0)


@pytest.mark.parametrize("delay", [0, 1, 2, 4, 8])
async def test_of_two_workers_exactly_one_begins_a_tool(
    database: Slow, turns: TurnStore, turn: Turn, delay: int
) -> None:
    journal = ToolCallLog(database)
    begun = []

    async def former() -> None:
        await asyncio.sleep(delay / 1000)
        try:
            begun.append(await journal.begin(call(turns, turn)) is None)
        except TurnLostError:
            begun.append(False)

    async def new() -> None:
        other, again = await taken(turns, database)
        begun.append(await journal.begin(call(other, again)) is None)

    await asyncio.wait_for(asyncio.gather(former(), new()), 30)
    assert sorted(begun) == [False, True]


async def test_one_that_was_handed_back_is_the_next_ones_alone(
    sessions: SessionService, database: Slow, turns: TurnStore, turn: Turn
) -> None:
    late = await loaded(sessions, turns, turn)
    await turns.hand_back(turn)
    with pytest.raises(TurnLostError):
        await sessions.append_event(late, replied("late"))
    other, again = await taken(turns, database)
    await sessions.append_event(await loaded(sessions, other, again), replied("new"))
    with pytest.raises(TurnLostError):
        await sessions.append_event(late, replied("late"))


@dataclass
class Crew:
    """Two workers that run the same agent, each with a runtime of its own."""

    sessions: SessionService
    database: Slow
    turns: TurnStore
    paid: int = 0

    async def run(self, turns: TurnStore, turn: Turn) -> BaseException | None:
        """The error with which a run of the turn has ended, if one."""
        provider = ScriptedProvider([Text("To pay."), ToolCall("c1", "pay", {}), Done()], "Paid.")
        if any(event.get_function_calls() for event in (await loaded(self.sessions, turns, turn)).events):
            provider.answers.pop(0)

        async def pay(_arguments: dict[str, Any]) -> str:
            self.paid += 1
            return "paid"

        app = create_app(
            AgentConfig(name=APP),
            model=adapter(provider),
            tools=[to_adk_tool(Tool("pay", "Pays.", pay))],
            plugins=create_plugins(ToolCallLog(self.database)),
        )
        runtime = AgentRuntime(app, self.sessions)
        events = [
            event
            async for event in runtime.stream(
                RunRequest(
                    user_id=PLACE,
                    session_id=SESSION,
                    text="Pay!",
                    run_id=turn.origin,
                    generation=turn.generation,
                    fence=turns.fencing_token(turn),
                )
            )
        ]
        await runtime.aclose()
        return events[-1].error

    async def take_over(self) -> None:
        other, again = await taken(self.turns, self.database)
        assert await self.run(other, again) is None


async def test_a_lease_that_ends_at_any_point_leaves_one_run_and_one_tool_call(
    sessions: SessionService, database: Slow, turns: TurnStore, turn: Turn
) -> None:
    met, place = list[str](), 0
    while True:
        place += 1
        crew = Crew(sessions, database, turns)
        database.meanwhile, database.slow = crew.take_over, place
        error = await crew.run(turns, turn)
        database.slow = 0
        if not database.met:  # the run has ended before
            assert error is None
            break
        met.append(database.met)
        database.met = ""
        assert isinstance(error, TurnLostError), place
        events = (await loaded(sessions, turns, turn)).events
        assert texts(events)[0] == "Pay!"
        assert texts(events)[-1] == "Paid."
        assert texts(events).count("Paid.") == 1
        assert call_ids(events) == answer_ids(events) == ["c1"]
        (response,) = (answer.response for event in events for answer in event.get_function_responses())
        assert crew.paid == 1 or (crew.paid == 0 and response == {"error": INTERRUPTED})
        turn = replace(turn, generation=turn.generation + 1)
        async with database.write() as connection:  # all is as it was before
            await begin_generation(connection, SESSION)
            anew = {"owner": turns.worker_id, "claim_number": turn.claim_number, "generation": turn.generation}
            await connection.execute(sa.update(turns_table).values(**anew))
        await turns._lease.acquire()
    assert {"statement", "transaction"} == set(met)
    assert len(met) >= 6
