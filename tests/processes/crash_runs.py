"""Crash runs: a person uses the bot while its processes are killed at an await, and the last one ends all work."""

import asyncio
import json
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import astuple
from pathlib import Path
from typing import Any, ClassVar

import pytest

from chatrig.discord import DiscordSimulator
from chatrig.models import ReceivedRequest, ScriptedOpenAI
from chatrig.slack import SlackSimulator
from core.store.database import Database
from tests.acceptance.platforms import BotConversation, Discord, Platform, Slack
from tests.chaos import databases
from tests.chaos.campaign import draw_sample
from tests.chaos.crash_points import module_of
from tests.chaos.crashing_process import LOG, PASSAGES, Crash
from tests.chaos.evidence import list_unfinished
from tests.chaos.runner import FORKED_MODULE, DatabaseProvider, insert_known_place
from tests.conftest import run_fork_server
from tests.processes.fork_server import ForkServer
from tests.processes.postgres import PostgresServer
from tests.scenarios.chat import DiscordChat

#: The number of crashes that are tried, and the seed of their choice.
SAMPLE_SIZE, SEED = 6, 7

#: Limits of a run: until the last answer, and of a shutdown, in seconds.
SETTLE_SECONDS, STOP_SECONDS = 90.0, 20.0


class CrashRun:
    """One run of a scenario, whose processes crash as planned.

    Attributes:
        modules: the modules at whose crash points the process is killed.
        prompt: what a person says to the bot.
        tool: the setting TOOLS.
        respond: the script of the model.
    """

    modules: ClassVar[Sequence[str]]
    prompt: ClassVar[str] = ""
    tool: ClassVar[str]
    respond: Callable[[ReceivedRequest], Any]

    def __init__(self, fork_server: ForkServer, folder: Path, url: str, platform: Platform, model_url: str) -> None:
        self.folder = folder
        self.platform = platform
        self.database = Database(url)
        self._fork_server = fork_server
        self.settings: dict[str, str] = {
            **platform.settings,
            "MODEL": "openai/scripted",
            "OPENAI_BASE_URL": model_url,
            "TOOLS": self.tool,
            "DATABASE_URL": url.replace("+asyncpg", "").replace("+aiosqlite", ""),
            "LEASE_SECONDS": "1",
            "PORT": "0",
        }

    async def run(self, crash: Crash | None, *, workers: int = 1) -> tuple[bool, Mapping[str, int], list[str]]:
        """Return whether the crash point was reached, the passages of the last process, and the faults.

        There are no passages with several workers.
        """
        conversation = self.platform.start_conversation()
        if isinstance(conversation.chat, DiscordChat):  # else a message that a crash loses is not found
            place = f"discord:{self.platform.simulator.guild_id}:{conversation.chat.place.id}"
            await insert_known_place(place, self.database)
        asking = asyncio.create_task(self._ask(conversation))
        spare = [asyncio.create_task(self._run_process(None, conversation, worker)) for worker in range(1, workers)]
        try:
            codes = [await self._run_process(crash, conversation)]
            if codes[0] == -signal.SIGKILL and not spare:
                await self.platform.wait_for(lambda: not self.platform.is_connected)
                codes.append(await self._run_process(None, conversation))
            codes += await asyncio.gather(*spare)
        finally:
            asking.cancel()
            (error,) = await asyncio.gather(asking, return_exceptions=True)
        expected = (0, -signal.SIGKILL, -signal.SIGTERM)  # SIGTERM: all was done before a process had started
        faults = [f"a process ended with {code}" for code in codes if code not in expected]
        faults += [f"the person fails: {error!r}"] if isinstance(error, Exception) else []
        faults += await self._find_faults(conversation)
        passages = self.folder / PASSAGES
        has_passages = workers == 1 and passages.exists()  # several workers write the file at the same time
        return codes[0] == -signal.SIGKILL, json.loads(passages.read_text()) if has_passages else {}, faults

    async def _ask(self, conversation: BotConversation) -> None:
        await self.platform.wait_for(lambda: self.platform.is_connected, timeout=SETTLE_SECONDS)
        await conversation.say(self.prompt)

    def get_settings(self, worker: int) -> Mapping[str, str]:
        """Return the settings of the worker of this number."""
        return self.settings

    async def _run_process(self, crash: Crash | None, conversation: BotConversation, worker: int = 0) -> int:
        process = await self._fork_server.start_process(
            folder=str(self.folder), settings=self.get_settings(worker), crash=astuple(crash) if crash else None
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
        return self.platform.is_connected and not await list_unfinished(self.database)

    async def _find_faults(self, conversation: BotConversation) -> list[str]:
        raise NotImplementedError


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
    kind: type[CrashRun],
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


async def check_crashes(
    kind: type[CrashRun], fork_server: ForkServer, provide: DatabaseProvider, folder: Path, *, workers: int = 1
) -> None:
    """Run without a crash, and then with one, until `SAMPLE_SIZE` crash points were reached.

    Raises:
        AssertionError: a run has faults, or too few points were reached.
    """
    folders = [folder / str(number) for number in range(4 * SAMPLE_SIZE + 1)]
    for each in folders:
        each.mkdir()
    _, passages, faults = await run_once(kind, fork_server, provide, folders.pop(), None)
    assert faults == []
    crashes = [(Crash(point, 1),) for point in sorted(passages) if module_of(point) in kind.modules]
    reached = 0
    for (crash,), each in zip(draw_sample(crashes, len(folders), SEED), folders, strict=False):
        was_reached, _, faults = await run_once(kind, fork_server, provide, each, crash, workers=workers)
        log = (each / LOG).read_text(errors="replace")[-3_000:] if faults else ""
        assert faults == [], f"{crash}: {faults}\n{log}"
        reached += was_reached
        if reached == SAMPLE_SIZE:
            return
    raise AssertionError(f"only {reached} crash points were reached")
