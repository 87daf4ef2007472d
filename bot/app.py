"""The bot: all parts made, wired, run and taken down again. The one place that knows them all."""

import asyncio
import logging
from collections.abc import AsyncIterator, Collection, Coroutine, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from aiohttp.web import AbstractRouteDef
from google.adk.apps import App

from bot import traces
from bot.agent import Crew, make_choice, make_crew, summing
from bot.feed import feeding
from bot.health import Health
from bot.money import make_money
from bot.probes import probes
from bot.server import Server, serving
from bot.settings import LOCAL_MODEL, NO_TOKENS, Settings
from channels import words
from channels.answer import Answerer
from channels.apologies import Apologies
from channels.channel import Channel
from channels.context import Context
from channels.desk import Desk
from channels.discord.channel import DiscordChannel
from channels.slack.channel import SlackChannel
from core import garbage
from core.approvals import Approvals
from core.artifacts import Artifacts
from core.compaction import Compaction
from core.conversations import Conversations
from core.errands import Errands
from core.errors import SettingsError, StoreError
from core.feedback import Feedback
from core.inbox import Inbox
from core.journal import Journal
from core.leadership import Leadership
from core.lease import Lease
from core.ledger import Ledger
from core.memories import Memories
from core.places import Places
from core.prices import Prices
from core.pruning import Pruning
from core.refusals import Refusals
from core.retention import Retention
from core.runtime import AgentRuntime
from core.secrets import traced
from core.sessions.adoption import adopt
from core.sessions.service import SessionService
from core.shares import Shares, Uses
from core.store.database import Database
from core.store.lock import held
from core.store.migrate import migrate, pending, verify
from core.store.retrying import retried
from core.summarizer import Summarizer
from core.tokens import TokenCounter
from core.turn import Turn
from core.turns import Turns
from core.vault import Vault
from core.warming import warm_up
from core.worker import Worker

log = logging.getLogger(__name__)


async def run(settings: Settings, stop: asyncio.Event) -> None:
    """Run every channel that has its tokens, until `stop` is set; then end what is under way.

    Raises:
        SettingsError: a setting keeps it from starting.
        StoreError: the database does.
        DeafError: a channel hears nothing any more.
    """
    health = Health()
    metrics = None
    if settings.metrics:
        from bot.metrics import Metrics  # noqa: PLC0415 - it takes OpenTelemetry's SDK

        metrics = Metrics(health, settings.shown_token)
    routes = [*probes(health), *(metrics.routes if metrics else ())]
    async with (
        traces.sent(),
        serving(settings.port, routes, is_needed=settings.is_called) as server,
        _parts(settings, server) as (channels, worker, database),
        AsyncExitStack() as told,
    ):
        if metrics is not None:
            await told.enter_async_context(metrics.watching(channels.values(), worker, database))
        starting = asyncio.create_task(_start(channels.values()), name="start")
        working: asyncio.Task[None] | None = None
        try:
            if await _ends_before(stop, starting):
                working = asyncio.create_task(worker.run(), name="worker")
                garbage.settle()  # what is there now stays; full collections wait for a rest
                log.info("ready")
                async with _beside(health.watch(channels.values(), database), name="health") as watching:
                    await _ends_before(stop, working, watching)
        finally:
            log.info("stopping")
            health.drain()
            starting.cancel()
            await asyncio.wait([starting])
            stops = [channel.stop() for channel in channels.values()]
            ended = await asyncio.gather(worker.stop(settings.stop_seconds), *stops, return_exceptions=True)
            for error in ended:
                if error is not None:
                    log.error("a part did not stop as it should: %s", traced(error))
            if working is not None:
                await working


