"""A process is killed at an await of a background job or a due schedule: one turn follows, and work begins once."""

import asyncio
import json
import re
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import astuple
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from chatrig.discord import DiscordSimulator
from chatrig.models import CallTool, ReceivedRequest, ScriptedOpenAI
from chatrig.slack import SlackSimulator
from core.store.database import Database
from core.store.schema import inbox, jobs, schedules
from tests.acceptance.platforms import BotConversation, Discord, Platform, Slack
from tests.chaos import databases
from tests.chaos.campaign import draw_sample
from tests.chaos.crash_points import module_of
from tests.chaos.crashing_process import LOG, PASSAGES, Crash
from tests.chaos.evidence import list_unfinished
from tests.chaos.runner import FORKED_MODULE, DatabaseProvider, insert_known_place
from tests.conftest import run_fork_server
from tests.core.turns.automation.recorded_jobs import STARTS_FILE
from tests.processes.fork_server import ForkServer
from tests.processes.postgres import PostgresServer
from tests.scenarios.chat import DiscordChat

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

#: Modules at whose crash points the process is killed.
MODULES = (
    "core/turns/automation/job_runner.py",
    "core/turns/automation/jobs.py",
    "core/turns/automation/schedules.py",
    "core/tools/builtin/schedule.py",
    "core/turns/automation/tickets.py",
    "core/inbox/triggered.py",
    "core/tools/tool.py",
    "channels/turns/placing.py",
    "channels/slack/conversations.py",
    "channels/discord/conversations.py",
)

#: The number of crashes that are tried, and the seed of their choice.
SAMPLE_SIZE, SEED = 6, 7

#: Minutes until a schedule is due.
SCHEDULE_MINUTES = 0.03

#: Limits of a run: until the last answer, and of a shutdown, in seconds.
SETTLE_SECONDS, STOP_SECONDS = 90.0, 20.0


def answer(request: ReceivedRequest) -> Any:
    roles = [role for role, _ in request.messages]
    if "The background job" in request.text:
        return "interrupted" if "was interrupted" in request.text else "done"
    return "It runs." if roles[-1] == "tool" else [CallTool("count_stars", {}, id="call_1")]


