"""Run of the load test: users send messages while the bot is deployed repeatedly."""

import asyncio
import random
import tempfile
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Literal

from benchmarks.load.messages import LoadModel, get_files, get_kind
from benchmarks.load.processes import Formation
from benchmarks.load.timing import Wait, measure_waits
from benchmarks.soak.outcome import Outcome, build_outcome, find_accepted, find_turn_starts, wait_until_idle
from benchmarks.soak.processes import write_python_wrapper
from benchmarks.soak.sessions import DiscordSoakPlatform, Place, SlackSoakPlatform, SoakPlatform, count_resets
from benchmarks.soak.users import BURST_SIZES, UserSession, poll_until
from chatrig.discord import DiscordSimulator
from chatrig.models import ScriptedOpenAI
from chatrig.slack import SlackSimulator
from core.store.database import Database
from tests.processes.postgres import PostgresServer
from tests.processes.procfile import Foreman

DatabaseKind = Literal["postgres", "sqlite"]

ROOT = Path(__file__).parents[2]

#: Number of worker processes.
WORKER_COUNTS: dict[DatabaseKind, int] = {"postgres": 2, "sqlite": 1}

#: Ranges in platform seconds: between two messages of a burst, and before an edit.
PAUSE_SECONDS, EDIT_DELAY_SECONDS = (1.0, 4.0), (1.0, 6.0)

#: Of ten sessions, the number in channels (Discord) or their threads (Slack), and in direct messages. On Discord the
#: others are in threads.
CHANNEL_SESSIONS, DM_SESSIONS = 6, 2

#: All sessions begin in this fraction of the time before the first deploy.
START_FRACTION = 0.8


@dataclass(frozen=True, slots=True)
class LoadConfig:
    """Parameters of a load test; all minutes are platform minutes.

    Attributes:
        sessions: the number of sessions, half of them on Slack.
        minutes: the duration.
        deploy_interval: the minutes between two deploys.
        pause: the mean minutes between an answer and the next message.
        seed: the seed of all random choices.
        speed: platform seconds in a real second.
    """

    sessions: int = 500
    minutes: float = 30.0
    deploy_interval: float = 5.0
    pause: float = 5.0
    seed: int = 1
    speed: float = 4.0

    def seconds(self, minutes: float) -> float:
        """Return the real seconds that `minutes` platform minutes take at this speed."""
        return minutes * 60 / self.speed


class LoadRun:
    """Users who send messages in their sessions while deploys replace the workers."""

    def __init__(self, config: LoadConfig, model: LoadModel, formation: Formation) -> None:
        self._config = config
        self._model = model
        self._formation = formation
        self._random = random.Random(config.seed)
        self._reset_counts: dict[int, int] = {}

    async def run(self, sessions: Sequence[UserSession]) -> None:
        """Send messages in all sessions and deploy regularly, for the configured time.

        Returns when all users have stopped and the last deploy has ended.
        """
        until = monotonic() + self._config.seconds(self._config.minutes)
        async with asyncio.TaskGroup() as group:
            deploys = group.create_task(self._run_deploys(until), name="deploys")
            for session in sessions:
                group.create_task(self._run_session(session, until, deploys), name=f"session {session.number}")

    def find_reset_faults(self, sessions: Sequence[UserSession]) -> list[str]:
        """Compare the bot's reset confirmations with the `reset` messages of each session.

        Returns:
            A line of text for each session in which the two numbers differ.
        """
        expected = ((session, self._reset_counts.get(session.number, 0)) for session in sessions)
        return [
            f"{session.platform} s{session.number}: {done} resets instead of {count}"
            for session, count in expected
            if (done := count_resets(session.place)) != count
        ]

    async def _run_deploys(self, until: float) -> None:
        interval = self._config.seconds(self._config.deploy_interval)
        due = monotonic() + interval
        while due < until:
            await asyncio.sleep(max(0.0, due - monotonic()))
            await self._formation.deploy()
            due += interval

    async def _run_session(self, session: UserSession, until: float, deploys: asyncio.Task[None]) -> None:
        """Send bursts of messages until the time `until` and the last deploy are over.

        Each session sends its first message before the first deploy: a backfill only reads places with a stored
        watermark.

        Args:
            until: the end of the load, in monotonic seconds.
            deploys: the task that runs all deploys.
        """
        await asyncio.sleep(
            self._random.uniform(0, START_FRACTION * self._config.seconds(self._config.deploy_interval))
        )
        await self._send_burst(session, 1)
        while True:
            pause = self._random.expovariate(1 / self._config.seconds(self._config.pause))
            if monotonic() + pause > until:
                if deploys.done():
                    return
                pause = min(pause, self._config.seconds(self._config.deploy_interval))  # the last deploy takes long
            await asyncio.sleep(pause)
            await self._send_burst(session, self._random.choice(BURST_SIZES))

    async def _send_burst(self, session: UserSession, messages: int) -> None:
        """Send `messages` messages with short pauses, and wait for the answers.

        A message of kind "edit" is edited after its post. Before a message of kind "reset", the session is reset if it
        has earlier messages and is idle. The wait ends after `ANSWER_TIMEOUT_SECONDS` without all answers.
        """
        names = []
        for number in range(messages):
            if number:
                await self._sleep(PAUSE_SECONDS)
            if get_kind(session.next_name) == "reset" and session.sent and session.is_idle:
                await self._reset(session)
            name, message = await session.send_next(get_files(session.next_name))
            names.append(name)
            if get_kind(name) == "edit":
                await self._sleep(EDIT_DELAY_SECONDS)
                await session.place.edit_message(message, f"{name} please")
        await session.wait_for_answers(names)

    async def _reset(self, session: UserSession) -> None:
        """Post `reset` in the session, and wait until the bot confirms it.

        Then it calls `LoadModel.record_reset`, unless no confirmation came within `ANSWER_TIMEOUT_SECONDS`.
        """
        count = self._reset_counts[session.number] = self._reset_counts.get(session.number, 0) + 1
        await session.place.post_message("reset")
        if await poll_until(lambda: count_resets(session.place) >= count):
            self._model.record_reset(session.next_name)

    async def _sleep(self, between: tuple[float, float]) -> None:
        await asyncio.sleep(self._random.uniform(*between) / self._config.speed)


