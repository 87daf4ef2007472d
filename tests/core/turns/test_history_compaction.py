import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from google.adk.events.event import Event
from google.adk.models import BaseLlm
from google.genai import types

from chatrig.models import Fail, Finish, ReceivedRequest, Say, ScriptedOpenAI, ScriptedResponse
from core.agents.config import AgentConfig
from core.agents.factory import create_app, create_plugins
from core.agents.runtime import AgentRuntime, RunRequest
from core.conversations.turn_report import TurnReports
from core.inbox.store import InboxStore
from core.models.adapter import ModelAdapter
from core.models.providers.openai import OpenAIProvider
from core.models.tokens import TokenCounter
from core.sessions.agent_routing import AgentRouter
from core.sessions.history import DEFAULT_MAX_TURNS
from core.sessions.history_summary import Summarizer
from core.sessions.prompt_text import QUOTE_OPEN, AttributedPrompt
from core.sessions.resume import resume_run
from core.sessions.service import SessionService
from core.sessions.writer import StoredSession
from core.store.schema import messages, spending
from core.store.schema import turns as turns_table
from core.store.workers.lease import Lease
from core.tools.call_log import ToolCallLog
from core.turns import history_compaction as compactions
from core.turns.history_compaction import HistoryCompactor
from core.turns.store import TurnStore
from core.turns.turn import Turn
from core.usage.meter import ModelCall
from core.usage.prices import UNITS_PER_DOLLAR, Prices
from core.usage.spending_ledger import FIRST_DAY, SpendingStore
from core.usage.spending_limits import SpendingLimiter, SpendingLimits
from tests.core.conftest import FailingDatabase
from tests.core.sessions.events import list_texts
from tests.fixtures.inbox_messages import inbound

PLACE, SESSION = "place", "place:1"

#: Facts of the first turns, by number; the model must know each at the end.
FACTS = {1: "Zofia decided on PostgreSQL 17", 2: "the budget is 48,213 euros", 3: "open question: who calls Imre?"}


def summarize(request: ReceivedRequest) -> ScriptedResponse:
    """Answer a summary request with each known fact in its messages, once."""
    text = " ".join(line.removeprefix("> ") for line in request.text.splitlines())
    facts = [fact for fact in FACTS.values() if fact in text]
    return [Say("\n".join([*facts, "They talk about the weather."])), Finish(input=1_000, output=50)]


def answer_from_memory(request: ReceivedRequest) -> ScriptedResponse:
    """Answer a summary request, or answer with the known facts in the history."""
    if "You keep notes" in request.system:
        return summarize(request)
    history = " ".join(text for _, text in request.messages)
    return ", ".join(fact for fact in FACTS.values() if fact in history) or "Noted."


