"""The bot: all parts made, wired, run and taken down again. The one place that knows them all."""

import asyncio
import logging
from collections.abc import AsyncIterator, Collection, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any

from aiohttp.web import AbstractRouteDef

from bot.components import Answers, Hearing
from bot.connections import raise_open_files_limit
from bot.monitoring import trace_export as traces
from bot.monitoring.health import Health
from bot.server import Server, probes, serving
from bot.settings import NO_TOKENS, Settings, unknown_names
from channels.base import Channel
from channels.i18n import messages as words
from channels.services import Desk
from core.concurrency import gc_tuning as garbage
from core.concurrency.retry import retried
from core.concurrency.tasks import beside
from core.conversations.feedback import Feedback
from core.conversations.service import Conversations
from core.conversations.turn_report import Ledger
from core.errors import OverdueError, SettingsError
from core.inbox.interactions import Errands
from core.inbox.store import Inbox
from core.inbox.watermarks import Places
from core.inbox_message import Inbound
from core.models.lazy_import import Late
from core.privacy.retention import Pruning, Retention
from core.privacy.vault import Vault
from core.secret_redaction import traced
from core.sessions.lifecycle import home
from core.sessions.routing import Agents
from core.store.database import Database
from core.store.lock import held
from core.store.migrate import migrate, verify
from core.tools.approvals import Approval, Approvals
from core.turns.store import Turns
from core.turns.turn import Turn
from core.turns.worker import Worker
from core.usage.prices import Prices
from core.usage.spending import Spending
from core.usage.user_rate_limits import Refusals
from core.workers.lease import Lease
from core.workers.rate_limit_sharing import Uses, exchange_usage
from core.workers.shard_assignment import ShardAssignment

if TYPE_CHECKING:
    from bot import runtime as answering
    from bot.monitoring import prometheus as metrics
    from channels.discord import adapter as discord
    from channels.slack import adapter as slack
else:  # what is configured; and what answers, while the channels connect
    answering, metrics = Late("bot.runtime"), Late("bot.monitoring.prometheus")
    discord, slack = Late("channels.discord.adapter"), Late("channels.slack.adapter")

log = logging.getLogger(__name__)

#: Seconds between one try at the database and the next when the bot starts.
BEGIN_PAUSES = (0.2, 0.5, 1.0, 1.5, 2.0)

#: Seconds that all of a stop may take once running answers have had theirs, whatever hangs.
ENDING_SECONDS = 8.0


async def run(settings: Settings, stop: asyncio.Event) -> None:
    """Run every channel that has its tokens, until `stop` is set; then end what is under way.

    Raises:
        SettingsError: a setting keeps it from starting.
        StoreError: the database does.
        DeafError: a channel hears nothing any more.
        OverdueError: it has not ended in its time, be it that the database hangs.
    """
    ending = asyncio.Event()  # it has begun to, by itself or because it was told to
    running = asyncio.create_task(_run(settings, ending), name="bot")
    try:
        await _first(stop.wait(), ending.wait(), running)
        if not ending.is_set():
            running.cancel()
        seconds = settings.stop_seconds + ENDING_SECONDS
        _, late = await asyncio.wait([running], timeout=seconds)
        if late:
            raise OverdueError(
                f"the stop has had its {seconds:g} s and is not waited for any longer: what was accepted is kept, and "
                "what was not handed back is taken up by whoever works next"
            )
        if not running.cancelled():
            running.result()
    finally:
        running.cancel()


