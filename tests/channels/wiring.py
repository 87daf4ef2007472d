"""Core services for a platform adapter in a test, with a scripted model."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import sqlalchemy as sa
from google.adk.apps import App
from google.adk.tools.base_tool import BaseTool
from google.adk.workflow import Workflow

from channels.access import AccessPolicy, AccessRules
from channels.answerer import Answerer
from channels.commands.services import PlatformServices
from channels.intake.context import ContextBuilder
from channels.platform import Platform, Platforms
from channels.requests.request_message import RequestMessages
from channels.settings import CONTEXT_MAX_TOKENS, AttachmentLimits, BackfillLimits, ReplySettings
from channels.turns.error_messages import ErrorMessages
from channels.turns.update_after_edit import ReplyRerenderer
from chatrig.models import ReceivedRequest, ScriptedAnthropic, ScriptedGemini, ScriptedOpenAI
from core.agents.config import AgentConfig
from core.agents.factory import create_app, create_plugins
from core.agents.runtime import AgentRuntime
from core.concurrency.tasks import BackgroundTasks
from core.conversations.feedback import FeedbackStore
from core.conversations.service import ConversationService
from core.conversations.turn_report import TurnReports
from core.errors import StoreError
from core.inbox.entries import EntryStore
from core.inbox.store import InboxStore
from core.inbox.triggered import TriggeredEntries
from core.inbox.watermarks import Watermarks
from core.messages.identity import AUTHOR
from core.messages.inbox_message import ReplyWithoutMention
from core.models.adapter import ModelAdapter
from core.models.provider import ModelHandle
from core.models.provider_registry import make_provider
from core.models.retries_and_fallbacks import Fallbacks
from core.models.tokens import TokenCounter
from core.models.vendors import VendorSettings
from core.privacy.prompts import PromptStore
from core.privacy.vault import Vault
from core.sessions.agent_routing import AgentProfile, AgentRouter
from core.sessions.artifacts import ArtifactService
from core.sessions.prompt_text import QUOTE_END
from core.sessions.service import SessionService
from core.signin.adk import SignInService
from core.signin.browser import SignInFlow
from core.signin.credentials import CredentialStore
from core.signin.oauth import OAuthClient
from core.signin.pending import PendingSignIns
from core.store.database import Database
from core.store.schema import inbox as inbox_table
from core.store.schema import metadata
from core.store.schema import turns as turns_table
from core.store.workers.lease import Lease
from core.store.workers.shard_assignment import ShardAssignment
from core.tools.call_log import ToolCallLog
from core.tools.human_request_service import HumanRequestService
from core.turns.automation.job_runner import JobRunner
from core.turns.automation.jobs import JobStore
from core.turns.automation.schedules import ScheduleStore
from core.turns.queries import is_message
from core.turns.steering import SteeringQueue
from core.turns.store import TurnStore
from core.turns.turn import Turn
from core.turns.worker import TurnRunner, Worker
from core.usage.prices import Prices
from core.usage.spending_ledger import SpendingStore
from core.usage.spending_limits import SpendingLimiter, SpendingLimits
from core.usage.user_rate_limits import NO_RATE_LIMITS, DenialNoticeStore, UserRateLimiter
from tests.fixtures import empty_databases as tables
from tests.fixtures.watched_database import WatchedDatabase

#: Models that users may choose, and the token budget of the history.
MODELS, BUDGET = ("openai/scripted", "openai/other"), 32_000

#: Fallback model, if a script for it is given.
FALLBACK_MODEL = "openai/fallback"

#: Access rules without restrictions.
OPEN_RULES = AccessRules()

#: Router with only the default agent.
DEFAULT_ROUTER = AgentRouter("parley", {"parley": AgentProfile("parley", MODELS)})

#: Address at which other programs reach the bot.
PUBLIC_URL = "https://bot.example"

#: Key of the vault.
SECRET_KEY = "0123456789abcdef" * 2

#: Default limits of the backfill.
BACKFILL_LIMITS = BackfillLimits()


#: Scripted server and full model name of each vendor.
MODEL_SERVERS: Mapping[str, tuple[Any, str]] = {
    "openai": (ScriptedOpenAI, "openai/scripted"),
    "anthropic": (ScriptedAnthropic, "anthropic/scripted"),
    "gemini": (ScriptedGemini, "gemini-scripted"),
}


@dataclass
class CoreParts:
    """Services of the core; a platform's `run_bot` adds its adapter."""

    model: Any
    database: WatchedDatabase
    turns: TurnStore
    inbox: InboxStore
    services: PlatformServices
    watermarks: Watermarks
    shard_assignment: ShardAssignment
    answerer: Answerer
    worker: Worker
    answer: TurnRunner
    platform: Any
    triggered: TriggeredEntries