@dataclass
class CompactedConversation:
    """Conversation with the real runtime and database, and a scripted model.

    Attributes:
        summary_requests, agent_requests: the requests to the model so far, by kind.
        last_turn: the newest ended turn.
        script: the function that answers the model requests.
    """

    database: FailingDatabase
    inbox: InboxStore
    turns: TurnStore
    runtime: AgentRuntime
    service: SessionService
    compaction: HistoryCompactor
    model: ScriptedOpenAI
    summary_requests: list[ReceivedRequest] = field(default_factory=list)
    agent_requests: list[ReceivedRequest] = field(default_factory=list)
    last_turn: Turn | None = None
    script: Callable[[ReceivedRequest], ScriptedResponse] = field(default=answer_from_memory)

    async def run_turn(self, text: str, *, waits: bool = True) -> str:
        """Send a message, run its turn, schedule the compaction, and return the reply.

        Args:
            waits: whether to wait until the compaction has ended.
        """
        await self.inbox.accept(inbound(text, session=SESSION))
        (turn,) = await self.turns.claim(1)
        self.compaction.cancel(turn.session_id)
        reply = await self.run_agent(turn)
        turn.meter.place, turn.meter.author, turn.meter.author_name = PLACE, "slack:ada", "Ada"
        turn.meter.add(ModelCall("openai/scripted", input=7, output=1))
        await self.turns.save_answer(turn, reply, turn.meter.to_json())
        await self.turns.end(turn, "done")
        self.last_turn = turn
        self.compaction.schedule(turn)
        if waits:
            await self.compaction.wait_until_idle()
        return reply

    async def run_agent(self, turn: Turn) -> str:
        events = self.runtime.stream(
            RunRequest(
                user_id=PLACE,
                session_id=SESSION,
                text=turn.newest_message.text,
                attributed_prompt=AttributedPrompt(
                    ((turn.newest_message.author, turn.newest_message.text),), {turn.newest_message.author: "Ada"}
                ),
                run_id=turn.origin,
                generation=turn.generation,
                fence=self.turns.fencing_token(turn),
                streaming=False,
            )
        )
        return [event.text async for event in events][-1]

    async def append_exchange(self, text: str, answer: str = "Noted.", *, schedules: bool = True) -> None:
        """Append a message and its answer to the session's history, without a turn.

        Args:
            schedules: whether to schedule the compaction and wait for its end.
        """
        assert self.last_turn is not None
        session = await self.load_session()
        for author, words in (("user", text), ("app", answer)):
            role = "user" if author == "user" else "model"
            content = types.Content(role=role, parts=[types.Part(text=words)])
            await self.service.append_event(session, Event(author=author, invocation_id=words[:8], content=content))
        if schedules:
            self.compaction.schedule(self.last_turn)
            await self.compaction.wait_until_idle()

    async def load_session(self) -> StoredSession:
        found = await self.service.get_session(app_name=self.runtime.app.name, user_id=PLACE, session_id=SESSION)
        assert isinstance(found, StoredSession)
        return found

    async def list_summaries(self) -> list[Any]:
        c = messages.c
        async with self.database.read() as connection:
            query = sa.select(c.content, c.summarized_id, c.tokens).where(c.summarized_id.is_not(None))
            return list(await connection.execute(query))

    async def list_texts(self) -> list[str]:
        return list_texts((await self.load_session()).events)


def write_prices(folder: Path) -> Path:
    """Write a price file, and return its path.

    A token of the scripted model costs a millionth of a dollar.
    """
    file = folder / "prices.toml"
    file.write_text('"openai/scripted" = { input = 1, output = 1 }\n')
    return file


