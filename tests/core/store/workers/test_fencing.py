"""Fencing: a worker that lost its turn stores nothing, and begins no tool."""

import asyncio
import time
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
from core.sessions.history import INTERRUPTED_ERROR
from core.sessions.lifecycle import begin_generation
from core.sessions.service import SessionService
from core.sessions.writer import StoredSession
from core.store.database import Rows
from core.store.schema import messages, tool_calls
from core.store.schema import turns as turns_table
from core.tools.call_log import ToolCallLog
from core.tools.tool import Tool, to_adk_tool
from core.turns import claims
from core.turns.automation.jobs import ToolInvocation
from core.turns.store import TurnStore
from core.turns.turn import Turn
from tests.core.conftest import FailingDatabase, count_rows, create_turn_store, open_database
from tests.core.sessions.events import (
    call_event,
    list_call_ids,
    list_response_ids,
    list_texts,
    model_event,
    response_event,
    user_event,
)
from tests.fixtures.conversation import ScriptedProvider, adapter
from tests.fixtures.inbox_messages import inbound

APP, PLACE, SESSION = "app", "place", "place:1"


class HookedDatabase(FailingDatabase):
    """Database that runs a hook before one of its calls.

    Attributes:
        calls_until_hook: number of the call that the hook precedes; 1 is the next one.
        hook: called once.
        hooked_call: kind of the call that the hook preceded; "" before it.
    """

    calls_until_hook = 0
    hook: Callable[[], Coroutine[Any, Any, None]] | None = None
    hooked_call = ""

    async def run(self, statement: sa.Executable, **values: Any) -> Rows:
        await self._count_call("statement")
        return await super().run(statement, **values)

    @asynccontextmanager
    async def write(self) -> AsyncIterator[AsyncConnection]:
        await self._count_call("transaction")
        async with super().write() as connection:
            yield connection

    async def _count_call(self, kind: str) -> None:
        self.calls_until_hook -= 1
        if not self.calls_until_hook and self.hook is not None:
            hook, self.hook, self.hooked_call = self.hook, None, kind
            await asyncio.create_task(hook())


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[HookedDatabase]:
    async with open_database(HookedDatabase(database_url)) as database:
        yield database


@pytest.fixture
def sessions(database: HookedDatabase, tmp_path: Path) -> SessionService:
    return SessionService(database, TokenCounter(tmp_path), agent=APP)


@pytest.fixture
async def turn(inbox: InboxStore, turns: TurnStore) -> Turn:
    """Return a turn that the worker of the fixture `turns` has claimed."""
    await inbox.accept(inbound())
    (turn,) = await turns.claim(1)
    return turn


async def load_session(sessions: SessionService, turns: TurnStore, turn: Turn) -> StoredSession:
    """Return the session as a run of the turn loads it, with the turn's fencing token."""
    session = await sessions.get_session(app_name=APP, user_id=PLACE, session_id=SESSION)
    assert isinstance(session, StoredSession)
    session.fence = turns.fencing_token(turn)
    return session


async def take_over_turn(turns: TurnStore, database: HookedDatabase) -> tuple[TurnStore, Turn]:
    """End the first worker's lease, and let another worker claim its turn.

    Returns:
        The other worker's turn store, and the turn.
    """
    await turns._lease.release()
    other = await create_turn_store(database)
    for _ in range(1_000):  # PostgreSQL: a claim skips a turn for which the former worker just writes
        if claimed := await other.claim(1):
            return other, claimed[0]
        await asyncio.sleep(0.01)
    raise AssertionError("no worker claims the turn")


def create_invocation(turns: TurnStore, turn: Turn) -> ToolInvocation:
    return ToolInvocation(SESSION, 1, turn.origin, "c1", "pay", {"sum": 3}, turns.fencing_token(turn))


def create_image_event() -> Event:
    part = types.Part(inline_data=types.Blob(mime_type="image/png", data=b"\x89" * 500))
    return Event(author="user", content=types.Content(role="user", parts=[part]))


KINDS: dict[str, Callable[[], Event]] = {
    "words": lambda: model_event("late"),
    "bytes": create_image_event,
    "state": lambda: model_event("late", actions=EventActions(state_delta={"a": 1})),
    "state alone": lambda: Event(author="bot", actions=EventActions(state_delta={"a": 1, "user:b": 2})),
    "answer": lambda: response_event("c"),
}


@pytest.mark.parametrize("kind", KINDS)
async def test_writes_of_a_former_owner_are_refused(
    sessions: SessionService, database: HookedDatabase, turns: TurnStore, turn: Turn, kind: str
) -> None:
    late = await load_session(sessions, turns, turn)
    for event in (user_event("hello", invocation_id=turn.origin), call_event("c", long_running_tool_ids={"c"})):
        await sessions.append_event(late, event)
    other, reclaimed = await take_over_turn(turns, database)
    with pytest.raises(TurnLostError):
        await sessions.append_event(late, KINDS[kind]())
    session = await load_session(sessions, other, reclaimed)
    assert (len(session.events), session.state) == (2, {})
    await sessions.append_event(session, KINDS[kind]())
    session = await load_session(sessions, other, reclaimed)
    assert (session.state != {}) == ("state" in kind)
    assert len(session.events) == (2 if kind == "state alone" else 3)


async def test_the_former_owner_neither_begins_nor_ends_a_tool(
    database: HookedDatabase, turns: TurnStore, turn: Turn
) -> None:
    journal, late = ToolCallLog(database), create_invocation(turns, turn)
    assert await journal.begin(late) is None
    other, reclaimed = await take_over_turn(turns, database)
    for write in (journal.begin(late), journal.end(late, "paid", EventActions())):
        with pytest.raises(TurnLostError):
            await write
    entry = await journal.begin(create_invocation(other, reclaimed))
    assert entry is not None
    assert not entry.has_ended
    await journal.end(create_invocation(other, reclaimed), "broken off", EventActions())
    await journal.end(create_invocation(other, reclaimed), "twice", EventActions())
    entry = await journal.begin(create_invocation(other, reclaimed))
    assert entry is not None
    assert entry.result == "broken off"


