"""Worker of the benchmarks: the bot's services with an instant platform and model."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from time import time
from typing import Any

import sqlalchemy as sa

from channels.answerer import Answerer
from channels.base import (
    File,
    MessageText,
    SurroundingMessages,
)
from channels.commands.services import PlatformServices
from channels.intake.context import ContextBuilder
from channels.markdown.dialect import MessageLimits
from channels.platform import FetchedFile, FileCheck, Platforms, UnreadableFileError
from channels.rate_limits.limiter import RateLimiter, Window
from channels.rate_limits.registry import RateLimiters
from channels.replies.diff import Edit, Post
from channels.replies.reactions import Address, QueuedReactions
from channels.replies.surface import EditOutcome, PostOutcome, RecordFile, Surface
from channels.requests.request_message import RequestMessages
from channels.settings import ReplySettings
from channels.turns.update_after_edit import ReplyRerenderer
from core.agents.config import AgentConfig
from core.agents.factory import create_app
from core.agents.runtime import AgentRuntime, warm_up
from core.concurrency import gc_tuning
from core.concurrency.tasks import BackgroundTasks
from core.conversations.history_state import HistoryState
from core.conversations.service import ConversationService
from core.inbox.store import InboxStore
from core.messages.inbox_message import Attachment, InboxMessage
from core.models.adapter import ModelAdapter
from core.models.provider import NO_SUPPORTED_FILES, Done, ModelRequest, ProviderEvent, SupportedFiles, Text
from core.models.tokens import TokenCounter
from core.sessions.agent_routing import AgentRouter
from core.sessions.service import SessionService
from core.store.database import Database
from core.store.migrate import migrate
from core.store.schema import turns as turns_table
from core.store.workers.lease import Lease
from core.tools.human_request_service import HumanRequestService
from core.turns.steering import SteeringQueue
from core.turns.store import TurnStore
from core.turns.turn import Turn
from core.turns.worker import Worker

#: Maximum number of concurrent turns, more than the benchmarks use.
MAX_CONCURRENT_TURNS = 500


class OneWordModel:
    """Model provider that answers "Well." after `seconds`."""

    name = "scripted"

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def supported_files(self, model: str) -> SupportedFiles:
        del model
        return NO_SUPPORTED_FILES

    async def stream(self, _request: ModelRequest) -> AsyncIterator[ProviderEvent]:
        if self._seconds:
            await asyncio.sleep(self._seconds)
        yield Text("Well.")
        yield Done()

    async def aclose(self) -> None:
        return


class InstantPlatform:
    """Platform without users: each reply is shown at once.

    It has no context messages and no files. `side_message_address` and `reply_address` raise `AssertionError`.
    """

    name = "memory"
    max_menu_options = 100

    def __init__(self) -> None:
        self.ids = count(1)
        self.limiters = RateLimiters()
        self.limiter = RateLimiter(Window(calls=1_000_000, seconds=1.0))
        self.queued_reactions = QueuedReactions(_ignore_reaction, _ignore_reaction)

    def can_post(self, address: Mapping[str, Any]) -> bool:
        return bool(address)

    def side_message_address(self, address: Mapping[str, Any], name: str) -> Mapping[str, Any]:
        raise AssertionError(f"the benchmark needs no address: {name}")

    def reply_address(self, address: Mapping[str, Any], message_id: str) -> Mapping[str, Any]:
        raise AssertionError(f"the benchmark needs no address: {message_id}")

    def create_surface(self, address: Mapping[str, Any], *, turn_id: str = "") -> Surface:
        del address, turn_id
        return _InstantSurface(self)

    async def get_locale(self, inbound: InboxMessage) -> str:
        return ""

    async def read_message(self, inbound: InboxMessage) -> MessageText:
        return MessageText(inbound.text, inbound.author, time_zone="Asia/Seoul")

    async def fetch_file(self, inbound: InboxMessage, file: Attachment, check: FileCheck) -> FetchedFile:
        raise UnreadableFileError("there are none")

    async def fetch_context(
        self, messages: Sequence[InboxMessage], history: HistoryState | None
    ) -> SurroundingMessages:
        return SurroundingMessages()


class _InstantSurface(Surface):
    """Reply surface whose calls succeed at once."""

    limits = MessageLimits(chunk_size=4000, measure=len)

    def __init__(self, platform: InstantPlatform) -> None:
        super().__init__(platform.queued_reactions, {})
        self._platform = platform

    @property
    def post_limiter(self) -> RateLimiter:
        return self._platform.limiter

    @property
    def edit_limiter(self) -> RateLimiter:
        return self._platform.limiter

    async def post(self, operation: Post, *, previous_id: str | None = None, has_slot: bool = False) -> PostOutcome:
        self._platform.limiter.release()
        return PostOutcome(str(next(self._platform.ids)))

    async def edit(self, message_id: str, operation: Edit, *, has_slot: bool = False) -> EditOutcome:
        self._platform.limiter.release()
        return EditOutcome.DONE

    async def delete(self, message_id: str) -> None:
        return

    async def attach(self, files: Sequence[File], last_id: str, known: Mapping[str, str], record: RecordFile) -> None:
        return

    async def detach(self, file_id: str) -> None:
        return

    async def find_message_ids(self, recorded_ids: Sequence[str] = (), *, stops_stream: bool = False) -> list[str]:
        return list(recorded_ids)

    async def add_reaction(self, emoji: str) -> None:
        return


async def _ignore_reaction(_address: Address) -> None:
    """Do nothing: there is no platform."""


@dataclass(frozen=True, slots=True)
class WorkerServices:
    """Services of a running worker that the benchmarks call."""

    database: Database
    inbox: InboxStore
    turns: TurnStore


TurnCallback = Callable[[Turn], None]


@asynccontextmanager
async def run_worker(
    url: str,
    *,
    model_seconds: float = 0.0,
    limit: int = MAX_CONCURRENT_TURNS,
    has_agent: bool = True,
    on_start: TurnCallback = lambda _turn: None,
    on_end: TurnCallback = lambda _turn: None,
    on_cancel: TurnCallback = lambda _turn: None,
) -> AsyncIterator[WorkerServices]:
    """Start a worker with the bot's services, and stop it when the context ends.

    At the end, turns that still run after 0.1 s are cancelled and handed back.

    Args:
        url: the URL of the database. SQLite is migrated; another database must have the tables.
        model_seconds: the model's time before its answer.
        limit: the maximum number of concurrent turns.
        has_agent: False runs only the writes of a turn, without agent and reply.
        on_start: called at the start of each turn.
        on_end: called after its end, also as failed, but not after a cancellation.
        on_cancel: called after a cancelled turn has ended or was handed back, and its reply shows that.

    Raises:
        RuntimeError: the database has failed turns; raised at the end.
    """
    async with AsyncExitStack() as stack:
        database = Database(url)
        stack.push_async_callback(database.aclose)
        if database.is_sqlite:
            await migrate(database)
        lease = Lease(database)
        await lease.acquire()
        stack.push_async_callback(lease.release)
        counter = TokenCounter(Path(".parley/tiktoken"))
        sessions = SessionService(database, counter, agent="parley")
        app = create_app(
            AgentConfig(name="parley"), model=ModelAdapter(model="scripted", provider=OneWordModel(model_seconds))
        )
        runtime = AgentRuntime(app, sessions)
        stack.push_async_callback(runtime.aclose)
        await warm_up()
        turns = TurnStore(database, lease, AgentRouter(app.name))
        worker = Worker(turns, limit=limit)
        answerer = create_answerer(runtime, database, turns, worker, InstantPlatform(), counter)

        async def write_turn(turn: Turn) -> None:
            await turns.save_message_ids(turn, ["1"])
            await asyncio.sleep(model_seconds)
            await turns.save_answer(turn, "Well.", {})
            await turns.end(turn, "done")

        async def answer(turn: Turn) -> None:
            on_start(turn)
            try:
                await (answerer.answer if has_agent else write_turn)(turn)
            except asyncio.CancelledError:
                on_cancel(turn)
                raise
            on_end(turn)

        gc_tuning.freeze_gc()
        tasks = [
            asyncio.create_task(lease.keep_renewed(), name="lease"),
            asyncio.create_task(worker.run(answer), name="worker"),
        ]
        try:
            yield WorkerServices(database, InboxStore(database, turns, worker), turns)
        finally:
            await worker.stop(0.1)
            tasks[0].cancel()
            await tasks[1]
            await asyncio.wait(tasks)
        if failed := await _count_failed_turns(database):
            raise RuntimeError(f"{failed} turns have failed, so the figures are not those of a complete turn")


def create_answerer(
    runtime: AgentRuntime,
    database: Database,
    turns: TurnStore,
    worker: Worker,
    platform: InstantPlatform,
    counter: TokenCounter,
) -> Answerer:
    """Return an answerer with one platform."""
    platforms = Platforms({platform.name: platform})
    conversations = ConversationService(database, turns, worker, budget=0)
    human_requests = HumanRequestService(database, turns, worker)
    background = BackgroundTasks()
    nothing: Any = None  # only an adapter needs it
    services = PlatformServices(
        inbox=nothing,
        conversations=conversations,
        feedback=nothing,
        rerenderer=ReplyRerenderer(
            platforms, runtime, conversations, human_requests, nothing, settings=ReplySettings(), background=background
        ),
        human_requests=human_requests,
        request_messages=RequestMessages(platforms, human_requests, background),
        entries=nothing,
        schedules=nothing,
        jobs=nothing,
        turn_reports=nothing,
        denial_notices=nothing,
        spending=nothing,
        sign_ins=nothing,
        background=background,
    )
    return Answerer(
        runtime,
        turns,
        platforms,
        services,
        ContextBuilder(database, counter.count),
        open_steering=partial(SteeringQueue, database, turns, worker),
    )


async def _count_failed_turns(database: Database) -> int:
    """Return the number of failed turns in a database."""
    async with database.read() as connection:
        return (
            await connection.execute(sa.select(sa.func.count()).where(turns_table.c.state == "failed"))
        ).scalar_one()


def build_message(session: str, text: str = "Well?") -> InboxMessage:
    """Return a new inbox message in the session `memory:SESSION`.

    Its event key is unique in this process only: another process may build the same one.
    """
    number = next(_numbers)
    return InboxMessage(
        event_key=f"{session}:{text}:{number}",
        session_id=f"memory:{session}",
        place=f"memory:{session}",
        platform=InstantPlatform.name,
        address={},
        author="somebody",
        text=text,
        sent_at=time(),
    )


_numbers = count(1)
