"""Benchmark of repeated prompt prefixes: `make bench-prompts [TURNS=60]`.

Vendors charge less for the prefix that a prompt shares with an earlier one. Each row of the table is one conversation
in one thread. It runs through all of the bot except the platform: inbox, turn store, answerer, agent, session service.
The scripted model stores each request. The benchmark compares prompts in the order of vendors' caches: the tools, the
system message, the messages.
"""

import asyncio
import json
import logging
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

import sqlalchemy as sa
from google.adk.tools.function_tool import FunctionTool

from benchmarks.turns.worker import InstantPlatform, create_answerer
from channels.base import ContextMessage, SurroundingMessages
from chatrig.models import CallTool, ReceivedRequest, ScriptedOpenAI, ScriptedResponse
from core.agents.config import AgentConfig
from core.agents.factory import create_app, create_plugins
from core.agents.runtime import AgentRuntime
from core.conversations.history_state import HistoryState
from core.inbox.store import InboxStore
from core.messages.inbox_message import InboxMessage
from core.models.adapter import ModelAdapter
from core.models.providers.openai import OpenAIProvider
from core.models.tokens import TokenCounter
from core.sessions.agent_routing import AgentRouter
from core.sessions.history import DEFAULT_BUDGET_TOKENS
from core.sessions.history_summary import Summarizer
from core.sessions.service import SessionService
from core.store.database import Database
from core.store.migrate import migrate
from core.store.schema import turns as turns_table
from core.store.workers.lease import Lease
from core.tools.call_log import ToolCallLog
from core.turns.history_compaction import HistoryCompactor
from core.turns.store import TurnStore
from core.turns.worker import Worker
from core.usage.prices import Prices
from core.usage.spending_ledger import SpendingStore
from core.usage.spending_limits import SpendingLimiter, SpendingLimits

TURNS = 60

#: Target of the mean of each conversation's shared fractions.
TARGET_FRACTION = 0.9

MODEL, AGENT = "openai/scripted", "parley"

#: First words of the summarizer's instruction.
SUMMARY_INSTRUCTION = "You keep notes"

#: Seconds between two messages of the thread.
INTERVAL_SECONDS = 60.0

WORDS = "lorem ipsum dolor sit amet consectetur adipiscing elit sed do eiusmod tempor "


@dataclass(frozen=True)
class MeasuredConversation:
    """Features of a measured conversation.

    Attributes:
        name: the row's title in the table.
        has_tools: whether the agent calls a tool in each turn.
        has_summaries: whether the history's limit is so low that older messages are summarized.
        has_context: whether other users write in the thread before each message of the user.
    """

    name: str
    has_tools: bool = False
    has_summaries: bool = False
    has_context: bool = False


CONVERSATIONS = (
    MeasuredConversation("plain"),
    MeasuredConversation("with tools", has_tools=True),
    MeasuredConversation("with summaries", has_summaries=True),
    MeasuredConversation("with thread context", has_context=True),
    MeasuredConversation("with all of these", has_tools=True, has_summaries=True, has_context=True),
)


async def search_tickets(words: str) -> dict[str, Any]:
    """Search the tickets for some words."""
    return {"tickets": [{"id": number, "title": f"{words} {number}", "text": WORDS} for number in range(3)]}


class ContextPlatform(InstantPlatform):
    """Platform with context messages of two other users before each message.

    Args:
        has_context: False leaves the context empty.
    """

    def __init__(self, *, has_context: bool) -> None:
        super().__init__()
        self._has_context = has_context

    async def fetch_context(
        self, messages: Sequence[InboxMessage], history: HistoryState | None
    ) -> SurroundingMessages:
        if not self._has_context:
            return SurroundingMessages()
        at, number = messages[-1].sent_at, messages[-1].event_key
        return SurroundingMessages(
            [
                ContextMessage("ada", "Ada", f"{number}: {WORDS}", at - INTERVAL_SECONDS / 2),
                ContextMessage("ben", "Ben", f"{number}: {WORDS}", at - INTERVAL_SECONDS / 3),
            ],
            {"ada": "Ada", "ben": "Ben"},
        )


@dataclass
class ScriptedModel:
    """Model script that stores each request of the agent, calls a tool, and answers.

    The tool is `search_tickets`, once per turn, if the request offers tools. A request for a summary gets one.

    Attributes:
        prompts: the requests as text (see `serialize_prompt`), without requests for a summary.
    """

    prompts: list[str] = field(default_factory=list)

    def __call__(self, request: ReceivedRequest) -> ScriptedResponse:
        if request.system.startswith(SUMMARY_INSTRUCTION):
            return "\n".join(f"{number}. {WORDS}" for number in range(10))
        self.prompts.append(serialize_prompt(request.body))
        if request.tools and not request.tool_results:
            return CallTool("search_tickets", {"words": f"request {len(self.prompts)}"}, id=f"call_{len(self.prompts)}")
        return f"Answer {len(self.prompts)}. {WORDS * 4}"


