"""Run of a soak test: many sessions, real processes and constant faults."""

import asyncio
import random
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.soak.faults import FaultInjector
from benchmarks.soak.outcome import Outcome, build_outcome, find_accepted, find_turn_starts, wait_until_idle
from benchmarks.soak.processes import SoakBotProcess
from benchmarks.soak.script import CheckingModel
from benchmarks.soak.sessions import DiscordSoakPlatform, SlackSoakPlatform, SoakPlatform
from benchmarks.soak.users import BURST_SIZES, PAUSE_SECONDS, UserSession
from chatrig.discord import DiscordSimulator
from chatrig.models import ScriptedOpenAI
from chatrig.slack import SlackSimulator
from core.store.database import Database
from core.store.migrate import migrate
from tests.processes.postgres import PostgresServer

#: Number of Slack workers, on one database. Discord has one worker, on a database of its own.
SLACK_WORKERS = 2

#: Lease in seconds, shorter than the default to shorten the soak.
LEASE_SECONDS = "4"

#: Maximum attempts of a turn. The default of 3 is too low here: a process is killed about every 11 seconds.
MAX_ATTEMPTS = "20"


@dataclass(frozen=True, slots=True)
class SoakConfig:
    """Parameters of a soak test.

    Attributes:
        messages: the number of messages in all sessions; each session sends `messages // sessions`, at least one.
        sessions: the number of sessions, half of them on Slack.
        concurrent_users: the maximum number of sessions that send or wait for an answer at the same time.
        messages_per_fault: the number of messages, of all sessions together, for each fault. After a fault that takes
            long, the overdue ones follow with the next messages.
        seed: the seed of all random choices.
        speed: the factor by which the bot's rate limiters run faster, and the local Slack's timeouts are shorter. The
            simulators have no rate limits.
    """

    messages: int = 10_000
    sessions: int = 500
    concurrent_users: int = 40
    messages_per_fault: int = 25
    seed: int = 1
    speed: float = 50.0


