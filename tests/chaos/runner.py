"""Runner of the crash scenario, with new platforms and a database for each run."""

import asyncio
import itertools
import json
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import astuple, dataclass
from functools import partial
from pathlib import Path

import sqlalchemy as sa

from channels.i18n import messages as words
from chatrig.discord import DiscordSimulator
from chatrig.models import ScriptedOpenAI
from chatrig.slack import SlackSimulator
from core.messages.identity import DEFAULT_AGENT_NAME
from core.sessions.lifecycle import new_session_row
from core.store.database import Database
from core.store.schema import platforms, sessions
from tests.acceptance.platforms import BotConversation, BotMessage, Discord, DiscordBotConversation, Platform, Slack
from tests.chaos import evidence, scenario, verdict
from tests.chaos.crashing_process import LOG, PASSAGES, Crash
from tests.chaos.evidence import Evidence
from tests.chaos.scenario import ScenarioModel, send_messages
from tests.processes.fork_server import ForkedProcess, ForkServer

#: Module of the fork server: see `tests.processes.fork_server.start_fork_server`.
FORKED_MODULE = "tests.chaos.fork_main"

#: Limit from the start of the last process to the last answer, in seconds.
SETTLE_TIMEOUT_SECONDS = 60.0

#: Limit of a shutdown, in seconds.
STOP_TIMEOUT_SECONDS = 20.0

#: Seconds between two polls of the database.
POLL_SECONDS = 0.02

#: Function that provides an empty migrated database for a folder, and yields its SQLAlchemy URL.
DatabaseProvider = Callable[[Path], AbstractAsyncContextManager[str]]


@dataclass(frozen=True)
class ScenarioOutcome:
    """Outcome of one run of the crash scenario.

    Attributes:
        reached: whether each process reached its crash point.
        passages: the number of passages of each crash point by the last process.
        log: the log of all processes.
    """

    evidence: Evidence
    reached: bool
    passages: Mapping[str, int]
    log: str


class ScenarioRunner:
    """Runner of the crash scenario, with a new database and platforms for each run.

    Args:
        provide_database: see `DatabaseProvider`.
        folder: the folder of the processes' files.
        settings: additional settings of the bot.
    """

    def __init__(
        self, fork_server: ForkServer, provide_database: DatabaseProvider, folder: Path, **settings: str
    ) -> None:
        self._fork_server = fork_server
        self._provide_database = provide_database
        self._folder = folder
        self._settings = settings
        self._numbers = itertools.count()

    async def run(self, *crashes: Crash) -> ScenarioOutcome:
        """Run the scenario with one process per crash, and a last process without one.

        The last process is stopped once all messages are answered. Returns the outcome.
        """
        folder = self._folder / str(next(self._numbers))
        folder.mkdir()
        async with AsyncExitStack() as stack:
            url = await stack.enter_async_context(self._provide_database(folder))
            model = ScenarioModel(is_steered=self._settings.get("WHILE_RUNNING") == "steer")
            scripted = await stack.enter_async_context(ScriptedOpenAI(model.answer))
            slack = Slack(await stack.enter_async_context(SlackSimulator()))
            discord = Discord(await stack.enter_async_context(DiscordSimulator()))
            database = Database(url)
            stack.push_async_callback(database.aclose)
            settings = {
                **scenario.settings((slack, discord), scripted.base_url),
                "DATABASE_URL": url.replace("+asyncpg", "").replace("+aiosqlite", ""),
                "LEASE_SECONDS": "1",
                **self._settings,
            }
            place = discord.simulator.add_channel("conversation")
            await insert_known_place(f"discord:{discord.simulator.guild_id}:{place.id}", database)
            conversations: dict[Platform, BotConversation] = {
                slack: slack.start_conversation(),
                discord: DiscordBotConversation(discord.simulator, place),
            }
            scenario_run = _ScenarioRun(self._fork_server, folder, settings, database, model, conversations)
            return await scenario_run.run(crashes)


