"""A soak: many sessions, real processes, and trouble all the while."""

import asyncio
import random
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import sqlalchemy as sa

from benchmarks.soak.crew import Bot
from benchmarks.soak.places import Discord, Place, Platform, Slack
from benchmarks.soak.script import Model, Verdict, answered, could_not_wait, disordered, judge
from benchmarks.soak.trouble import Trouble
from core.store.database import Database
from core.store.migrate import migrate
from core.store.schema import inbox, turns
from core.waiting import is_under_way, is_waiting
from sandbox.discord import DiscordSandbox
from sandbox.models import ScriptedOpenAI
from sandbox.postgres import PostgresSandbox
from sandbox.slack import SlackSandbox

#: Processes on Slack, that share a database. On Discord there is one, with a database of its own.
SLACK_WORKERS = 2

#: Seconds after which somebody who gets no answer goes on, and for which the bots may work on when all is said.
PATIENCE, REST = 60.0, 120.0

#: Seconds between two looks of somebody who waits for an answer.
LOOK = 0.2

#: How many messages somebody says before he waits for the answers: any of these.
BURSTS = (1, 1, 1, 1, 2, 3)

#: Seconds from one message to the next of somebody who does not wait: as quick as people are.
PAUSES = (0.1, 0.4)

#: How long a dead worker's lease lasts: the default is longer, and a soak would be, too.
LEASE_SECONDS = "4"


@dataclass(frozen=True, slots=True)
class Load:
    """How much.

    Attributes:
        messages: how many are said to the bot, in all sessions together.
        sessions: half of them on Slack.
        at_once: in how many of them somebody waits for an answer at the same time.
        every: after how many messages something goes wrong.
        speed: how many times faster than it is the bot takes the platforms' time to pass; the sandboxes have no limits.
    """

    messages: int = 10_000
    sessions: int = 500
    at_once: int = 40
    every: int = 25
    seed: int = 1
    speed: float = 50.0


@dataclass
class Session:
    """One of them.

    Attributes:
        said: the messages, by their names, in order.
    """

    number: int
    platform: str
    place: Place
    said: list[str] = field(default_factory=list)

    async def say(self) -> str:
        """Say the next message; its name."""
        name = f"s{self.number}-{len(self.said)}"
        self.said.append(name)
        await self.place.say(name)
        return name

    async def wait(self, names: Sequence[str]) -> None:
        """Wait for an answer to these messages, for as long as one has patience."""
        for _ in range(int(PATIENCE / LOOK)):
            if answered(self.place.shown()).issuperset(names):
                return
            await asyncio.sleep(LOOK)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of it.

    Attributes:
        verdicts: of each session.
        unheard: messages without an answer that no bot has accepted: nobody listened when they were said.
        late: messages that were heard, as the platform knows, only when all newer ones that stand before them in the
            verdicts' `disordered` had their answers.
        histories: what was wrong with what the model got to read.
        deaths: how often a bot ended by itself.
        left: turns and messages that are still waiting in the databases.
    """

    load: Load
    seconds: float
    verdicts: Sequence[tuple[Session, Verdict]]
    unheard: frozenset[str]
    late: frozenset[str]
    histories: Sequence[str]
    deaths: int
    left: int
    made: Counter[str]


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
            left = await _at_rest(databases, sessions)
            seconds = time.monotonic() - began
            accepted = {text for database in databases for text in await _accepted(database)}
        verdicts = [(session, judge(session.said, session.place.shown())) for session in sessions]
        lost = {id_ for _, verdict in verdicts for id_ in verdict.lost}
        pairs = [pair for _, verdict in verdicts for pair in verdict.disordered]
        heard_at = {name: at for platform in platforms for name, at in platform.heard_at().items()}
        waited_for = {pair[0] for pair in pairs if not could_not_wait(pair, heard_at, self._model.answered_at)}
        late = {older for older, _ in pairs} - waited_for
        wrong = [order for order in self._model.orders if any(older not in late for older, _ in disordered(order))]
        return Outcome(
            self._load,
            seconds,
            verdicts,
            frozenset(lost - accepted),
            frozenset(late),
            [*self._model.faults, *(f"order: {order}" for order in wrong)],
            sum(bot.deaths for bot in bots),
            left,
            trouble.made,
        )

    async def _talk(self, sessions: Sequence[Session], trouble: Trouble) -> None:
        """Have all of it said, and trouble made meanwhile: but for the first word in each session, since the bot does
        not look into a place in which it has never spoken.
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
        """Say some messages, and wait until they are answered."""
        async with waiting:
            names = []
            for _ in range(messages):
                names.append(await session.say())
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
    database = Database(server.create(name).replace("postgresql://", "postgresql+asyncpg://"))
    try:
        await migrate(database)
        yield database
    finally:
        await database.aclose()


def _url(database: Database) -> str:
    return database.engine.url.render_as_string(hide_password=False)


def _data() -> str:
    """Where the bots find what tokens are counted with."""
    return str(Path(".parley").absolute())


async def _at_rest(databases: Sequence[Database], sessions: Sequence[Session]) -> int:
    """Wait until nothing is under way and all is answered, but no longer than `REST`; what still is under way."""
    waiting = sa.select(sa.func.count()).select_from(inbox).where(is_waiting(inbox))
    running = sa.select(sa.func.count()).select_from(turns).where(is_under_way(turns))
    deadline = time.monotonic() + REST
    while True:
        left = 0
        for database in databases:
            async with database.read() as connection:
                left += (await connection.execute(waiting)).scalar_one() + (
                    await connection.execute(running)
                ).scalar_one()
        is_done = not left and all(answered(at.place.shown()).issuperset(at.said) for at in sessions)
        if is_done or time.monotonic() > deadline:
            return left
        await asyncio.sleep(0.5)


async def _accepted(database: Database) -> list[str]:
    """What was said, of all that was accepted."""
    async with database.read() as connection:
        rows = (await connection.execute(sa.select(inbox.c.inbound))).scalars()
        return [str(row["text"]) for row in rows if row is not None]


async def soak(load: Load, folder: Path | None = None) -> Outcome:
    """Run it.

    Args:
        folder: where the bots' logs go.
    """
    with tempfile.TemporaryDirectory() as temporary:
        return await Soak(load, folder or Path(temporary)).run()