@dataclass(frozen=True, slots=True)
class LoadResult:
    """Result of a load test.

    Attributes:
        outcome: the verdicts on all messages, as of a soak test; its `counts` are those of the deploys.
        reset_faults: a line for each session in which the bot confirmed more or fewer resets than users requested;
            empty without a fault.
        waits: the time to the answer of each message.
        deploys: the real seconds of each deploy.
    """

    outcome: Outcome
    reset_faults: list[str]
    waits: list[Wait]
    deploys: list[float]


async def run_load(config: LoadConfig, database: DatabaseKind, folder: Path | None = None) -> LoadResult:
    """Run a load test on local platforms and a new database, and return its result.

    Args:
        folder: the existing folder for the bot's log and, with SQLite, its database; None for a temporary one.
    """
    with tempfile.TemporaryDirectory() as temporary:
        return await _run_load(config, database, folder or Path(temporary))


async def _run_load(config: LoadConfig, database: DatabaseKind, folder: Path) -> LoadResult:
    write_python_wrapper(folder, config.speed)
    model_script = LoadModel(speed=config.speed)
    async with AsyncExitStack() as stack:
        slack = SlackSoakPlatform(await stack.enter_async_context(SlackSimulator(speed=config.speed)))
        discord = DiscordSoakPlatform(await stack.enter_async_context(DiscordSimulator(speed=config.speed)))
        model = await stack.enter_async_context(ScriptedOpenAI(model_script))
        url = _url(database, folder, stack)
        settings = {
            **slack.settings,
            **discord.settings,
            "MODEL": "openai/scripted",
            "OPENAI_BASE_URL": model.base_url,
            "WHILE_RUNNING": "queue",  # each message has an answer of its own
            "DATABASE_URL": url,
            "DATABASE_POOL_SIZE": "5",
            "SHUTDOWN_TIMEOUT_SECONDS": f"{20 / config.speed:g}",
            "DATA_DIR": str(ROOT / ".parley"),
            "PYTHONPATH": str(ROOT),
        }
        foreman = Foreman(ROOT / "Procfile", folder, settings, path=folder)
        formation = Formation(foreman, WORKER_COUNTS[database], has_overlap=database == "postgres")
        stack.push_async_callback(formation.aclose)
        await formation.start()
        sessions = [await _create_session(number, slack, discord) for number in range(config.sessions)]
        run = LoadRun(config, model_script, formation)
        began = monotonic()
        await run.run(sessions)
        bot_database = Database(
            url.replace("postgresql:", "postgresql+asyncpg:").replace("sqlite:", "sqlite+aiosqlite:")
        )
        stack.push_async_callback(bot_database.aclose)
        unfinished_work = await wait_until_idle([bot_database], sessions)
        seconds = monotonic() - began
        accepted, turn_starts = await find_accepted(bot_database), await find_turn_starts(bot_database)
        await formation.stop()
        platforms: list[SoakPlatform] = [slack, discord]
        outcome = build_outcome(
            config.seed,
            seconds,
            sessions,
            platforms,
            model_script,
            accepted,
            turn_starts,
            unexpected_exits=formation.unexpected_exits,
            unfinished_work=unfinished_work,
            counts=formation.counts,
        )
    minute = config.seconds(1)
    return LoadResult(
        outcome,
        run.find_reset_faults(sessions),
        [wait for session in sessions for wait in measure_waits(session, formation.deploys, minute)],
        [end - begin for begin, end in formation.deploys],
    )


async def _create_session(number: int, slack: SlackSoakPlatform, discord: DiscordSoakPlatform) -> UserSession:
    """Create the session with this number in a DM, a thread, or a Discord channel.

    Even numbers are on Slack, odd ones on Discord. Of ten sessions of a platform, `DM_SESSIONS` are in DMs.
    """
    platform, slot = (slack, discord)[number % 2], number // 2 % 10
    place: Place
    if slot < DM_SESSIONS:
        user = f"person-{number}"
        platform.simulator.add_user(user)
        place = platform.open_dm(user)
    elif platform is discord and slot >= DM_SESSIONS + CHANNEL_SESSIONS:
        place = await discord.create_thread(number)
    else:
        place = platform.create_place(number)
    return UserSession(number, platform.name, place)


def _url(database: DatabaseKind, folder: Path, stack: AsyncExitStack) -> str:
    """Return the `DATABASE_URL` of a new database.

    For PostgreSQL it starts a server, which the exit of `stack` stops.
    """
    if database == "sqlite":
        return f"sqlite:///{folder / 'load.db'}"
    return stack.enter_context(PostgresServer()).create_database("load")