@asynccontextmanager
async def run_core(
    tmp_path: Path,
    make_platform: Callable[[Database], Platform],
    *script: Any,
    time_limit: float,
    max_chunks: int,
    follow: ReplyWithoutMention = "author",
    approvers: Sequence[str] = (AUTHOR,),
    vendor: str = "openai",
    tools: Sequence[BaseTool] = (),
    attachment_limits: AttachmentLimits | None = None,
    context_tokens: int = CONTEXT_MAX_TOKENS,
    agents: AgentRouter = DEFAULT_ROUTER,
    access_policy: AccessPolicy | None = None,
    rates: UserRateLimiter = NO_RATE_LIMITS,
    limits: SpendingLimits = SpendingLimits(),  # noqa: B008 - it is frozen
    admins: Sequence[str] = (),
    fallback_script: Any = None,
    retry_delays: tuple[float, ...] = (),
    root: Workflow | None = None,
    prompt_key: str = "",
    is_steered: bool = False,
) -> AsyncIterator[CoreParts]:
    async with AsyncExitStack() as stack:
        server, full_name = MODEL_SERVERS[vendor]
        model = await stack.enter_async_context(server(script[0] if callable(script[0]) else list(script)))
        database = WatchedDatabase(f"sqlite+aiosqlite:///{tmp_path / 'parley.db'}")
        stack.push_async_callback(database.aclose)
        await tables.create_tables(database)
        provider, name = make_provider(full_name, _create_vendor_settings(model.base_url))
        stack.push_async_callback(provider.aclose)
        fallbacks = dict[str, ModelHandle]()
        if fallback_script is not None:
            fallback = await stack.enter_async_context(server(fallback_script))
            fallbacks[FALLBACK_MODEL] = ModelHandle(
                *make_provider(FALLBACK_MODEL, _create_vendor_settings(fallback.base_url))
            )
            stack.push_async_callback(fallbacks[FALLBACK_MODEL].provider.aclose)
        prices = tmp_path / "prices.toml"
        prices.write_text(f'"{full_name}" = {{ input = 1000, output = 1000 }}')
        spending_store = SpendingStore(database, Prices(prices))
        limiter = SpendingLimiter(database, Prices(prices), spending_store, limits)
        sessions = SessionService(database, TokenCounter(tmp_path), agent="parley")
        app = create_app(
            AgentConfig(name="parley"),
            model=ModelAdapter(
                model=full_name,
                provider=provider,
                selectable={full_name: ModelHandle(provider, name)},
                fallbacks=Fallbacks(fallbacks),
                retry_delays=retry_delays,
            ),
            tools=tools,
            plugins=create_plugins(ToolCallLog(database), approvers=approvers),
        )
        if root is not None:
            app = App(name="parley", root_agent=root, plugins=app.plugins)
        vault, oauth = Vault(database, SECRET_KEY), OAuthClient()
        credentials, pending = CredentialStore(database, vault, oauth), PendingSignIns(vault, seconds=3600)
        sign_ins = SignInService(credentials, pending, platforms=("slack", "discord"), client_secrets={})
        runtime = AgentRuntime(app, sessions, artifacts=ArtifactService(database), sign_ins=sign_ins)
        stack.push_async_callback(runtime.aclose)
        turns = await create_successor(database, agents)
        platform = make_platform(database)
        platforms = Platforms({platform.name: platform})
        worker = Worker(turns)
        inbox = InboxStore(database, turns, worker, rates=rates)
        conversations = ConversationService(database, turns, worker, budget=BUDGET)
        human_requests = HumanRequestService(database, turns, worker, approvers=approvers, rates=rates)
        context = ContextBuilder(database, TokenCounter(tmp_path).count, max_tokens=context_tokens)
        replies = ReplySettings(time_limit, max_chunks, attachment_limits=attachment_limits or AttachmentLimits())
        background = BackgroundTasks()
        stack.push_async_callback(background.drain, 0.0)
        request_messages = RequestMessages(platforms, human_requests, background)
        triggered = TriggeredEntries(database, turns, worker, turns._lease, rates=rates)
        schedules = ScheduleStore(database, triggered.wake)
        rerenderer = ReplyRerenderer(
            platforms, runtime, conversations, human_requests, schedules, settings=replies, background=background
        )
        jobs = JobRunner(JobStore(database, triggered.wake), turns._lease, public_url=PUBLIC_URL)
        stack.push_async_callback(jobs.drain, 0.0)
        services = PlatformServices(
            inbox,
            conversations,
            FeedbackStore(database),
            rerenderer,
            human_requests,
            request_messages,
            EntryStore(database, turns._lease),
            schedules,
            jobs,
            TurnReports(database, spending_store.prices),
            DenialNoticeStore(database),
            spending_store,
            credentials,
            background,
            access_policy or AccessPolicy(),
            follow,
            SignInFlow(
                vault,
                human_requests,
                pending,
                credentials,
                oauth=oauth,
                identities={platform.name: SimpleNamespace(label=platform.name)},  # only a browser needs more
                public_url=PUBLIC_URL,
            ),
        )
        answerer = Answerer(
            runtime,
            turns,
            platforms,
            services,
            context,
            error_messages=ErrorMessages(spending_store, admins),
            settings=replies,
            open_steering=partial(SteeringQueue, database, turns, worker) if is_steered else None,
        )

        async def answer(turn: Turn) -> None:
            turn.meter.prompts = PromptStore(database, prompt_key) if prompt_key else None
            async with limiter.limit_run(turn.meter):
                await answerer.answer(turn)

        watermarks, shard_assignment = Watermarks(database), ShardAssignment(database, turns._lease, "discord")
        yield CoreParts(
            model,
            database,
            turns,
            inbox,
            services,
            watermarks,
            shard_assignment,
            answerer,
            worker,
            answer,
            platform,
            triggered,
        )


