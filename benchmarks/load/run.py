"""Load run: many users, and a deploy every few minutes."""

import asyncio
import random
import tempfile
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Literal

from benchmarks.load.processes import Formation
from benchmarks.load.questions import Speaker, kind, papers
from benchmarks.load.timing import Wait, waits
from benchmarks.soak.outcome import Outcome, accepted, at_rest, begun_at, settled
from benchmarks.soak.processes import stand_in
from benchmarks.soak.sessions import Discord, Place, Platform, Slack, starts_over
from benchmarks.soak.users import BURSTS, Session, patiently
from core.store.database import Database
from sandbox.discord import DiscordSandbox
from sandbox.models import ScriptedOpenAI
from sandbox.postgres import PostgresSandbox
from sandbox.procfile import Foreman
from sandbox.slack import SlackSandbox

Kind = Literal["postgres", "sqlite"]

ROOT = Path(__file__).parents[2]

#: Number of worker processes.
WORKERS: dict[Kind, int] = {"postgres": 2, "sqlite": 1}

#: Platform seconds between two messages of an impatient user, and before an edit.
PAUSES, EDITED_AFTER = (1.0, 4.0), (1.0, 6.0)

#: Of ten sessions, the number in channels (Discord) or their threads (Slack), and in direct messages. On Discord the
#: others are in threads.
IN_CHANNELS, DIRECT = 6, 2

#: All sessions begin in this fraction of the time before the first deploy.
BEGINS_WITHIN = 0.8


@dataclass(frozen=True, slots=True)
class Load:
    """Parameters of a load in platform minutes.

    Attributes:
        sessions: the number of sessions, half of them on Slack.
        minutes: the duration.
        every: the minutes between two deploys.
        pause: the mean minutes between an answer and the next question.
        speed: factor between platform time and real time.
    """

    sessions: int = 500
    minutes: float = 30.0
    every: float = 5.0
    pause: float = 5.0
    seed: int = 1
    speed: float = 4.0

    def seconds(self, minutes: float) -> float:
        """Return real seconds."""
        return minutes * 60 / self.speed


class Run:
    """Users who send messages during deploys of `formation`."""

    def __init__(self, load: Load, model: Speaker, formation: Formation) -> None:
        self._load = load
        self._model = model
        self._formation = formation
        self._dice = random.Random(load.seed)
        self._asked_to_start_over: dict[int, int] = {}

    async def talk(self, sessions: Sequence[Session]) -> None:
        """Send all messages, and run all deploys."""
        until = monotonic() + self._load.seconds(self._load.minutes)
        async with asyncio.TaskGroup() as group:
            deploys = group.create_task(self._deploy(until), name="deploys")
            for session in sessions:
                group.create_task(self._live(session, until, deploys), name=f"session {session.number}")

    def deaf(self, sessions: Sequence[Session]) -> list[str]:
        """Return the sessions with more or fewer resets than commands."""
        told = ((session, self._asked_to_start_over.get(session.number, 0)) for session in sessions)
        return [
            f"{session.platform} s{session.number}: started over {done} times in the place of {count}"
            for session, count in told
            if (done := starts_over(session.place)) != count
        ]

    async def _deploy(self, until: float) -> None:
        every = self._load.seconds(self._load.every)
        due = monotonic() + every
        while due < until:
            await asyncio.sleep(max(0.0, due - monotonic()))
            await self._formation.deploy()
            due += every

    async def _live(self, session: Session, until: float, deploys: asyncio.Task[None]) -> None:
        """Send messages until the time and the last deploy are over.

        All sessions begin before the first deploy: a backfill only reads known places.
        """
        await asyncio.sleep(self._dice.uniform(0, BEGINS_WITHIN * self._load.seconds(self._load.every)))
        await self._burst(session, 1)
        while True:
            pause = self._dice.expovariate(1 / self._load.seconds(self._load.pause))
            if monotonic() + pause > until:
                if deploys.done():
                    return
                pause = min(pause, self._load.seconds(self._load.every))  # the last deploy takes long
            await asyncio.sleep(pause)
            await self._burst(session, self._dice.choice(BURSTS))

    async def _burst(self, session: Session, messages: int) -> None:
        """Send some messages, and wait for their answers."""
        names = []
        for number in range(messages):
            if number:
                await self._sleep(PAUSES)
            if kind(session.next) == "afresh" and session.said and session.is_at_rest:
                await self._start_over(session)
            name, said = await session.say(papers(session.next))
            names.append(name)
            if kind(name) == "edited":
                await self._sleep(EDITED_AFTER)
                await session.place.edit(said, f"{name} please")
        await session.wait(names)

    async def _start_over(self, session: Session) -> None:
        """Reset the session, and wait until the bot confirms it."""
        count = self._asked_to_start_over[session.number] = self._asked_to_start_over.get(session.number, 0) + 1
        await session.place.say("reset")
        if await patiently(lambda: starts_over(session.place) >= count):
            self._model.starts_over(session.next)

    async def _sleep(self, between: tuple[float, float]) -> None:
        await asyncio.sleep(self._dice.uniform(*between) / self._load.speed)