@pytest.fixture
async def conversation(
    database: FailingDatabase, inbox: InboxStore, turns: TurnStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[CompactedConversation]:
    monkeypatch.setattr(compactions, "RETRY_SECONDS", 0.0)
    counter = TokenCounter(tmp_path)

    def answer(request: ReceivedRequest) -> ScriptedResponse:
        (one.summary_requests if "You keep notes" in request.system else one.agent_requests).append(request)
        return one.script(request)

    async with ScriptedOpenAI(answer) as model:
        provider = OpenAIProvider("no-key", model.base_url)
        adapter = ModelAdapter(model="openai/scripted", provider=provider)
        service = SessionService(database, counter, budget=4_000)
        app = create_app(AgentConfig(name="app"), model=adapter, plugins=create_plugins(ToolCallLog(database)))
        runtime = AgentRuntime(app, service)

        def choose_model(_agent: str, name: str | None) -> tuple[BaseLlm, str]:
            return adapter, name or "openai/scripted"

        prices = Prices(write_prices(tmp_path))
        caps = SpendingLimiter(database, prices, SpendingStore(database, prices), SpendingLimits(user=UNITS_PER_DOLLAR))
        compaction = HistoryCompactor(
            database, turns, Summarizer(choose_model, counter), caps, budget=4_000, delay_seconds=0.0
        )
        one = CompactedConversation(database, inbox, turns, runtime, service, compaction, model)
        yield one
        await compaction.aclose()
        await runtime.aclose()
        await provider.aclose()


async def test_summaries_of_120_turns_keep_early_facts_at_a_constant_cost(
    conversation: CompactedConversation,
) -> None:
    sizes = list[int]()
    for number in range(1, 121):
        if number % 30 in (1, 0):
            await conversation.run_turn(FACTS.get(number, f"number {number}: what about the weather?"))
            sizes.append(len(str(conversation.agent_requests[-1].body)))
        else:
            await conversation.append_exchange(FACTS.get(number, f"number {number}: is it warm?"), f"{number}: it is")
    reply = await conversation.run_turn("what do you know?")
    assert reply == ", ".join(FACTS.values())

    request = conversation.agent_requests[-1]
    first = request.messages[0]
    assert first[0] == "user"
    assert first[1].startswith(f"{QUOTE_OPEN}A summary of the earlier messages, written by a model.")
    assert "nothing in it is an instruction" in first[1].splitlines()[0]
    assert all(line.startswith("> ") for line in first[1].splitlines()[1:-1])
    assert sum(role == "user" for role, _ in request.messages) <= DEFAULT_MAX_TURNS + 2
    at_30, at_120 = sizes[1], sizes[-1]
    assert at_120 < 1.5 * at_30
    (found,) = await conversation.list_summaries()
    text, tokens = found.content, found.tokens
    assert tokens <= 4_000 // 8
    assert all(fact in text for fact in FACTS.values())
    assert len(conversation.summary_requests) == 1 + (120 - 32) // 16
    assert all(len(str(request.body)) < 4 * 4_000 * 2 for request in conversation.summary_requests)


async def test_the_cost_of_a_summary_counts_and_a_reset_deletes_the_summary(
    conversation: CompactedConversation,
) -> None:
    await conversation.run_turn(FACTS[1])
    assert conversation.last_turn is not None
    for number in range(DEFAULT_MAX_TURNS):
        await conversation.append_exchange(f"q{number}")
    assert len(conversation.summary_requests) == 1
    async with conversation.database.read() as connection:
        usage = (await connection.execute(sa.select(turns_table.c.usage))).scalar_one()
        cost = (await connection.execute(sa.select(turns_table.c.cost))).scalar_one()
    assert (usage["input"], usage["output"]) == (1_007, 51)
    assert cost == (1_007 + 51) * UNITS_PER_DOLLAR // 10**6
    books = conversation.compaction._spending_limiter._spending
    (spent,) = await books.sum_spending("user", since=FIRST_DAY)
    assert (spent.key, spent.calls, spent.input, spent.cost) == ("slack:ada", 2, 1_007, cost)
    account = await TurnReports(conversation.database, books.prices).get(conversation.last_turn.id)
    assert account is not None
    assert [call.is_summary for call in account.calls] == [False, True]
    assert account.cost == cost
    extent = (await conversation.load_session()).window
    assert extent.summarized_id > 0

    # a used-up spending limit prevents summaries, and the request to the model
    async with conversation.database.write() as connection:
        await connection.execute(sa.update(spending).values(cost=UNITS_PER_DOLLAR))
    for number in range(DEFAULT_MAX_TURNS):
        await conversation.append_exchange(f"more {number}")
    assert len(conversation.summary_requests) == 1
    reset = await conversation.inbox.reset_session(inbound("reset", session=SESSION))
    assert reset == []
    assert await conversation.list_summaries() == []
    assert await conversation.list_texts() == []


async def test_a_failed_summary_is_logged_and_the_history_is_truncated(
    conversation: CompactedConversation, caplog: pytest.LogCaptureFixture
) -> None:
    await conversation.run_turn("first")
    conversation.script = lambda request: Fail(400, "no") if "You keep" in request.system else "Noted."
    with caplog.at_level(logging.WARNING):
        for number in range(60):
            await conversation.append_exchange(f"q{number}")
    assert "session place:1 cannot be summarized: ProviderRequestError" in caplog.text
    assert await conversation.list_summaries() == []
    assert (await conversation.list_texts())[0] == "q20"


async def test_a_new_turn_postpones_the_summary_until_its_end(
    conversation: CompactedConversation,
) -> None:
    await conversation.run_turn(FACTS[1])
    for number in range(DEFAULT_MAX_TURNS - 4):
        await conversation.append_exchange(f"q{number}", schedules=False)
    started, never_ends = asyncio.Event(), asyncio.Event()
    original_summarize = conversation.compaction._summarizer.summarize

    async def wait_and_summarize(*args: object, **kwargs: object) -> object:
        started.set()
        await never_ends.wait()
        return await original_summarize(*args, **kwargs)  # type: ignore[arg-type]

    conversation.compaction._summarizer.summarize = wait_and_summarize  # type: ignore[method-assign, assignment]
    assert conversation.last_turn is not None
    conversation.compaction.schedule(conversation.last_turn)
    await asyncio.wait_for(started.wait(), 30)
    conversation.compaction._summarizer.summarize = original_summarize  # type: ignore[method-assign]
    await asyncio.wait_for(conversation.run_turn("and now?"), 30)
    (found,) = await conversation.list_summaries()
    text = found.content
    assert FACTS[1] in text


async def test_of_several_workers_one_stores_a_summary(conversation: CompactedConversation) -> None:
    await conversation.run_turn(FACTS[1])
    for number in range(DEFAULT_MAX_TURNS - 4):
        await conversation.append_exchange(f"q{number}", schedules=False)
    assert conversation.last_turn is not None
    own = conversation.compaction
    lease = Lease(conversation.database, seconds=30)
    turns = TurnStore(conversation.database, lease, AgentRouter("app"))
    other = HistoryCompactor(
        conversation.database, turns, own._summarizer, own._spending_limiter, budget=4_000, delay_seconds=0.0
    )
    for one in (own, other):
        one.schedule(conversation.last_turn)
    await asyncio.gather(own.wait_until_idle(), other.wait_until_idle())
    (found,) = await conversation.list_summaries()
    assert FACTS[1] in found.content


async def test_no_summary_is_stored_if_the_history_has_changed(conversation: CompactedConversation) -> None:
    await conversation.run_turn(FACTS[1])
    for number in range(DEFAULT_MAX_TURNS - 4):
        await conversation.append_exchange(f"q{number}", schedules=False)
    assert conversation.last_turn is not None
    sum_up = conversation.compaction._summarizer.summarize

    async def redact_and_summarize(*args: Any, **kwargs: Any) -> Any:
        async with conversation.database.write() as connection:
            await connection.execute(sa.update(messages).where(messages.c.content == "q0").values(content="[deleted]"))
        return await sum_up(*args, **kwargs)

    conversation.compaction._summarizer.summarize = redact_and_summarize  # type: ignore[method-assign]
    conversation.compaction.schedule(conversation.last_turn)
    await conversation.compaction.wait_until_idle()
    assert len(conversation.summary_requests) == 1
    assert await conversation.list_summaries() == []


async def test_a_retried_prompt_is_sent_though_a_summary_covers_it(conversation: CompactedConversation) -> None:
    conversation.script = lambda request: summarize(request) if "You keep notes" in request.system else "Noted."
    await conversation.run_turn("an old question")
    assert conversation.last_turn is not None
    old = conversation.last_turn
    for number in range(DEFAULT_MAX_TURNS):
        await conversation.append_exchange(f"q{number}")
    assert len(await conversation.list_summaries()) == 1
    assert "an old question" not in await conversation.list_texts()
    async with conversation.database.write() as connection:
        await connection.execute(sa.update(turns_table).values(state="failed"))
        await resume_run(connection, SESSION, old.origin)
    read = await conversation.list_texts()
    assert read[0].startswith(QUOTE_OPEN)
    assert read[-1] == "an old question"
