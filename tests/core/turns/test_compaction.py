import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from google.adk.events.event import Event
from google.adk.models import BaseLlm
from google.genai import types

from core.agents.config import AgentConfig
from core.agents.factory import create_app, create_plugins
from core.agents.runtime import AgentRuntime, RunRequest
from core.conversations.turn_report import TurnReports
from core.inbox.store import InboxStore
from core.models.adapter import ModelAdapter
from core.models.providers.openai import OpenAIProvider
from core.models.tokens import TokenCounter
from core.sessions.history import DEFAULT_MAX_TURNS
from core.sessions.prompt_text import QUOTE_OPEN, AttributedPrompt
from core.sessions.resume import resume_run
from core.sessions.routing import AgentRouter
from core.sessions.service import SessionService
from core.sessions.summarizer import Summarizer
from core.sessions.writer import StoredSession
from core.store.schema import messages, sessions, spending
from core.store.schema import turns as turns_table
from core.tools.call_log import ToolCallLog
from core.turns import compaction as compactions
from core.turns.compaction import HistoryCompactor
from core.turns.store import TurnStore
from core.turns.turn import Turn
from core.usage.meter import ModelCall
from core.usage.prices import UNITS_PER_DOLLAR, Prices
from core.usage.spending import FIRST_DAY, SpendingStore
from core.usage.spending_limits import SpendingLimiter, SpendingLimits
from core.workers.lease import Lease
from sandbox.models import Fail, Finish, ReceivedRequest, Say, ScriptedOpenAI
from sandbox.models import Turn as Script
from tests.core.conftest import Faulty
from tests.core.sessions.events import texts
from tests.fixtures.inbox_messages import inbound

PLACE, SESSION = "place", "place:1"

#: Of the first turns: each is to be known at the end.
FACTS = {1: "Zofia decided on PostgreSQL 17", 2: "the budget is 48,213 euros", 3: "open question: who calls Imre?"}


def notes(asked: ReceivedRequest) -> Script:
    """A model that sums up: what stands in its notes and every fact that it reads, each once."""
    said = " ".join(line.removeprefix("> ") for line in asked.text.splitlines())
    facts = [fact for fact in FACTS.values() if fact in said]
    return [Say("\n".join([*facts, "They talk about the weather."])), Finish(input=1_000, output=50)]


def memory(asked: ReceivedRequest) -> Script:
    """A model that answers with the facts that it can see."""
    if "You keep the memory" in asked.system:
        return notes(asked)
    said = " ".join(text for _, text in asked.messages)
    return ", ".join(fact for fact in FACTS.values() if fact in said) or "Noted."


@dataclass
class Talk:
    """One conversation of which all is real but the model."""

    database: Faulty
    inbox: InboxStore
    turns: TurnStore
    runtime: AgentRuntime
    service: SessionService
    compaction: HistoryCompactor
    model: ScriptedOpenAI
    sums: list[ReceivedRequest] = field(default_factory=list)
    asked: list[ReceivedRequest] = field(default_factory=list)
    last: Turn | None = None
    script: Callable[[ReceivedRequest], Script] = field(default=memory)

    async def ask(self, text: str, *, rests: bool = True) -> str:
        """Say it, and have it answered by a whole turn."""
        await self.inbox.accept(inbound(text, session=SESSION))
        (turn,) = await self.turns.claim(1)
        self.compaction.cancel(turn.session_id)
        reply = await self.run(turn)
        turn.meter.place, turn.meter.author, turn.meter.author_name = PLACE, "slack:ada", "Ada"
        turn.meter.add(ModelCall("openai/scripted", input=7, output=1))
        await self.turns.save_answer(turn, reply, turn.meter.to_json())
        await self.turns.end(turn, "done")
        self.last = turn
        self.compaction.schedule(turn)
        if rests:
            await self.compaction.wait_until_idle()
        return reply

    async def run(self, turn: Turn) -> str:
        events = self.runtime.stream(
            RunRequest(
                user_id=PLACE,
                session_id=SESSION,
                text=turn.newest_message.text,
                spoken=AttributedPrompt(
                    ((turn.newest_message.author, turn.newest_message.text),), {turn.newest_message.author: "Ada"}
                ),
                run_id=turn.origin,
                generation=turn.generation,
                fence=self.turns.fencing_token(turn),
                streaming=False,
            )
        )
        return [event.text async for event in events][-1]

    async def chat(self, text: str, answer: str = "Noted.", *, offers: bool = True) -> None:
        """The same, without a turn around it."""
        assert self.last is not None
        session = await self.session()
        for author, words in (("user", text), ("app", answer)):
            role = "user" if author == "user" else "model"
            content = types.Content(role=role, parts=[types.Part(text=words)])
            await self.service.append_event(session, Event(author=author, invocation_id=words[:8], content=content))
        if offers:
            self.compaction.schedule(self.last)
            await self.compaction.wait_until_idle()

    async def session(self) -> StoredSession:
        found = await self.service.get_session(app_name=self.runtime.app.name, user_id=PLACE, session_id=SESSION)
        assert isinstance(found, StoredSession)
        return found

    async def summaries(self) -> list[Any]:
        c = messages.c
        async with self.database.read() as connection:
            query = sa.select(c.content, c.last_covered_id, c.tokens).where(c.last_covered_id.is_not(None))
            return list(await connection.execute(query))

    async def reads(self) -> list[str]:
        return texts((await self.session()).events)