@dataclass(frozen=True, slots=True)
class Result:
    """Result of a load.

    Attributes:
        outcome: same as of a soak.
        deaf: see `Run.deaf`.
        deploys: the seconds of each deploy.
    """

    outcome: Outcome
    deaf: list[str]
    waits: list[Wait]
    deploys: list[float]


async def load(load: Load, database: Kind, folder: Path | None = None) -> Result:
    """Run a load.

    Args:
        folder: place of the bot's log.
    """
    with tempfile.TemporaryDirectory() as temporary:
        return await _load(load, database, folder or Path(temporary))


async def _load(load: Load, database: Kind, folder: Path) -> Result:
    stand_in(folder, load.speed)
    speaker = Speaker(speed=load.speed)
    async with AsyncExitStack() as stack:
        slack = Slack(await stack.enter_async_context(SlackSandbox(speed=load.speed)))
        discord = Discord(await stack.enter_async_context(DiscordSandbox(speed=load.speed)))
        model = await stack.enter_async_context(ScriptedOpenAI(speaker))
        url = _url(database, folder, stack)
        settings = {
            **slack.settings,
            **discord.settings,
            "MODEL": "openai/scripted",
            "OPENAI_BASE_URL": model.base_url,
            "DATABASE_URL": url,
            "DATABASE_POOL_SIZE": "5",
            "ALLOW_EPHEMERAL_DATABASE": "1",
            "SHUTDOWN_TIMEOUT_SECONDS": f"{20 / load.speed:g}",
            "DATA_DIR": str(ROOT / ".parley"),
            "PYTHONPATH": str(ROOT),
        }
        foreman = Foreman(ROOT / "Procfile", folder, settings, path=folder)
        formation = Formation(foreman, WORKERS[database], overlaps=database == "postgres")
        stack.push_async_callback(formation.aclose)
        await formation.start()
        sessions = [await _session(number, slack, discord) for number in range(load.sessions)]
        run = Run(load, speaker, formation)
        began = monotonic()
        await run.talk(sessions)
        seen = Database(url.replace("postgresql:", "postgresql+asyncpg:").replace("sqlite:", "sqlite+aiosqlite:"))
        stack.push_async_callback(seen.aclose)
        left = await at_rest([seen], sessions)
        seconds, known, begun = monotonic() - began, await accepted(seen), await begun_at(seen)
        await formation.stop()
        platforms: list[Platform] = [slack, discord]
        deaths, made = formation.deaths, formation.made
        outcome = settled(
            load.seed, seconds, sessions, platforms, speaker, known, begun, deaths=deaths, left=left, made=made
        )
    minute = load.seconds(1)
    return Result(
        outcome,
        run.deaf(sessions),
        [wait for session in sessions for wait in waits(session, formation.deploys, minute)],
        [end - begin for begin, end in formation.deploys],
    )


async def _session(number: int, slack: Slack, discord: Discord) -> Session:
    """Return the session of this number: a thread, a DM, or a Discord channel."""
    platform, which = (slack, discord)[number % 2], number // 2 % 10
    place: Place
    if which < DIRECT:
        user = f"person-{number}"
        platform.sandbox.add_user(user)
        place = platform.direct(user)
    elif platform is discord and which >= DIRECT + IN_CHANNELS:
        place = await discord.thread(number)
    else:
        place = platform.place(number)
    return Session(number, platform.name, place)


def _url(database: Kind, folder: Path, stack: AsyncExitStack) -> str:
    """Return the database setting."""
    if database == "sqlite":
        return f"sqlite:///{folder / 'load.db'}"
    return stack.enter_context(PostgresSandbox()).create_database("load")