class _ScenarioRun:
    """One run of the crash scenario: users' messages and the processes of the bot."""

    def __init__(
        self,
        fork_server: ForkServer,
        folder: Path,
        settings: Mapping[str, str],
        database: Database,
        model: ScenarioModel,
        conversations: Mapping[Platform, BotConversation],
    ) -> None:
        self._fork_server = fork_server
        self._folder = folder
        self._settings = settings
        self._database = database
        self._model = model
        self._conversations = conversations
        self._faults: list[str] = []

    async def run(self, crashes: Sequence[Crash]) -> ScenarioOutcome:
        reached = not crashes
        senders = [
            asyncio.create_task(
                send_messages(
                    platform,
                    conversation,
                    self._model.may_finish[platform.name],
                    partial(_is_answered, platform, conversation),
                )
            )
            for platform, conversation in self._conversations.items()
        ]
        try:
            for number, crash in enumerate((*crashes, None), 1):
                code = await self._run_process(crash, senders)
                if code != -signal.SIGKILL:
                    break
                reached = number == len(crashes)
                await self._wait_until_disconnected()
            if code:
                self._faults.append(f"a process ended with {code}")
        finally:
            for sender in senders:
                sender.cancel()
            sender_results = await asyncio.gather(*senders, return_exceptions=True)
        self._faults += [
            f"a user could not send a message: {error}" for error in sender_results if isinstance(error, Exception)
        ]
        self._faults += [
            f"{platform.name}: a reply still has a Stop button"
            for platform, conversation in self._conversations.items()
            if _is_growing(conversation)
        ]
        visible_texts = {
            platform.name: _list_texts(conversation.replies()) for platform, conversation in self._conversations.items()
        }
        passages, log = self._folder / PASSAGES, self._folder / LOG
        return ScenarioOutcome(
            await evidence.collect(
                self._database,
                self._folder,
                visible_texts=visible_texts,
                request_violations=self._model.violations,
                faults=self._faults,
            ),
            reached,
            json.loads(passages.read_text()) if passages.exists() else {},
            log.read_text(errors="replace") if log.exists() else "",
        )

    async def _run_process(self, crash: Crash | None, senders: Sequence[asyncio.Task[None]]) -> int:
        """Run one process until it crashes, or all is answered; return its exit code.

        It stops a process that does not crash in time, or has no work left.

        Args:
            senders: the tasks that send the users' messages.
        """
        crash_fields = astuple(crash) if crash else None
        process = await self._fork_server.start_process(
            folder=str(self._folder), settings=self._settings, crash=crash_fields
        )
        done = asyncio.create_task(self._wait_until_done(senders))
        exit_task = asyncio.create_task(process.wait())
        try:
            await asyncio.wait([done, exit_task], timeout=SETTLE_TIMEOUT_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            if not exit_task.done():
                await self._stop(process, exit_task)
            return await exit_task
        finally:
            await process.aclose()
            for task in (done, exit_task):
                task.cancel()
            await asyncio.wait([done, exit_task])

    async def _stop(self, process: ForkedProcess, exit_task: asyncio.Task[int]) -> None:
        process.signal(signal.SIGTERM)
        await asyncio.wait([exit_task], timeout=STOP_TIMEOUT_SECONDS)
        if not exit_task.done():
            self._faults.append("a process could not be stopped")
            process.signal(signal.SIGKILL)

    async def _wait_until_done(self, senders: Sequence[asyncio.Task[None]]) -> None:
        """Wait until all messages are sent and answered, and no work is open.

        Open work is listed by `evidence.list_unfinished`.

        Args:
            senders: the tasks that send the users' messages.
        """
        for platform, conversation in self._conversations.items():
            await platform.wait_for(partial(_is_answered, platform, conversation), timeout=SETTLE_TIMEOUT_SECONDS)
        await asyncio.wait(senders)
        while await evidence.list_unfinished(self._database):  # noqa: ASYNC110 - another process sends no event
            await asyncio.sleep(POLL_SECONDS)

    async def _wait_until_disconnected(self) -> None:
        """Wait until both platforms have noticed the crash of the bot's process."""
        for platform in self._conversations:
            await platform.wait_for(partial(_is_disconnected, platform))


async def insert_known_place(place: str, database: Database) -> None:
    """Insert a watermark and a session, so that a backfill reads this Discord channel."""
    async with database.write() as connection:
        await connection.execute(sa.insert(sessions).values(new_session_row(place, DEFAULT_AGENT_NAME, place)))
        await connection.execute(sa.insert(platforms).values(name="discord", watermark=time.time()))


def _is_answered(platform: Platform, conversation: BotConversation) -> bool:
    """Return whether the bot is connected, and shows an outcome of both messages.

    The outcome of a message is an answer or an apology.
    """
    return platform.is_connected and verdict.is_complete(platform.name, _list_texts(conversation.replies()))


def _is_growing(conversation: BotConversation) -> bool:
    """Return whether the newest reply has a Stop button, so that it still grows."""
    return bool(conversation.replies()) and words.STOP in conversation.button_labels()


def _is_disconnected(platform: Platform) -> bool:
    return not platform.is_connected


def _list_texts(replies: Sequence[BotMessage]) -> list[str]:
    return [reply.text for reply in replies]
