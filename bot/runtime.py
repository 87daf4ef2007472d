"""What answers what is said: the agents, their models, and who shows what they say.

To import it is to import ADK, which takes longer than all else at a start. So that is done in a thread, as is all of
our own that takes long, one after another: meanwhile the event loop hears what is said. An agent is imported where the
loop runs, as under `adk web`: what it is made of may ask for the loop, or for the main thread.
"""

import asyncio
import logging
import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import chain

from google.adk.apps import App
from google.adk.plugins import BasePlugin

from bot.agents import Crew, find_unusable_tools, make_choice, make_crew, summing
from bot.components import Answers, Hearing
from bot.sandbox.process import FEED
from bot.settings import LOCAL_MODEL, Settings
from bot.settings.price_check import check_prices
from channels.answerer import Answerer
from channels.intake.context import Context
from channels.replies.error_messages import Apologies
from core.agents.runtime import AgentRuntime
from core.agents.warmup import warm_up
from core.concurrency.retry import retried
from core.models.tokens import TokenCounter
from core.sessions.artifacts import Artifacts
from core.sessions.lifecycle import adopt
from core.sessions.memory import Memories
from core.sessions.service import SessionService
from core.sessions.summarizer import Summarizer
from core.store.database import Database
from core.tools.call_log import Journal
from core.turns.compaction import Compaction
from core.turns.turn import Turn
from core.usage.spending_limits import Caps

log = logging.getLogger(__name__)


@asynccontextmanager
async def answering(settings: Settings, hearing: Hearing) -> AsyncIterator[Answers]:
    """The agents, loaded and warm, for as long as this is entered.

    Raises:
        SettingsError: one of them, or a model, cannot be had.
    """
    database, prices, turns, desk = hearing.database, hearing.prices, hearing.turns, hearing.desk
    async with AsyncExitStack() as stack:
        page = os.environ.get(FEED)
        choice = await asyncio.to_thread(make_choice, settings, replaces_keyless=page is not None)
        stack.push_async_callback(choice.aclose)
        check_prices(settings, prices, choice.asked)
        watching = list[BasePlugin]()
        if page is not None:
            from bot.sandbox.feed import feeding  # noqa: PLC0415 - only the sandbox asks for it

            feed = await stack.enter_async_context(feeding(page, database, prices))
            watching.append(feed)
        crew = make_crew(settings, choice, Journal(database), watching)
        if page is not None:
            for name in sorted(choice.replaced):
                feed.send_notice(f"{name} has no API key: {choice.default} answers in its place.")
        turns.agents.come(crew.agents)  # what is said from now on is kept under their name

        async def adopting() -> None:
            await retried(lambda: adopt(database, crew.agents), what="the conversations of an agent that is gone")

        await adopting()
        if LOCAL_MODEL in choice.asked:
            log.warning("%s is a tiny model, there to try things out: it is often wrong", LOCAL_MODEL)
        for line in chain.from_iterable(map(find_unusable_tools, crew.apps.values())):
            log.warning("%s", line)
        counter = await asyncio.to_thread(TokenCounter, settings.vocabulary_dir)
        runtimes = {name: _runtime(app, crew, database, counter, settings) for name, app in crew.apps.items()}
        for runtime in runtimes.values():
            stack.push_async_callback(runtime.aclose)
        caps = Caps(database, prices, desk.spending, settings.limits)
        compaction = Compaction(
            database,
            turns,
            hearing.lease,
            Summarizer(summing(settings, crew, choice), counter),
            caps,
            wake=hearing.worker.wake,
            budget=settings.history_tokens if settings.summaries else None,
            turn_limit=settings.history_turns,
        )
        stack.push_async_callback(compaction.aclose)
        answerer = Answerer(
            runtimes[crew.agents.default],
            turns,
            hearing.channels,
            desk.conversations,
            Context(database, counter.count, most=settings.context_tokens),
            approvals=desk.approvals,
            door=desk.door,
            apologies=Apologies(desk.spending, settings.admins),
            time_limit=settings.turn_seconds,
            most_messages=settings.reply_max_messages,
            most_attempts=settings.turn_max_attempts,
            extras=frozenset(settings.reply_buttons),
            allowance=settings.allowance,
            others=runtimes,
        )

        async def answer(turn: Turn) -> None:
            async with caps.over(turn.meter):
                await compaction.beside(turn, answerer.answer)

        await asyncio.to_thread(_warm)
        await adopting()  # again: a message may have been kept under the old name in that very moment
        yield Answers(answer, answerer.reshow, answerer.reask)


def _warm() -> None:
    asyncio.run(warm_up())


def _runtime(app: App, crew: Crew, database: Database, counter: TokenCounter, settings: Settings) -> AgentRuntime:
    root = app.root_agent.name if app.root_agent else ""
    sessions = SessionService(
        database,
        counter,
        budget=settings.history_tokens,
        turns=settings.history_turns,
        agent=root,
        home=crew.agents.default,
    )
    return AgentRuntime(
        app, sessions, artifacts=Artifacts(database), memory=Memories(database), lines=crew.lines.get(app.name, {})
    )
