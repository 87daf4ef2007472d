"""Composition root: builds all services of the bot, starts them, and stops them."""

import asyncio
import logging
from collections.abc import AsyncIterator, Collection, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from bot.connections import raise_open_files_limit
from bot.hooks_toml import read_hooks
from bot.monitoring import trace_export as traces
from bot.monitoring.health import HealthMonitor
from bot.routes.hooks import HookRoutes
from bot.routes.sign_in import SignInRoutes, make_identities
from bot.routes.tickets import TicketRoutes
from bot.runtime import load_agents
from bot.server import make_probe_routes, run_server
from bot.settings import NO_TOKENS, Settings, find_unknown_settings
from channels.answerer import Answerer
from channels.commands.services import PlatformServices
from channels.i18n import messages as words
from channels.intake.context import ContextBuilder
from channels.platform import Platform, PlatformAdapter, Platforms
from channels.requests.request_message import RequestMessages
from channels.settings import BackfillLimits
from channels.turns.error_messages import ErrorMessages
from channels.turns.update_after_edit import ReplyRerenderer
from core.concurrency import gc_tuning as garbage
from core.concurrency.retry import retry_store
from core.concurrency.tasks import BackgroundTasks, run_in_background
from core.conversations.feedback import FeedbackStore
from core.conversations.service import ConversationService
from core.conversations.turn_report import TurnReports
from core.errors import SettingsError, ShutdownTimeoutError
from core.inbox.entries import EntryStore
from core.inbox.store import InboxStore
from core.inbox.triggered import TriggeredEntries
from core.inbox.watermarks import Watermarks
from core.observability.secret_redaction import format_error
from core.privacy.prompts import PromptStore
from core.privacy.retention import CleanupService, RetentionService
from core.privacy.vault import Vault
from core.signin.adk import SignInService
from core.signin.browser import SignInFlow
from core.signin.credentials import CredentialStore
from core.signin.mcp import McpAuthorization
from core.signin.oauth import OAuthClient
from core.signin.pending import PendingSignIns
from core.store.database import Database
from core.store.lock import hold_database_lock
from core.store.migrate import migrate, verify_schema
from core.store.workers.lease import Lease
from core.store.workers.rate_limit_sharing import LimitUsages, exchange_usage
from core.store.workers.shard_assignment import ShardAssignment
from core.tools.human_request_service import HOUR_SECONDS, HumanRequestService
from core.turns.automation.hooks import Hook, HookStore
from core.turns.automation.job_runner import JobRunner
from core.turns.automation.jobs import JobStore
from core.turns.automation.schedules import ScheduleStore
from core.turns.automation.tickets import set_running_store
from core.turns.history_compaction import HistoryCompactor
from core.turns.steering import SteeringQueue
from core.turns.store import TurnStore
from core.turns.turn import Turn
from core.turns.worker import TurnRunner, Worker
from core.usage.prices import Prices
from core.usage.spending_ledger import SpendingStore
from core.usage.spending_limits import SpendingLimiter
from core.usage.user_rate_limits import DenialNoticeStore

if TYPE_CHECKING:  # imported only when they are configured
    from channels.discord.platform import DiscordPlatform
    from channels.slack.platform import SlackPlatform

log = logging.getLogger(__name__)

#: Seconds that the start retries the database.
START_TIMEOUT_SECONDS = 7.0

#: Seconds that a stop may take after SHUTDOWN_TIMEOUT_SECONDS, even if something hangs.
SHUTDOWN_GRACE_SECONDS = 8.0


async def run_bot(settings: Settings, stop: asyncio.Event) -> None:
    """Run the bot on each platform with tokens until `stop` is set, then finish the running turns.

    Raises:
        SettingsError: a setting prevents the start.
        StoreError: the database prevents the start, or a newer version of Parley has migrated it.
        ConnectionLostError: the connection to a platform is lost and cannot be restored.
        ShutdownTimeoutError: the shutdown takes too long, for example because the database hangs.
    """
    ending = asyncio.Event()  # set when the shutdown begins, for whatever reason
    running = asyncio.create_task(_run(settings, ending), name="bot")
    try:
        await _wait_for_first(stop.wait(), ending.wait(), running)
        if not ending.is_set():
            running.cancel()
        seconds = settings.shutdown_timeout_seconds + SHUTDOWN_GRACE_SECONDS
        _, unfinished = await asyncio.wait([running], timeout=seconds)
        if unfinished:
            raise ShutdownTimeoutError(
                f"the shutdown took longer than {seconds:g} s; accepted messages are stored, and the next worker takes "
                "over the unfinished turns"
            )
        if not running.cancelled():
            running.result()
    finally:
        running.cancel()