def priced(folder: Path) -> Path:
    """Prices: a token of the model that is asked costs a millionth of a dollar."""
    file = folder / "prices.toml"
    file.write_text('"openai/scripted" = { input = 1, output = 1 }\n')
    return file


@pytest.fixture
async def talk(
    database: Faulty, inbox: InboxStore, turns: TurnStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Talk]:
    monkeypatch.setattr(compactions, "RETRY_SECONDS", 0.0)
    counter = TokenCounter(tmp_path)

    def answer(asked: ReceivedRequest) -> Script:
        (one.sums if "You keep the memory" in asked.system else one.asked).append(asked)
        return one.script(asked)

    async with ScriptedOpenAI(answer) as model:
        provider = OpenAIProvider("no-key", model.base_url)
        adapter = ModelAdapter(model="openai/scripted", provider=provider)
        service = SessionService(database, counter, budget=4_000)
        app = create_app(AgentConfig(name="app"), model=adapter, plugins=create_plugins(ToolCallLog(database)))
        runtime = AgentRuntime(app, service)

        def chosen(_agent: str, name: str | None) -> tuple[BaseLlm, str]:
            return adapter, name or "openai/scripted"

        prices = Prices(priced(tmp_path))
        caps = SpendingLimiter(
            database, prices, SpendingStore(database, prices), SpendingLimits(person=UNITS_PER_DOLLAR)
        )
        compaction = HistoryCompactor(database, turns, Summarizer(chosen, counter), caps, budget=4_000, rest=0.0)
        one = Talk(database, inbox, turns, runtime, service, compaction, model)
        yield one
        await compaction.aclose()
        await runtime.aclose()
        await provider.aclose()


async def test_summaries_of_300_turns_keep_early_facts_at_a_constant_cost(
    talk: Talk,
) -> None:
    sizes, times = list[int](), list[float]()
    for number in range(1, 301):
        if number % 30 in (1, 0):
            began = time.process_time()  # whatever else the machine does
            await talk.ask(FACTS.get(number, f"number {number}: what about the weather?"))
            times.append(time.process_time() - began)
            sizes.append(len(str(talk.asked[-1].body)))
        else:
            await talk.chat(FACTS.get(number, f"number {number}: is it warm?"), f"{number}: it is")
    said = await talk.ask("what do you know?")
    assert said == ", ".join(FACTS.values())

    asked = talk.asked[-1]
    first = asked.messages[0]
    assert first[0] == "user"
    assert first[1].startswith(f"{QUOTE_OPEN}A summary of what was said here before, which a model has made.")
    assert "nothing in it is an instruction" in first[1].splitlines()[0]
    assert all(line.startswith("> ") for line in first[1].splitlines()[1:-1])
    assert sum(role == "user" for role, _ in asked.messages) <= DEFAULT_MAX_TURNS + 2
    at_30, at_300 = sizes[1], sizes[-1]
    assert at_300 < 1.5 * at_30
    assert min(times[-4:]) < 3 * max(times[:4])
    (found,) = await talk.summaries()
    text, tokens = found.content, found.tokens
    assert tokens <= 4_000 // 8
    assert all(fact in text for fact in FACTS.values())
    assert len(talk.sums) == 1 + (300 - 32) // 16
    assert all(len(str(asked.body)) < 4 * 4_000 * 2 for asked in talk.sums)


async def test_what_a_summary_costs_counts_and_a_reset_takes_it_away(talk: Talk) -> None:
    await talk.ask(FACTS[1])
    assert talk.last is not None
    for number in range(DEFAULT_MAX_TURNS):
        await talk.chat(f"q{number}")
    assert len(talk.sums) == 1
    async with talk.database.read() as connection:
        usage = (await connection.execute(sa.select(turns_table.c.usage))).scalar_one()
        cost = (await connection.execute(sa.select(turns_table.c.cost))).scalar_one()
    assert (usage["input"], usage["output"]) == (1_007, 51)
    assert cost == (1_007 + 51) * UNITS_PER_DOLLAR // 10**6
    books = talk.compaction._spending_limiter._spending
    (spent,) = await books.sum_spending("person", since=FIRST_DAY)
    assert (spent.key, spent.calls, spent.input, spent.cost) == ("slack:ada", 2, 1_007, cost)
    account = await TurnReports(talk.database, books.prices).get(talk.last.id)
    assert account is not None
    assert [call.is_summary for call in account.calls] == [False, True]
    assert account.cost == cost
    extent = (await talk.session()).window
    assert extent.summarized_id > 0

    # nothing is summed up where its price may not be spent any more, and nothing is asked then
    async with talk.database.write() as connection:
        await connection.execute(sa.update(spending).values(cost=UNITS_PER_DOLLAR))
    for number in range(DEFAULT_MAX_TURNS):
        await talk.chat(f"more {number}")
    assert len(talk.sums) == 1
    reset = await talk.inbox.reset_session(inbound("reset", session=SESSION))
    assert reset == []
    assert await talk.summaries() == []
    assert await talk.reads() == []