def serialize_prompt(body: Mapping[str, Any]) -> str:
    """Return the body of an OpenAI request as text in the order of vendors' caches.

    One JSON line for each tool, then one for each message.
    """
    return "".join(f"{json.dumps(part)}\n" for part in (*body.get("tools", ()), *body["messages"]))


def list_shared_fractions(prompts: Sequence[str]) -> list[float]:
    """Return the fraction of each prompt (except the last) with which the next begins.

    The list is empty for fewer than two prompts.
    """
    return [get_shared_length(before, after) / len(before) for before, after in pairwise(prompts)]


def get_shared_length(before: str, after: str) -> int:
    """Return the length of the common prefix of two texts."""
    differences = (at for at, (left, right) in enumerate(zip(before, after, strict=False)) if left != right)
    return next(differences, min(len(before), len(after)))


async def measure(conversation: MeasuredConversation, turns: int = TURNS) -> list[float]:
    """Run a conversation of `turns` turns; return its prompts' shared fractions.

    Raises:
        RuntimeError: a turn had no answer.
    """
    model = ScriptedModel()
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        server = await stack.enter_async_context(ScriptedOpenAI(model))
        database = Database(f"sqlite+aiosqlite:///{Path(folder) / 'bench.db'}")
        stack.push_async_callback(database.aclose)
        await migrate(database)
        lease = Lease(database)
        await lease.acquire()
        provider = OpenAIProvider("no-key", server.base_url)
        stack.push_async_callback(provider.aclose)
        adapter = ModelAdapter(model=MODEL, provider=provider)
        tools = [FunctionTool(search_tickets)] if conversation.has_tools else []
        app = create_app(
            AgentConfig(name=AGENT), model=adapter, tools=tools, plugins=create_plugins(ToolCallLog(database))
        )
        counter = TokenCounter(Path(".parley/tiktoken"))
        runtime = AgentRuntime(app, SessionService(database, counter, agent=AGENT))
        stack.push_async_callback(runtime.aclose)
        store, platform = (
            TurnStore(database, lease, AgentRouter(AGENT)),
            ContextPlatform(has_context=conversation.has_context),
        )
        worker = Worker(store)  # it does not run: the loop below claims the turns
        answerer = create_answerer(runtime, database, store, worker, platform, counter)
        prices = Prices()
        compaction = HistoryCompactor(
            database,
            store,
            Summarizer(lambda _agent, name: (adapter, name or MODEL), counter),
            SpendingLimiter(database, prices, SpendingStore(database, prices), SpendingLimits()),
            budget=DEFAULT_BUDGET_TOKENS if conversation.has_summaries else None,
            delay_seconds=0.0,
        )
        stack.push_async_callback(compaction.aclose)
        inbox = InboxStore(database, store, worker)
        for number in range(turns):
            await inbox.accept(build_message(number))
            [turn] = await store.claim(1)
            await compaction.run_turn(turn, answerer.answer)
            await compaction.wait_until_idle()
        async with database.read() as connection:
            states = (await connection.execute(sa.select(turns_table.c.state))).scalars().all()
        if set(states) != {"done"}:
            raise RuntimeError(f"{conversation.name}: not all turns have an answer: {states}")
    return list_shared_fractions(model.prompts)


def build_message(number: int) -> InboxMessage:
    return InboxMessage(
        event_key=f"message {number}",
        session_id="memory:thread",
        place="memory:thread",
        platform=ContextPlatform.name,
        address={},
        author="somebody",
        text=f"Message {number}. {WORDS}",
        sent_at=1_800_000_000.0 + number * INTERVAL_SECONDS,
    )


async def main(turns: int) -> bool:
    """Measure all conversations, print the table, and compare it with the target.

    Args:
        turns: the number of turns of each conversation, at least 2.

    Returns:
        Whether the mean of each conversation's shared fractions reaches `TARGET_FRACTION`.
    """
    logging.disable(logging.WARNING)  # the truncation logs a line per load
    print(f"{'shared with the next request':40}{'mean':>8}{'minimum':>9}{'requests':>10}")
    means = list[float]()
    for conversation in CONVERSATIONS:
        fractions = await measure(conversation, turns)
        means.append(fmean(fractions))
        print(f"{conversation.name:40}{means[-1]:8.3f}{min(fractions):9.3f}{len(fractions) + 1:10}")
    print(f"target: a mean of at least {TARGET_FRACTION}")
    return min(means) >= TARGET_FRACTION


if __name__ == "__main__":
    sys.exit(not asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else TURNS)))