async def _run(settings: Settings, ending: asyncio.Event) -> None:
    """Run the bot until cancelled, or until it cannot continue, then finish the running turns.

    It sets `ending` when the shutdown begins.
    """
    raise_open_files_limit()
    for unknown in find_unknown_settings():
        log.warning("%s", unknown)
    health = HealthMonitor()
    routes = [*make_probe_routes(health)]
    async with traces.export_traces(), AsyncExitStack() as stack:
        metrics = None
        if settings.metrics:
            from bot.monitoring.prometheus import MetricsEndpoint  # noqa: PLC0415 - imported only when it is configured

            metrics = MetricsEndpoint(health, settings.metrics_bearer_token)
            routes += metrics.routes
        server = await stack.enter_async_context(
            run_server(settings.port, routes, is_needed=settings.needs_public_http, host=settings.listen_address)
        )
        bot = await stack.enter_async_context(_build(settings))
        hooks = HookRoutes(bot.hooks, HookStore(bot.database, bot.triggered.wake), health)
        tickets = TicketRoutes(bot.jobs.store, health)
        platform_routes = (route for adapter in bot.adapters for route in adapter.routes)
        sign_ins = bot.sign_in_flow and SignInRoutes(
            bot.sign_in_flow, bot.request_messages.start_update, health, public_url=settings.public_url or ""
        )
        server.add_routes([*hooks.routes, *tickets.routes, *(sign_ins.routes if sign_ins else ()), *platform_routes])
        if metrics is not None:
            platforms = bot.platforms.values()
            await stack.enter_async_context(metrics.include_parts(platforms, bot.worker, bot.database))
        working: asyncio.Task[None] | None = None
        try:
            await _start_adapters(bot.adapters)
            working = asyncio.create_task(bot.worker.run(bot.answer), name="worker")
            garbage.freeze_gc()  # all objects so far are long-lived
            log.info("ready")
            placing = bot.triggered.run_placing({adapter.name: adapter.place for adapter in bot.adapters})
            async with (
                run_in_background(placing, name="placing"),
                run_in_background(bot.schedules.run_firing(), name="schedules"),
                run_in_background(health.watch(bot.adapters, bot.database), name="health") as watching,
            ):
                await _wait_for_first(working, watching)
        finally:
            ending.set()
            log.info("stopping")
            health.mark_stopping()
            stops = [adapter.stop() for adapter in bot.adapters]
            grace = settings.shutdown_timeout_seconds
            ended = await asyncio.gather(bot.worker.stop(grace), bot.jobs.drain(grace), *stops, return_exceptions=True)
            for error in ended:
                if error is not None:
                    log.error("a part of the bot failed to stop: %s", format_error(error))
            if working is not None:
                await working


@dataclass(frozen=True, slots=True)
class _BotParts:
    """Services of the bot that `_run` starts and stops."""

    database: Database
    worker: Worker
    answer: TurnRunner
    triggered: TriggeredEntries
    schedules: ScheduleStore
    jobs: JobRunner
    platforms: Platforms
    adapters: Sequence[PlatformAdapter]
    hooks: Mapping[str, Hook]
    sign_in_flow: SignInFlow | None
    request_messages: RequestMessages