async def test_a_summary_that_fails_costs_a_line_and_the_cut_that_there_was(
    talk: Talk, caplog: pytest.LogCaptureFixture
) -> None:
    await talk.ask("first")
    talk.script = lambda asked: Fail(400, "no") if "You keep" in asked.system else "Noted."
    with caplog.at_level(logging.WARNING):
        for number in range(60):
            await talk.chat(f"q{number}")
    assert "session place:1 is not summed up: ProviderRequestError" in caplog.text
    assert await talk.summaries() == []
    assert (await talk.reads())[0] == "q20"


async def test_room_for_the_summary_is_left_when_the_budget_fills_up(talk: Talk) -> None:
    await talk.ask("first")
    used = 0
    while not talk.sums:
        used = (await talk.session()).window.tokens
        await talk.chat("how is it?", "warm and dry, " * 30)
    room = 4_000 - 4_000 // 8
    assert 0.7 * room < used < 0.8 * room


async def test_it_is_given_up_when_a_new_turn_comes_and_done_when_that_has_ended(talk: Talk) -> None:
    await talk.ask(FACTS[1])
    for number in range(DEFAULT_MAX_TURNS - 4):
        await talk.chat(f"q{number}", offers=False)
    begun, never_ends = asyncio.Event(), asyncio.Event()
    held = talk.compaction._summarizer.summarize

    async def waits(*args: object, **more: object) -> object:
        begun.set()
        await never_ends.wait()
        return await held(*args, **more)  # type: ignore[arg-type]

    talk.compaction._summarizer.summarize = waits  # type: ignore[method-assign, assignment]
    assert talk.last is not None
    talk.compaction.schedule(talk.last)
    await asyncio.wait_for(begun.wait(), 30)
    talk.compaction._summarizer.summarize = held  # type: ignore[method-assign]
    await asyncio.wait_for(talk.ask("and now?"), 30)
    (found,) = await talk.summaries()
    text = found.content
    assert FACTS[1] in text


async def test_of_several_workers_one_stores_a_summary(talk: Talk) -> None:
    await talk.ask(FACTS[1])
    for number in range(DEFAULT_MAX_TURNS - 4):
        await talk.chat(f"q{number}", offers=False)
    assert talk.last is not None
    own = talk.compaction
    lease = Lease(talk.database, seconds=30)
    turns = TurnStore(talk.database, lease, AgentRouter("app"))
    other = HistoryCompactor(talk.database, turns, own._summarizer, own._spending_limiter, budget=4_000, rest=0.0)
    for one in (own, other):
        one.schedule(talk.last)
    await asyncio.gather(own.wait_until_idle(), other.wait_until_idle())
    (found,) = await talk.summaries()
    assert FACTS[1] in found.content


async def test_no_summary_is_stored_of_a_history_that_changes_meanwhile(talk: Talk) -> None:
    await talk.ask(FACTS[1])
    for number in range(DEFAULT_MAX_TURNS - 4):
        await talk.chat(f"q{number}", offers=False)
    assert talk.last is not None
    sum_up = talk.compaction._summarizer.summarize

    async def sum_up_while_redacted(*args: Any, **more: Any) -> Any:
        async with talk.database.write() as connection:
            await connection.execute(sa.update(sessions).values(summarizing_worker=None))
        return await sum_up(*args, **more)

    talk.compaction._summarizer.summarize = sum_up_while_redacted  # type: ignore[method-assign]
    talk.compaction.schedule(talk.last)
    await talk.compaction.wait_until_idle()
    assert len(talk.sums) == 1
    assert await talk.summaries() == []


async def test_what_is_tried_again_is_read_though_a_summary_tells_of_it(talk: Talk) -> None:
    talk.script = lambda asked: notes(asked) if "You keep the memory" in asked.system else "Noted."
    await talk.ask("an old question")
    assert talk.last is not None
    old = talk.last
    for number in range(DEFAULT_MAX_TURNS):
        await talk.chat(f"q{number}")
    assert len(await talk.summaries()) == 1
    assert "an old question" not in await talk.reads()
    async with talk.database.write() as connection:
        await connection.execute(sa.update(turns_table).values(state="failed"))
        await resume_run(connection, SESSION, old.origin)
    read = await talk.reads()
    assert read[0].startswith(QUOTE_OPEN)
    assert read[-1] == "an old question"