async def _run(settings: Settings, ending: asyncio.Event) -> None:
    """Run until cancelled, or until a channel stays deaf; then end what is under way."""
    raise_open_files_limit()
    for line in unknown_names():
        log.warning("%s", line)
    health = Health()
    measuring = metrics.Metrics(health, settings.shown_token) if settings.metrics else None
    routes = [*probes(health), *(measuring.routes if measuring else ())]
    async with (
        traces.sent(),
        serving(settings.port, routes, is_needed=settings.is_called, host=settings.listen_address) as server,
        _hearing(settings, server) as hearing,
        AsyncExitStack() as stack,
    ):
        channels, worker, database = hearing.channels, hearing.worker, hearing.database
        if measuring is not None:
            await stack.enter_async_context(measuring.watching(channels.values(), worker, database))
        starting = asyncio.create_task(_start(channels.values(), _load(settings, hearing, stack)), name="start")
        working: asyncio.Task[None] | None = None
        try:
            await _first(starting)
            working = asyncio.create_task(worker.run(), name="worker")
            garbage.settle()  # what is there now stays; full collections wait for a rest
            log.info("ready")
            async with beside(health.watch(channels.values(), database), name="health") as watching:
                await _first(working, watching)
        finally:
            ending.set()
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
async def _hearing(settings: Settings, server: Server) -> AsyncIterator[Hearing]:
    """All that hears and keeps what is said. None of it needs an agent, or waits for one."""
    words.prefer(settings.language)
    async with AsyncExitStack() as stack:
        database = Database(settings.database, connections=settings.database_connections)
        stack.enter_context(held(database))
        stack.push_async_callback(database.aclose)
        # one that is just being started again is waited for, and one that is not there is told of soon
        await retried(lambda: prepare(database), what="the database", pauses=BEGIN_PAUSES)
        prices = Prices(settings.prices_file)
        spending = Spending(database, prices)
        lease = Lease(database, seconds=settings.lease_seconds)
        await retried(lease.take, what="the lease", pauses=BEGIN_PAUSES)
        stack.push_async_callback(lease.give_up)
        await stack.enter_async_context(beside(lease.keep(), name="lease"))
        pruning = Pruning(database, days=settings.turns_kept_days)
        await stack.enter_async_context(beside(pruning.run(), name="pruning"))
        await stack.enter_async_context(beside(spending.run(), name="spending"))
        retention = Retention(database, prices, days=settings.retention_days)
        await stack.enter_async_context(beside(retention.run(), name="retention"))
        # What is said is kept under the name that all was kept under before; if the agent has another, it adopts all.
        before = await retried(lambda: home(database), what="the agent of before")
        agents = Agents.expected(before or settings.agent_name)
        channels = dict[str, Channel]()

        def locate(lost: Inbound) -> Inbound | None:
            channel = channels.get(lost.channel)
            return channel.locate(lost) if channel is not None else None

        turns = Turns(database, lease, agents, locate=locate)
        answers: asyncio.Future[Answers] = asyncio.get_running_loop().create_future()
        stack.callback(answers.cancel)

        async def answer(turn: Turn) -> None:
            await (await asyncio.shield(answers)).answer(turn)

        async def reshow(turn_id: str, *, ending: str = "") -> None:
            await (await asyncio.shield(answers)).reshow(turn_id, ending=ending)

        async def reask(approval: Approval, *, is_void: bool = False) -> None:
            await (await asyncio.shield(answers)).reask(approval, is_void=is_void)

        worker = Worker(turns, answer, limit=settings.turns_at_once, at_rest=garbage.collect)
        inbox = Inbox(database, turns, worker, rates=settings.rates)
        conversations = Conversations(database, turns, worker, budget=settings.history_tokens)
        approvals = Approvals(database, turns, worker, approvers=settings.approvers, hours=settings.approval_hours)
        desk = Desk(
            inbox,
            conversations,
            Feedback(database),
            reshow,
            approvals,
            reask,
            Errands(database, lease),
            Ledger(database, prices),
            Refusals(database),
            spending,
            settings.door,
            settings.follow,
        )
        routes = _open(channels, settings, desk, database, lease=lease, stack=stack)
        await stack.enter_async_context(beside(approvals.watch(reask), name="approvals"))
        await stack.enter_async_context(beside(_share_limits(database, lease, channels.values()), name="rate limits"))
        server.add(routes)
        yield Hearing(database, lease, prices, turns, worker, channels, desk, answers)


async def _load(settings: Settings, hearing: Hearing, stack: AsyncExitStack) -> None:
    """Have what is heard be answered. ADK is imported in a thread, beside which the channels connect."""
    await asyncio.to_thread(import_module, "bot.runtime")
    answers = await stack.enter_async_context(answering.answering(settings, hearing))
    hearing.answers.set_result(answers)


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
        in_slack = channels[slack.SlackChannel.name] = slack.SlackChannel(settings.slack, desk, places, bounds, vault)
        stack.push_async_callback(in_slack.aclose)
        routes += in_slack.routes
    if settings.discord is not None:
        name = discord.DiscordChannel.name
        in_discord = channels[name] = discord.DiscordChannel(
            settings.discord, desk, places, bounds, ShardAssignment(database, lease, name)
        )
        stack.push_async_callback(in_discord.aclose)
    return routes


async def prepare(database: Database) -> None:
    """Give the database the schema that this version works with.

    Raises:
        StoreError: it cannot be used, or `migrate` has to be run first.
    """
    if database.is_sqlite:
        await migrate(database)
    await verify(database)


async def _start(channels: Collection[Channel], loading: Coroutine[Any, Any, None]) -> None:
    """Start all of them at once, and load what answers. If several cannot be, all that is wrong is told."""
    results = await asyncio.gather(loading, *map(_listen, channels), return_exceptions=True)
    errors = [result for result in results if result is not None]
    faults = [fault for error in errors if isinstance(error, SettingsError) for fault in error.faults]
    if faults:
        raise SettingsError(*faults)
    for error in errors:
        raise error
    if not channels:
        raise SettingsError(NO_TOKENS)


async def _share_limits(database: Database, lease: Lease, channels: Collection[Channel]) -> None:
    """Divide the platforms' rate limits with the other workers. No two platforms have a limiter's name in common."""

    def announce() -> Uses:
        return {name: use for channel in channels for name, use in channel.tell().items()}

    def share(others: Sequence[Uses]) -> None:
        for channel in channels:
            channel.share(others)

    await exchange_usage(database, lease, announce, share)


async def _listen(channel: Channel) -> None:
    await channel.start()
    log.info("%s: listening", channel.name)


async def _first(*works: Coroutine[Any, Any, object] | asyncio.Task[None]) -> None:
    """Wait for whichever ends first; what that one raised is raised. Cancelled, it ends none of the tasks."""
    tasks = [work if isinstance(work, asyncio.Task) else asyncio.create_task(work) for work in works]
    try:
        ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in set(tasks).difference(works):
            task.cancel()
    for task in ended:
        task.result()