def _create_vendor_settings(base_url: str) -> VendorSettings:
    key = "sk-test-key-of-the-simulator"
    return VendorSettings(
        google_api_key=key,
        google_base_url=base_url,
        openai_api_key=key,
        openai_base_url=base_url,
        anthropic_api_key=key,
        anthropic_base_url=base_url,
    )


async def create_successor(database: Database, agents: AgentRouter = DEFAULT_ROUTER) -> TurnStore:
    """Return the turn store of a new process, which takes a lease on the database."""
    lease = Lease(database)
    await lease.acquire()
    return TurnStore(database, lease, agents)


class WiredBot:
    """Bot with the core's services; base of each platform's bot."""

    def __init__(self, core: CoreParts) -> None:
        self.model = core.model
        self.database = core.database
        self.platform = core.platform
        self.turns = core.turns
        self.inbox = core.inbox
        self.services = core.services
        self.triggered = core.triggered
        self.watermarks = core.watermarks
        self.shard_assignment = core.shard_assignment
        self.answerer = core.answerer
        self.worker = core.worker

    async def list_turns(self) -> list[Any]:
        async with self.database.read() as connection:
            query = sa.select(turns_table).order_by(turns_table.c.created_at)
            return list((await connection.execute(query)).all())

    async def wait_for_turns(self, count: int) -> list[Any]:
        """Wait until at least `count` turns have ended, and return the rows of all turns."""
        return await self.database.wait_until(
            self.list_turns, lambda rows: sum(row.finished_at is not None for row in rows) >= count
        )

    async def wait_for_states(self, *states: str) -> None:
        """Wait until the turns are exactly in these states, oldest first."""
        await self.database.wait_until(self.list_turns, lambda rows: [row.state for row in rows] == list(states))

    async def wait_for_messages(self, count: int) -> list[Any]:
        """Wait until `count` messages are accepted and none waits; return the inbox rows."""

        async def list_unprocessed() -> tuple[list[Any], list[Any]]:
            ended_ids = {row.id for row in await self.list_turns() if row.finished_at is not None}
            rows = await self.list_inbox_messages()
            return rows, [row for row in rows if row.outcome is None and row.turn not in ended_ids]

        rows, _ = await self.database.wait_until(
            list_unprocessed, lambda found: len(found[0]) >= count and not found[1]
        )
        return rows

    async def restart_worker(self, **changed: Any) -> None:
        """Replace the running worker by a new one, as after a crash of the process.

        Args:
            changed: new column values of all turns, set before the new worker starts.
        """
        async with self.worker._claiming:
            self.turns._update = self.turns.end = _raise_process_gone  # type: ignore[method-assign]
            if running := [run.task for run in self.worker._running.values()]:
                for task in running:
                    task.cancel()
                await asyncio.wait(running)
            if changed:
                async with self.database.write() as connection:
                    await connection.execute(sa.update(turns_table).values(**changed))
            self.turns = self.answerer._turns = self.worker._turns = await create_successor(self.database)
        self.worker.wake()

    async def list_inbox_messages(self) -> list[Any]:
        async with self.database.read() as connection:
            query = sa.select(inbox_table).where(is_message(inbox_table)).order_by(inbox_table.c.id)
            return list((await connection.execute(query)).all())


async def find_tables_with(bot: WiredBot, text: str) -> list[str]:
    """Return the table name of each database row that contains the text."""
    async with bot.database.read() as connection:
        rows = [
            (table.name, row) for table in metadata.sorted_tables for row in await connection.execute(sa.select(table))
        ]
    return [name for name, row in rows if text in str(row)]


def echo(request: ReceivedRequest) -> str:
    """Return "heard: " and the question of a model request, without quoted context."""
    return f"heard: {request.text.rpartition(QUOTE_END)[2].strip()}"


async def wait_until(predicate: Callable[[], Any], *, seconds: float = 30) -> None:
    """Poll until the predicate is true, for changes outside the simulator.

    Raises:
        TimeoutError: after `seconds`.
    """
    async with asyncio.timeout(seconds):
        while not predicate():  # noqa: ASYNC110 - the state sends no event
            await asyncio.sleep(0.005)


class _ProcessGoneError(StoreError):
    """Error of each write by a process that counts as crashed."""

    retryable = False


async def _raise_process_gone(*_: Any, **__: Any) -> None:
    raise _ProcessGoneError("the process is gone")