@asynccontextmanager
async def _build(settings: Settings) -> AsyncIterator[_BotParts]:
    """Open the database, load the agents and create all services, for the block.

    Background tasks such as the lease renewal start here; the adapters and the worker do not. Everything is closed in
    reverse order at the end of the block.
    """
    words.set_default(settings.language)
    async with AsyncExitStack() as stack:
        database = Database(settings.database_address, connections=settings.database_pool_size)
        stack.enter_context(hold_database_lock(database))
        stack.push_async_callback(database.aclose)
        await retry_store(
            lambda: prepare_database(database), operation="the database", timeout_seconds=START_TIMEOUT_SECONDS
        )
        prices = Prices(settings.prices_file)
        sign_ins = _make_sign_in_service(settings, database, stack)
        loaded = await load_agents(settings, database, prices, sign_ins, stack)
        hooks = read_hooks(settings)
        spending = SpendingStore(database, prices)
        lease = Lease(database, seconds=settings.lease_seconds)
        await retry_store(lease.acquire, operation="the lease", timeout_seconds=START_TIMEOUT_SECONDS)
        stack.push_async_callback(lease.release)
        await stack.enter_async_context(run_in_background(lease.keep_renewed(), name="lease"))
        await stack.enter_async_context(run_in_background(spending.run_recording(), name="spending"))
        await stack.enter_async_context(_run_cleanup(settings, database, prices))
        slack, discord = _make_platforms(settings, database, stack)
        platforms = Platforms({platform.name: platform for platform in (slack, discord) if platform is not None})
        background = BackgroundTasks()
        turns = TurnStore(database, lease, loaded.agents)
        worker = Worker(turns, limit=settings.max_concurrent_turns)
        inbox = InboxStore(database, turns, worker, rates=settings.user_rate_limits)
        triggered = TriggeredEntries(database, turns, worker, lease, rates=settings.user_rate_limits)
        schedules = ScheduleStore(
            database, triggered.wake, limit=settings.max_schedules, min_minutes=settings.schedule_min_minutes
        )
        jobs = JobRunner(JobStore(database, triggered.wake), lease, public_url=settings.public_url or "")
        await stack.enter_async_context(_watch_jobs(jobs))
        conversations = ConversationService(database, turns, worker, budget=settings.history_max_tokens)
        human_requests = HumanRequestService(
            database,
            turns,
            worker,
            approvers=settings.approvers,
            expiry_hours=settings.approval_hours,
            rates=settings.user_rate_limits,
        )
        spending_limiter = SpendingLimiter(database, prices, spending, settings.spending_limits)
        compaction = HistoryCompactor(
            database,
            turns,
            loaded.summarizer,
            spending_limiter,
            wake=worker.wake,
            budget=settings.history_max_tokens if settings.summaries else None,
        )
        stack.push_async_callback(compaction.aclose)
        request_messages = RequestMessages(platforms, human_requests, background)
        default_runtime = loaded.runtimes[loaded.agents.default]
        rerenderer = ReplyRerenderer(
            platforms,
            default_runtime,
            conversations,
            human_requests,
            schedules,
            settings=settings.reply_settings,
            background=background,
        )
        stack.push_async_callback(background.drain, 0.0)
        services = PlatformServices(
            inbox,
            conversations,
            FeedbackStore(database),
            rerenderer,
            human_requests,
            request_messages,
            EntryStore(database, lease),
            schedules,
            jobs,
            TurnReports(database, prices),
            DenialNoticeStore(database),
            spending,
            sign_ins.store,
            background,
            settings.access_policy,
            settings.reply_without_mention,
            _make_sign_in_flow(settings, database, human_requests, sign_ins),
        )
        answerer = Answerer(
            default_runtime,
            turns,
            platforms,
            services,
            ContextBuilder(database, loaded.counter.count, max_tokens=settings.context_max_tokens),
            settings=settings.reply_settings,
            error_messages=ErrorMessages(spending, settings.admins),
            other_runtimes=loaded.runtimes,
            open_steering=partial(SteeringQueue, database, turns, worker)
            if settings.while_running == "steer"
            else None,
        )
        await stack.enter_async_context(
            run_in_background(human_requests.run_expiry(request_messages.update), name="human requests")
        )
        await stack.enter_async_context(
            run_in_background(_share_limits(database, lease, platforms.values()), name="rate limits")
        )
        adapters = _make_adapters(slack, discord, services, settings.backfill_limits, database=database, lease=lease)
        prompts = PromptStore(database, settings.encryption_key) if settings.keep_prompts_days else None

        async def answer(turn: Turn) -> None:
            turn.meter.prompts = prompts
            async with spending_limiter.limit_run(turn.meter):
                await compaction.run_turn(turn, answerer.answer)

        yield _BotParts(
            database,
            worker,
            answer,
            triggered,
            schedules,
            jobs,
            platforms,
            adapters,
            hooks,
            services.sign_in_flow,
            request_messages,
        )


@asynccontextmanager
async def _run_cleanup(settings: Settings, database: Database, prices: Prices) -> AsyncIterator[None]:
    """During the block, delete old turns, prompts and messages."""
    pruning = CleanupService(database, days=settings.turn_retention_days, prompt_days=settings.keep_prompts_days)
    retention = RetentionService(database, prices, days=settings.retention_days)
    async with (
        run_in_background(pruning.run(), name="pruning"),
        run_in_background(retention.run(), name="retention"),
    ):
        yield


@asynccontextmanager
async def _watch_jobs(jobs: JobRunner) -> AsyncIterator[None]:
    """During the block, end the jobs of dead workers, and let `finish_ticket` in this process use the store."""
    set_running_store(jobs.store)
    try:
        async with run_in_background(jobs.run_watch(), name="jobs"):
            yield
    finally:
        set_running_store(None)


