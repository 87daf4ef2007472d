"""Soak run: many sessions, real processes and constant faults."""

import asyncio
import random
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.soak.faults import Trouble
from benchmarks.soak.outcome import Outcome, accepted, at_rest, begun_at, settled
from benchmarks.soak.processes import Bot
from benchmarks.soak.script import Model
from benchmarks.soak.sessions import Discord, Platform, Slack
from benchmarks.soak.users import BURSTS, PAUSES, Session
from core.store.database import Database
from core.store.migrate import migrate
from sandbox.discord import DiscordSandbox
from sandbox.models import ScriptedOpenAI
from sandbox.postgres import PostgresSandbox
from sandbox.slack import SlackSandbox

#: Number of Slack workers on one database. Discord has one worker with a database of its own.
SLACK_WORKERS = 2

#: Lease in seconds, shorter than the default to shorten the soak.
LEASE_SECONDS = "4"

#: Maximum attempts of a turn. The default of 3 is too low here: a process dies every twelve seconds.
ATTEMPTS = "20"


@dataclass(frozen=True, slots=True)
class Load:
    """Parameters of a soak.

    Attributes:
        messages: the number of messages in all sessions.
        sessions: the number of sessions, half of them on Slack.
        at_once: the number of sessions with a waiting user.
        every: the number of messages between two faults.
        speed: factor of the platform time of the bot's rate limiters; the sandboxes have no limits.
    """

    messages: int = 10_000
    sessions: int = 500
    at_once: int = 40
    every: int = 25
    seed: int = 1
    speed: float = 50.0


class Soak:
    def __init__(self, load: Load, folder: Path) -> None:
        self._load = load
        self._folder = folder
        self._dice = random.Random(load.seed)
        self._model = Model()
        self._said = 0
        self._progress = asyncio.Event()

    async def run(self) -> Outcome:
        async with AsyncExitStack() as stack:
            slack = await stack.enter_async_context(SlackSandbox(rate_limits=False, speed=self._load.speed))
            discord = await stack.enter_async_context(DiscordSandbox(rate_limits=False))
            model = await stack.enter_async_context(ScriptedOpenAI(self._model))
            server = stack.enter_context(PostgresSandbox())
            platforms: list[Platform] = [Slack(slack), Discord(discord)]
            databases = [await stack.enter_async_context(_database(server, at.name)) for at in platforms]
            bots = []
            for at, database, workers in zip(platforms, databases, (SLACK_WORKERS, 1), strict=True):
                told = {"MODEL": "openai/scripted", "OPENAI_BASE_URL": model.base_url, "LOG_LEVEL": "INFO"}
                told |= {"DATABASE_URL": _url(database), "LEASE_SECONDS": LEASE_SECONDS, "DATA_DIR": _data()}
                told["TURN_MAX_ATTEMPTS"] = ATTEMPTS
                for number in range(workers):
                    bot = Bot(f"{at.name}-{number}", self._folder, self._load.speed, {**at.settings, **told})
                    stack.push_async_callback(bot.aclose)
                    bots.append(bot)
            trouble = Trouble(self._load.seed, slack, discord, server, bots)
            await trouble.settle()
            sessions = [
                Session(number, at.name, at.place(number))
                for number in range(self._load.sessions)
                for at in [platforms[number % len(platforms)]]
            ]
            began = time.monotonic()
            await self._talk(sessions, trouble)
            left = await at_rest(databases, sessions)
            seconds = time.monotonic() - began
            known = {name for database in databases for name in await accepted(database)}
            begun = {name: at for database in databases for name, at in (await begun_at(database)).items()}
        made, deaths = trouble.made, sum(bot.deaths for bot in bots)
        return settled(
            self._load.seed,
            seconds,
            sessions,
            platforms,
            self._model,
            known,
            begun,
            deaths=deaths,
            left=left,
            made=made,
        )

    async def _talk(self, sessions: Sequence[Session], trouble: Trouble) -> None:
        """Send all messages with faults in between.

        The first message of each session has no faults: a backfill only reads known places.
        """
        waiting = asyncio.Semaphore(self._load.at_once)
        each = self._load.messages // self._load.sessions
        async with asyncio.TaskGroup() as group:
            for session in sessions:
                group.create_task(self._burst(session, 1, waiting))
        async with asyncio.TaskGroup() as group:
            troubling = group.create_task(self._trouble(trouble), name="trouble")
            talks = [group.create_task(self._session(session, each, waiting)) for session in sessions]
            await asyncio.wait(talks)
            troubling.cancel()
        await trouble.settle()

    async def _session(self, session: Session, messages: int, waiting: asyncio.Semaphore) -> None:
        while len(session.said) < messages:
            await self._burst(session, min(messages - len(session.said), self._dice.choice(BURSTS)), waiting)

    async def _burst(self, session: Session, messages: int, waiting: asyncio.Semaphore) -> None:
        """Send some messages, and wait for their answers."""
        async with waiting:
            names = []
            for _ in range(messages):
                names.append((await session.say())[0])
                self._said += 1
                self._progress.set()
                await asyncio.sleep(self._dice.choice(PAUSES))
            await session.wait(names)

    async def _trouble(self, trouble: Trouble) -> None:
        due = self._said + self._load.every
        while True:
            await self._progress.wait()
            self._progress.clear()
            if self._said >= due:
                await trouble.make()
                due += self._load.every


@asynccontextmanager
async def _database(server: PostgresSandbox, name: str) -> AsyncIterator[Database]:
    database = Database(server.create_database(name).replace("postgresql://", "postgresql+asyncpg://"))
    try:
        await migrate(database)
        yield database
    finally:
        await database.aclose()


def _url(database: Database) -> str:
    return database.engine.url.render_as_string(hide_password=False)


def _data() -> str:
    """Return the folder of the token vocabulary."""
    return str(Path(".parley").absolute())


async def soak(load: Load, folder: Path | None = None) -> Outcome:
    """Run a soak.

    Args:
        folder: place of the bots' logs.
    """
    with tempfile.TemporaryDirectory() as temporary:
        return await Soak(load, folder or Path(temporary)).run()