class JobRun:
    """One run: a person asks for a job; the processes crash as planned, and the last one ends all work."""

    prompt = "count the stars"
    tool = "tests.core.turns.automation.recorded_jobs:count_stars"
    respond: Callable[[ReceivedRequest], Any] = staticmethod(answer)

    def __init__(self, fork_server: ForkServer, folder: Path, url: str, platform: Platform, model_url: str) -> None:
        self.folder = folder
        self.platform = platform
        self.database = Database(url)
        self._fork_server = fork_server
        self._settings = {
            **platform.settings,
            "MODEL": "openai/scripted",
            "OPENAI_BASE_URL": model_url,
            "TOOLS": self.tool,
            "DATABASE_URL": url.replace("+asyncpg", "").replace("+aiosqlite", ""),
            "LEASE_SECONDS": "1",
            "PORT": "0",
        }

    async def run(self, crash: Crash | None, *, workers: int = 1) -> tuple[bool, Mapping[str, int], list[str]]:
        """Return whether the crash point was reached, the passages of the last process, and the faults."""
        conversation = self.platform.start_conversation()
        if isinstance(conversation.chat, DiscordChat):  # else a message that a crash loses is not found
            place = f"discord:{self.platform.simulator.guild_id}:{conversation.chat.place.id}"
            await insert_known_place(place, self.database)
        asking = asyncio.create_task(self._ask(conversation))
        spare = [asyncio.create_task(self._run_process(None, conversation)) for _ in range(workers - 1)]
        try:
            codes = [await self._run_process(crash, conversation)]
            if codes[0] == -signal.SIGKILL and not spare:
                await self.platform.wait_for(lambda: not self.platform.is_connected)
                codes.append(await self._run_process(None, conversation))
            codes += await asyncio.gather(*spare)
        finally:
            asking.cancel()
        expected = (0, -signal.SIGKILL, -signal.SIGTERM)  # SIGTERM: all was done before a process had started
        faults = [f"a process ended with {code}" for code in codes if code not in expected]
        faults += await self._find_faults(conversation)
        passages = self.folder / PASSAGES
        return codes[0] == -signal.SIGKILL, json.loads(passages.read_text()) if passages.exists() else {}, faults

    async def _ask(self, conversation: BotConversation) -> None:
        await self.platform.wait_for(lambda: self.platform.is_connected, timeout=SETTLE_SECONDS)
        await conversation.say(self.prompt)

    async def _run_process(self, crash: Crash | None, conversation: BotConversation) -> int:
        process = await self._fork_server.start_process(
            folder=str(self.folder), settings=self._settings, crash=astuple(crash) if crash else None
        )
        settled = asyncio.create_task(self._wait_until_settled(conversation))
        ended = asyncio.create_task(process.wait())
        try:
            await asyncio.wait([settled, ended], timeout=SETTLE_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            if not ended.done():
                process.signal(signal.SIGTERM)
                await asyncio.wait([ended], timeout=STOP_SECONDS)
            if not ended.done():
                process.signal(signal.SIGKILL)
            return await ended
        finally:
            await process.aclose()
            settled.cancel()
            await asyncio.wait([settled])

    async def _wait_until_settled(self, conversation: BotConversation) -> None:
        while not await self._is_settled(conversation):  # noqa: ASYNC110 - another process sends no event
            await asyncio.sleep(0.05)

    async def _is_settled(self, conversation: BotConversation) -> bool:
        is_shown = list_texts(conversation)[-1:] in (["done"], ["interrupted"])
        return is_shown and self.platform.is_connected and not await list_unfinished(self.database)

    async def _find_faults(self, conversation: BotConversation) -> list[str]:
        starts = self.folder / STARTS_FILE
        count = len(starts.read_text().splitlines()) if starts.exists() else 0
        texts = list_texts(conversation)
        headers = [text for text in texts if "`count_stars`" in text]
        endings = [text for text in texts if text in ("done", "interrupted")]
        async with self.database.read() as connection:
            states = (await connection.execute(sa.select(jobs.c.state))).scalars().all()
            entries = (await connection.execute(sa.select(inbox.c.turn).where(inbox.c.kind == "job"))).scalars().all()
        faults = list[str]()
        if count > 1:
            faults.append(f"the work began {count} times")
        if len(headers) != 1 or len(endings) != 1 or texts.count("It runs.") != 1:
            faults.append(f"the bot shows {texts}")
        if list(states) != ["finished"] or len(entries) != 1 or not entries[0]:
            faults.append(f"the jobs are {states}, and the turns of their entries {entries}")
        return faults


def answer_schedule(request: ReceivedRequest) -> Any:
    if "[A scheduled task" in request.text:
        return "done"
    arguments = {"text": "count the stars", "in_minutes": SCHEDULE_MINUTES}
    return "Noted." if request.messages[-1][0] == "tool" else [CallTool("schedule", arguments, id="call_1")]


class ScheduleRun(JobRun):
    """One run: a person asks for a task that is due soon."""

    prompt = "later, count the stars"
    tool = "core.tools:schedule"
    respond = staticmethod(answer_schedule)

    async def _is_settled(self, conversation: BotConversation) -> bool:
        async with self.database.read() as connection:
            is_open = (await connection.execute(sa.select(schedules.c.id))).first() is not None
        return not is_open and await super()._is_settled(conversation)

    async def _find_faults(self, conversation: BotConversation) -> list[str]:
        texts = list_texts(conversation)
        headers = [text for text in texts if re.fullmatch(r"@(ada|Ada Lovelace) ⏰ count the stars(\n.*)?", text)]
        # after a crash, the schedule may have ended before the reply that shows it
        noted = [text for text in texts if re.fullmatch(r"Noted\.(\n\n⏰ count the stars: .*)?", text)]
        async with self.database.read() as connection:
            entries = sa.select(inbox.c.turn).where(inbox.c.kind == "schedule")
            found = (await connection.execute(entries)).scalars().all()
        is_shown = len(noted) == len(headers) == texts.count("done") == 1 and len(texts) == 3
        faults = [] if is_shown else [f"the bot shows {texts}"]
        return [*faults, *([] if len(found) == 1 and found[0] else [f"the turns of the entries are {found}"])]


def list_texts(conversation: BotConversation) -> list[str]:
    return [reply.text for reply in conversation.replies()]


@pytest.fixture(scope="module")
def fork_server(pytestconfig: pytest.Config) -> Iterator[ForkServer]:
    with run_fork_server(pytestconfig, FORKED_MODULE) as process:
        yield process


@pytest.fixture(params=["sqlite", "postgres"])
async def provide_database(request: pytest.FixtureRequest, fork_server: ForkServer, tmp_path: Path) -> DatabaseProvider:
    if request.param == "sqlite":
        return await databases.create_sqlite_provider(tmp_path)
    server: PostgresServer = request.getfixturevalue("postgres_server")
    await asyncio.to_thread(fork_server.warm_up, await databases.create_warm_up_database(server))
    return await databases.create_postgres_provider(server)


async def run_once(
    kind: type[JobRun],
    fork_server: ForkServer,
    provide: DatabaseProvider,
    folder: Path,
    crash: Crash | None,
    *,
    workers: int = 1,
) -> tuple[bool, Mapping[str, int], list[str]]:
    async with AsyncExitStack() as stack:
        url = await stack.enter_async_context(provide(folder))
        scripted = await stack.enter_async_context(ScriptedOpenAI(kind.respond))
        platform: Platform = (  # each database with another platform
            Slack(await stack.enter_async_context(SlackSimulator()))
            if url.startswith("sqlite")
            else Discord(await stack.enter_async_context(DiscordSimulator()))
        )
        run = kind(fork_server, folder, url, platform, scripted.base_url)
        stack.push_async_callback(run.database.aclose)
        return await run.run(crash, workers=workers)


@pytest.mark.parametrize("kind", [JobRun, ScheduleRun])
@pytest.mark.parametrize("workers", [1, 2])
async def test_work_has_one_end_whenever_its_process_is_killed(
    fork_server: ForkServer,
    provide_database: DatabaseProvider,
    tmp_path: Path,
    workers: int,
    kind: type[JobRun],
    request: Any,
) -> None:
    if workers == 2 and "sqlite" in request.node.callspec.id:
        pytest.skip("SQLite has one process")
    folders = [tmp_path / str(number) for number in range(4 * SAMPLE_SIZE + 1)]
    for folder in folders:
        folder.mkdir()
    _, passages, faults = await run_once(kind, fork_server, provide_database, folders.pop(), None)
    assert faults == []
    crashes = [Crash(point, 1) for point in sorted(passages) if module_of(point) in MODULES]
    reached = 0
    for (crash,), folder in zip(
        draw_sample([(crash,) for crash in crashes], len(folders), SEED), folders, strict=False
    ):
        was_reached, _, faults = await run_once(kind, fork_server, provide_database, folder, crash, workers=workers)
        log = (folder / LOG).read_text(errors="replace")[-3_000:] if faults else ""
        assert faults == [], f"{crash}: {faults}\n{log}"
        reached += was_reached
        if reached == SAMPLE_SIZE:
            return
    raise AssertionError(f"only {reached} crash points were reached")