@asynccontextmanager
async def _parts(settings: Settings, server: Server) -> AsyncIterator[tuple[dict[str, Channel], Worker, Database]]:
    words.prefer(settings.language)
    async with AsyncExitStack() as stack:
        database = Database(settings.database, connections=settings.database_connections)
        stack.enter_context(held(database))
        stack.push_async_callback(database.aclose)
        await prepare(database)
        choice = make_choice(settings)
        stack.push_async_callback(choice.aclose)
        # Before a lease is to be kept: it may take its time.
        prices = Prices(settings.prices_file)
        crew = make_crew(
            settings, choice, Journal(database), await stack.enter_async_context(feeding(database, prices))
        )
        await adopt(database, crew.agents)
        money = make_money(settings, database, prices, choice.asked)
        lease = Lease(database, seconds=settings.lease_seconds)
        await retried(lease.take, what="the lease")
        stack.push_async_callback(lease.give_up)
        await stack.enter_async_context(_beside(lease.keep(), name="lease"))
        pruning = Pruning(database, days=settings.turns_kept_days)
        await stack.enter_async_context(_beside(pruning.run(), name="pruning"))
        await stack.enter_async_context(_beside(money.spending.run(), name="spending"))
        retention = Retention(database, prices, days=settings.retention_days)
        await stack.enter_async_context(_beside(retention.run(), name="retention"))
        if LOCAL_MODEL in choice.asked:
            log.warning("%s is a tiny model, there to try things out: it is often wrong", LOCAL_MODEL)
        counter = await asyncio.to_thread(TokenCounter, settings.vocabulary_dir)
        runtimes = {name: _runtime(app, crew, database, counter, settings) for name, app in crew.apps.items()}
        for runtime in runtimes.values():
            stack.push_async_callback(runtime.aclose)
        await warm_up()
        home, runtime, door = crew.agents.default, runtimes[crew.agents.default], settings.door
        turns, channels = Turns(database, lease, agents=crew.agents), dict[str, Channel]()

        async def answer(turn: Turn) -> None:
            async with money.caps.over(turn.meter):
                await compaction.beside(turn, answerer.answer)

        worker = Worker(turns, answer, limit=settings.turns_at_once, at_rest=garbage.collect)
        sessions = SessionService(database, counter)
        inbox = Inbox(database, sessions, turns, worker, app=home, rates=settings.rates)
        summarizer = Summarizer(summing(settings, crew, choice), counter)
        compaction = Compaction(
            database,
            turns,
            lease,
            summarizer,
            money.caps,
            wake=worker.wake,
            budget=settings.history_tokens if settings.summaries else None,
        )
        stack.push_async_callback(compaction.aclose)
        conversations = Conversations(
            database,
            turns,
            worker,
            app=home,
            models=crew.agents.known[home].models,
            budget=settings.history_tokens,
            agents=crew.agents,
        )
        approvals = Approvals(database, turns, worker, approvers=settings.approvers, hours=settings.approval_hours)
        answerer = Answerer(
            runtime,
            turns,
            channels,
            conversations,
            Context(database, counter.count, most=settings.context_tokens),
            approvals=approvals,
            door=door,
            apologies=Apologies(money.spending, settings.admins),
            time_limit=settings.turn_seconds,
            most_messages=settings.reply_max_messages,
            most_attempts=settings.turn_max_attempts,
            extras=frozenset(settings.reply_buttons),
            allowance=settings.allowance,
            others=runtimes,
        )
        desk = Desk(
            inbox,
            conversations,
            Feedback(database),
            answerer.reshow,
            approvals,
            answerer.reask,
            Errands(database, lease),
            Ledger(database, prices),
            Refusals(database),
            money.spending,
            door,
            settings.follow,
        )
        routes = _open(channels, settings, desk, database, lease=lease, stack=stack)
        if not channels:
            raise SettingsError(NO_TOKENS)
        await stack.enter_async_context(_beside(approvals.watch(answerer.reask), name="approvals"))
        shares = Shares(database, lease)
        await stack.enter_async_context(_beside(_share(shares, channels.values()), name="shares"))
        server.add(routes)
        yield channels, worker, database


def _open(
    channels: dict[str, Channel],
    settings: Settings,
    desk: Desk,
    database: Database,
    *,
    lease: Lease,
    stack: AsyncExitStack,
) -> list[AbstractRouteDef]:
    """Make the channels that have their tokens, to be closed with `stack`; what is to be served for them."""
    places, bounds, routes = Places(database), settings.catch_up, list[AbstractRouteDef]()
    if settings.slack is not None:
        vault = Vault(database, settings.vault_key) if settings.vault_key else None
        slack = channels[SlackChannel.name] = SlackChannel(settings.slack, desk, places, bounds, vault)
        stack.push_async_callback(slack.aclose)
        routes += slack.routes
    if settings.discord is not None:
        discord = channels[DiscordChannel.name] = DiscordChannel(
            settings.discord, desk, places, bounds, Leadership(database, lease, DiscordChannel.name)
        )
        stack.push_async_callback(discord.aclose)
    return routes


def _runtime(app: App, crew: Crew, database: Database, counter: TokenCounter, settings: Settings) -> AgentRuntime:
    root = app.root_agent.name if app.root_agent else ""
    sessions = SessionService(database, counter, budget=settings.history_tokens, agent=root, home=crew.agents.default)
    return AgentRuntime(
        app, sessions, artifacts=Artifacts(database), memory=Memories(database), lines=crew.lines.get(app.name, {})
    )


@asynccontextmanager
async def _beside(work: Coroutine[Any, Any, None], *, name: str) -> AsyncIterator[asyncio.Task[None]]:
    """Do `work` for as long as this is entered."""
    task = asyncio.create_task(work, name=name)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait([task])


async def prepare(database: Database) -> None:
    """Give the database the schema that this version works with.

    Raises:
        StoreError: it cannot be used, or `migrate` has to be run first.
    """
    if database.is_sqlite:
        await migrate(database)
    elif missing := await pending(database):
        raise StoreError(f"DATABASE_URL: the database lacks {len(missing)} migrations: run `parley migrate`")
    await verify(database)


async def _start(channels: Iterable[Channel]) -> None:
    """Start all of them at once. If several cannot be started, all that is wrong is told."""
    results = await asyncio.gather(*map(_listen, channels), return_exceptions=True)
    errors = [result for result in results if result is not None]
    faults = [fault for error in errors if isinstance(error, SettingsError) for fault in error.faults]
    if faults:
        raise SettingsError(*faults)
    for error in errors:
        raise error


async def _share(shares: Shares, channels: Collection[Channel]) -> None:
    """Share what the platforms allow with the other workers. No two platforms have a name for a limit in common."""

    def mine() -> Uses:
        return {name: use for channel in channels for name, use in channel.tell().items()}

    def told(others: Sequence[Uses]) -> None:
        for channel in channels:
            channel.share(others)

    await shares.keep(mine, told)


async def _listen(channel: Channel) -> None:
    await channel.start()
    log.info("%s: listening", channel.name)


async def _ends_before(stop: asyncio.Event, *works: asyncio.Task[None]) -> bool:
    """Wait for the stop or for the end of one of `works`, whichever comes first; what that one raised is raised."""
    stopped = asyncio.create_task(stop.wait(), name="stop")
    try:
        await asyncio.wait([stopped, *works], return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopped.cancel()
    ended = [work for work in works if work.done()]
    for work in ended:
        work.result()
    return bool(ended)