async def test_a_slow_worker_shows_nothing_more_once_another_worker_has_its_turn(
    database: HookedDatabase, turns: TurnStore, turn: Turn
) -> None:
    await turns.check_owned(turn)
    turns._lease._until = 0.0
    await turns.check_owned(turn)
    await take_over_turn(turns, database)
    with pytest.raises(TurnLostError):
        await turns.check_owned(turn)


async def test_writes_that_wait_for_another_workers_claim_are_refused(
    sessions: SessionService, database: HookedDatabase, turns: TurnStore, turn: Turn
) -> None:
    late, journal = await load_session(sessions, turns, turn), ToolCallLog(database)
    await turns._lease.release()
    other = await create_turn_store(database)
    async with database.write() as connection:
        assert await claims._claim_abandoned(
            connection,
            {"worker": other.worker_id, "may_take_over": True, "now": time.time(), "running": [], "limit": 1},
        )
        writes: list[Coroutine[Any, Any, object]] = [
            sessions.append_event(late, model_event("late")),
            sessions.append_event(late, model_event("late", actions=EventActions(state_delta={"a": 1}))),
            journal.begin(create_invocation(turns, turn)),
        ]
        waiting = [asyncio.ensure_future(write) for write in writes]
        done, _ = await asyncio.wait(waiting, timeout=0.1)
        assert not done
    outcomes = await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), 30)
    assert [type(outcome) for outcome in outcomes] == [TurnLostError] * 3
    assert (await count_rows(database, messages), await count_rows(database, tool_calls)) == (0, 0)


@pytest.mark.parametrize("delay", [0, 1, 2, 4, 8])
async def test_of_two_workers_exactly_one_begins_a_tool(
    database: HookedDatabase, turns: TurnStore, turn: Turn, delay: int
) -> None:
    journal = ToolCallLog(database)
    started = []

    async def begin_as_former_owner() -> None:
        await asyncio.sleep(delay / 1000)
        try:
            started.append(await journal.begin(create_invocation(turns, turn)) is None)
        except TurnLostError:
            started.append(False)

    async def begin_as_new_owner() -> None:
        other, reclaimed = await take_over_turn(turns, database)
        started.append(await journal.begin(create_invocation(other, reclaimed)) is None)

    await asyncio.wait_for(asyncio.gather(begin_as_former_owner(), begin_as_new_owner()), 30)
    assert sorted(started) == [False, True]


async def test_a_turn_that_was_handed_back_belongs_to_the_next_worker_alone(
    sessions: SessionService, database: HookedDatabase, turns: TurnStore, turn: Turn
) -> None:
    late = await load_session(sessions, turns, turn)
    await turns.hand_back(turn)
    with pytest.raises(TurnLostError):
        await sessions.append_event(late, model_event("late"))
    other, reclaimed = await take_over_turn(turns, database)
    await sessions.append_event(await load_session(sessions, other, reclaimed), model_event("new"))
    with pytest.raises(TurnLostError):
        await sessions.append_event(late, model_event("late"))


@dataclass
class WorkerPair:
    """Two workers with the same agent, each with a runtime of its own.

    Attributes:
        turns: the turn store of the first worker.
        paid: the number of payments by the agent's tool.
    """

    sessions: SessionService
    database: HookedDatabase
    turns: TurnStore
    paid: int = 0

    async def run(self, turns: TurnStore, turn: Turn) -> BaseException | None:
        """Run the agent for a turn, and return the error that ended the run, or None."""
        provider = ScriptedProvider([Text("To pay."), ToolCall("c1", "pay", {}), Done()], "Paid.")
        if any(event.get_function_calls() for event in (await load_session(self.sessions, turns, turn)).events):
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
        other, reclaimed = await take_over_turn(self.turns, self.database)
        assert await self.run(other, reclaimed) is None


async def test_a_lease_that_ends_at_any_point_leaves_one_run_and_one_tool_call(
    sessions: SessionService, database: HookedDatabase, turns: TurnStore, turn: Turn
) -> None:
    met, place = list[str](), 0
    while True:
        place += 1
        pair = WorkerPair(sessions, database, turns)
        database.hook, database.calls_until_hook = pair.take_over, place
        error = await pair.run(turns, turn)
        database.calls_until_hook = 0
        if not database.hooked_call:  # the run ended before the hook's call
            assert error is None
            break
        met.append(database.hooked_call)
        database.hooked_call = ""
        assert isinstance(error, TurnLostError), place
        events = (await load_session(sessions, turns, turn)).events
        assert list_texts(events)[0] == "Pay!"
        assert list_texts(events)[-1] == "Paid."
        assert list_texts(events).count("Paid.") == 1
        assert list_call_ids(events) == list_response_ids(events) == ["c1"]
        (response,) = (answer.response for event in events for answer in event.get_function_responses())
        assert pair.paid == 1 or (pair.paid == 0 and response == {"error": INTERRUPTED_ERROR})
        turn = replace(turn, generation=turn.generation + 1)
        async with database.write() as connection:  # restore the first state
            await begin_generation(connection, SESSION)
            anew = {"owner": turns.worker_id, "claim_number": turn.claim_number, "generation": turn.generation}
            await connection.execute(sa.update(turns_table).values(**anew))
        await turns._lease.acquire()
    assert {"statement", "transaction"} == set(met)
    assert len(met) >= 6