def _make_sign_in_service(settings: Settings, database: Database, stack: AsyncExitStack) -> SignInService:
    """Return the credentials of people, which `stack` closes; nobody can sign in if no platform has its settings."""
    vault = Vault(database, settings.encryption_key)
    oauth = OAuthClient(allows_private_hosts=settings.is_local)
    store = CredentialStore(database, vault, oauth)
    stack.push_async_callback(store.aclose)
    pending = PendingSignIns(vault, seconds=2 * settings.approval_hours * HOUR_SECONDS)
    secrets = {id_: secret.get_secret_value() for id_, secret in settings.sign_in_client_secrets.items()}
    return SignInService(
        store,
        pending,
        platforms=settings.sign_in_platforms,
        client_secrets=secrets,
        servers=McpAuthorization(oauth, vault, public_url=settings.public_url or ""),
    )


def _make_sign_in_flow(
    settings: Settings, database: Database, requests: HumanRequestService, service: SignInService
) -> SignInFlow | None:
    """Return the sign-in in a browser; None if no platform has its settings."""
    if settings.public_url is None or not settings.sign_in_platforms:
        return None
    return SignInFlow(
        Vault(database, settings.encryption_key),
        requests,
        service.pending,
        service.store,
        oauth=OAuthClient(allows_private_hosts=settings.is_local),
        identities=make_identities(settings),
        public_url=settings.public_url,
    )


def _make_platforms(
    settings: Settings, database: Database, stack: AsyncExitStack
) -> "tuple[SlackPlatform | None, DiscordPlatform | None]":
    """Return the platforms whose tokens are set, and import no other; `stack` closes them."""
    slack = None
    discord = None
    if settings.slack is not None:
        from channels.slack.platform import SlackPlatform  # noqa: PLC0415

        vault = Vault(database, settings.token_encryption_key) if settings.token_encryption_key else None
        slack = SlackPlatform(settings.slack, vault, tracks_unaddressed=settings.reply_without_mention != "never")
        stack.push_async_callback(slack.aclose)
    if settings.discord is not None:
        from channels.discord.platform import DiscordPlatform  # noqa: PLC0415

        discord = DiscordPlatform(settings.discord)
        stack.push_async_callback(discord.aclose)
    return slack, discord


def _make_adapters(
    slack: "SlackPlatform | None",
    discord: "DiscordPlatform | None",
    services: PlatformServices,
    limits: BackfillLimits,
    *,
    database: Database,
    lease: Lease,
) -> Sequence[PlatformAdapter]:
    adapters = list[PlatformAdapter]()
    watermarks = Watermarks(database)
    if slack is not None:
        from channels.slack.adapter import SlackAdapter  # noqa: PLC0415

        adapters.append(SlackAdapter(slack, services, watermarks, limits))
    if discord is not None:
        from channels.discord.adapter import DiscordAdapter  # noqa: PLC0415

        assignment = ShardAssignment(database, lease, discord.name)
        adapters.append(DiscordAdapter(discord, services, watermarks, limits, assignment))
    return adapters


async def prepare_database(database: Database) -> None:
    """Migrate the database if it is SQLite, then verify its schema version."""
    if database.is_sqlite:
        await migrate(database)
    await verify_schema(database)


async def _start_adapters(adapters: Collection[PlatformAdapter]) -> None:
    """Start all adapters concurrently; raise errors once all have started or failed.

    One `SettingsError` has the faults of all adapters. Without one, the first other error is raised.
    """
    if not adapters:
        raise SettingsError(NO_TOKENS)
    results = await asyncio.gather(*map(_start_adapter, adapters), return_exceptions=True)
    errors = [result for result in results if result is not None]
    if faults := [fault for error in errors if isinstance(error, SettingsError) for fault in error.faults]:
        raise SettingsError(*faults)
    for error in errors:
        raise error


async def _share_limits(database: Database, lease: Lease, platforms: Collection[Platform]) -> None:
    """Exchange the usage of platform rate limits with other workers, until cancelled.

    On SQLite there are no other workers, and it returns at once. The names of the rate limiters are unique across
    platforms.
    """

    def announce() -> LimitUsages:
        return {name: use for platform in platforms for name, use in platform.limiters.record_usage().items()}

    def share(others: Sequence[LimitUsages]) -> None:
        for platform in platforms:
            platform.limiters.apply_peer_usage(others)

    await exchange_usage(database, lease, announce, share)


async def _start_adapter(adapter: PlatformAdapter) -> None:
    await adapter.start()
    log.info("%s: listening", adapter.name)


async def _wait_for_first(*awaitables: Coroutine[Any, Any, object] | asyncio.Task[None]) -> None:
    """Wait until one of several awaitables ends; raise its exception if it has one.

    The coroutines that still run are then cancelled, also if this function is cancelled. Tasks that still run continue.
    """
    tasks = [work if isinstance(work, asyncio.Task) else asyncio.create_task(work) for work in awaitables]
    try:
        ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in set(tasks).difference(awaitables):
            task.cancel()
    for task in ended:
        task.result()