class SoakRun:
    """One run of a soak test: bots, platforms, databases and users.

    Args:
        folder: the folder of the bots' logs.
    """

    def __init__(self, config: SoakConfig, folder: Path) -> None:
        self._config = config
        self._folder = folder
        self._random = random.Random(config.seed)
        self._model = CheckingModel()
        self._sent_count = 0
        self._progress = asyncio.Event()

    async def run(self) -> Outcome:
        async with AsyncExitStack() as stack:
            slack = await stack.enter_async_context(SlackSimulator(rate_limits=False, speed=self._config.speed))
            discord = await stack.enter_async_context(DiscordSimulator(rate_limits=False))
            model = await stack.enter_async_context(ScriptedOpenAI(self._model))
            server = stack.enter_context(PostgresServer())
            platforms: list[SoakPlatform] = [SlackSoakPlatform(slack), DiscordSoakPlatform(discord)]
            databases = [await stack.enter_async_context(_database(server, platform.name)) for platform in platforms]
            bots = []
            for platform, database, workers in zip(platforms, databases, (SLACK_WORKERS, 1), strict=True):
                settings = {"MODEL": "openai/scripted", "OPENAI_BASE_URL": model.base_url, "LOG_LEVEL": "INFO"}
                settings |= {"DATABASE_URL": _url(database), "LEASE_SECONDS": LEASE_SECONDS, "DATA_DIR": _data_folder()}
                settings["TURN_MAX_ATTEMPTS"] = MAX_ATTEMPTS
                settings["WHILE_RUNNING"] = "queue"  # each message has an answer of its own
                for number in range(workers):
                    bot = SoakBotProcess(
                        f"{platform.name}-{number}", self._folder, self._config.speed, {**platform.settings, **settings}
                    )
                    stack.push_async_callback(bot.aclose)
                    bots.append(bot)
            injector = FaultInjector(self._config.seed, slack, discord, server, bots)
            await injector.wait_until_connected()
            sessions = [
                UserSession(number, platform.name, platform.create_place(number))
                for number in range(self._config.sessions)
                for platform in [platforms[number % len(platforms)]]
            ]
            began = time.monotonic()
            await self._send_messages(sessions, injector)
            unfinished_work = await wait_until_idle(databases, sessions)
            seconds = time.monotonic() - began
            accepted = {name for database in databases for name in await find_accepted(database)}
            turn_starts = {
                name: at for database in databases for name, at in (await find_turn_starts(database)).items()
            }
        counts, unexpected_exits = injector.counts, sum(bot.unexpected_exits for bot in bots)
        return build_outcome(
            self._config.seed,
            seconds,
            sessions,
            platforms,
            self._model,
            accepted,
            turn_starts,
            unexpected_exits=unexpected_exits,
            unfinished_work=unfinished_work,
            counts=counts,
        )

    async def _send_messages(self, sessions: Sequence[UserSession], injector: FaultInjector) -> None:
        """Send the messages of all sessions while faults are injected.

        No faults occur during the first message of each session: a backfill only reads places with a stored watermark.
        At the end it waits until all bots are connected.
        """
        user_slots = asyncio.Semaphore(self._config.concurrent_users)
        messages_per_session = self._config.messages // self._config.sessions
        async with asyncio.TaskGroup() as group:
            for session in sessions:
                group.create_task(self._send_burst(session, 1, user_slots))
        async with asyncio.TaskGroup() as group:
            fault_task = group.create_task(self._inject_faults(injector), name="faults")
            session_tasks = [
                group.create_task(self._run_session(session, messages_per_session, user_slots)) for session in sessions
            ]
            await asyncio.wait(session_tasks)
            fault_task.cancel()
        await injector.wait_until_connected()

    async def _run_session(self, session: UserSession, messages: int, user_slots: asyncio.Semaphore) -> None:
        while len(session.sent) < messages:
            await self._send_burst(
                session, min(messages - len(session.sent), self._random.choice(BURST_SIZES)), user_slots
            )

    async def _send_burst(self, session: UserSession, messages: int, user_slots: asyncio.Semaphore) -> None:
        """Send `messages` messages with short pauses, and wait for the answers.

        Args:
            user_slots: the semaphore that limits the number of waiting users. The call holds it until all answers are
                complete, or one is missing after `ANSWER_TIMEOUT_SECONDS`.
        """
        async with user_slots:
            names = []
            for _ in range(messages):
                names.append((await session.send_next())[0])
                self._sent_count += 1
                self._progress.set()
                await asyncio.sleep(self._random.choice(PAUSE_SECONDS))
            await session.wait_for_answers(names)

    async def _inject_faults(self, injector: FaultInjector) -> None:
        due = self._sent_count + self._config.messages_per_fault
        while True:
            await self._progress.wait()
            self._progress.clear()
            if self._sent_count >= due:
                await injector.inject_fault()
                due += self._config.messages_per_fault


@asynccontextmanager
async def _database(server: PostgresServer, name: str) -> AsyncIterator[Database]:
    database = Database(server.create_database(name).replace("postgresql://", "postgresql+asyncpg://"))
    try:
        await migrate(database)
        yield database
    finally:
        await database.aclose()


def _url(database: Database) -> str:
    return database.engine.url.render_as_string(hide_password=False)


def _data_folder() -> str:
    """Return the absolute path of `.parley` in the current folder.

    This folder is the bot's `DATA_DIR`, and has the downloaded token vocabulary.
    """
    return str(Path(".parley").absolute())


async def run_soak(config: SoakConfig, folder: Path | None = None) -> Outcome:
    """Run a soak test, and return its outcome.

    Args:
        folder: the existing folder for the bots' logs; None for a temporary one.
    """
    with tempfile.TemporaryDirectory() as temporary:
        return await SoakRun(config, folder or Path(temporary)).run()
