"""Fixtures that run the bot as a process, connected to local Slack and Discord."""

import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Protocol

import pytest

from bot.simulator.command import BOT_NAME
from chatrig.discord import DiscordSimulator
from chatrig.models import Fail, ReceivedRequest, ScriptedOpenAI, ScriptedResponse
from chatrig.slack import SlackSimulator
from tests.acceptance.platforms import BotConversation, BotMessage, Discord, Platform, Slack
from tests.processes.fork_server import ForkServer
from tests.processes.procfile import create_clean_environment


class RunningProcess(Protocol):
    """Running process with its id, signals and exit code."""

    @property
    def pid(self) -> int: ...

    def signal(self, number: int) -> None: ...

    async def wait(self) -> int: ...

    async def aclose(self) -> None: ...


class Program:
    """Process of `python -m bot COMMAND [ARGUMENTS]` in a folder of its own.

    Attributes:
        log_file: the file with the output of all starts.
        settings: environment variables of the bot.
    """

    def __init__(self, folder: Path, settings: Mapping[str, str]) -> None:
        self.folder = folder
        self.log_file = folder / "bot.log"
        self.settings = settings
        self._process: RunningProcess | None = None
        self._exit_task: asyncio.Task[int] | None = None
        self._log_offset = 0

    @property
    def log(self) -> str:
        return self.log_file.read_text(errors="replace") if self.log_file.exists() else ""

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    async def start(self, command: str = "run", *, stdin: str = "") -> None:
        self._log_offset = len(self.log)
        self._process = await self._start_process(command, stdin)
        self._exit_task = asyncio.create_task(self._process.wait())

    async def _start_process(self, command: str, stdin: str) -> RunningProcess:
        """Start `python -m bot COMMAND` with new imports, and return its process.

        Args:
            stdin: the whole standard input.
        """
        with self.log_file.open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "bot", *command.split()),
                cwd=self.folder,
                env={**create_clean_environment(), **self.settings},
                stdin=asyncio.subprocess.PIPE,
                stdout=log,
                stderr=log,
            )
        assert process.stdin is not None
        process.stdin.write(stdin.encode())
        process.stdin.close()
        return SpawnedProcess(process)

    async def wait_until_ready(self, *, within: float = 100) -> None:
        """Wait until the log since the last start reports that the bot is ready.

        Raises:
            TimeoutError: after `within` seconds.
        """
        async with asyncio.timeout(within):
            while "bot.app: ready" not in self.log[self._log_offset :]:  # noqa: ASYNC110 - a file sends no event
                await asyncio.sleep(0.02)

    async def stop(self, number: int = signal.SIGTERM, *, within: float = 60) -> int:
        """Send the signal `number` unless the process has exited; return the exit code.

        Raises:
            TimeoutError: the process runs after `within` seconds.
        """
        assert self._process is not None
        assert self._exit_task is not None
        if not self._exit_task.done():
            self._process.signal(number)
        return await self.wait_for_exit(within=within)

    async def wait_for_exit(self, *, within: float = 60) -> int:
        """Wait until the process exits, and return the exit code.

        Raises:
            TimeoutError: after `within` seconds.
        """
        assert self._exit_task is not None
        return await asyncio.wait_for(asyncio.shield(self._exit_task), within)

    async def run_command(self, command: str, *, stdin: str = "", within: float = 60) -> tuple[int, str]:
        """Run a command of the bot, such as "turns --json"; return exit code and log.

        Args:
            stdin: the whole standard input.
        """
        await self.start(command, stdin=stdin)
        try:
            return await self.wait_for_exit(within=within), self.log
        finally:
            await self.aclose()

    async def aclose(self) -> None:
        """Kill the process if it runs, and wait for its exit."""
        if self._process is not None and self._exit_task is not None:
            await self._process.aclose()
            await asyncio.wait([self._exit_task])


class SpawnedProcess:
    """Process that was started with `exec`, so that it imports all modules anew."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @property
    def pid(self) -> int:
        return self._process.pid

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    async def wait(self) -> int:
        return await self._process.wait()

    async def aclose(self) -> None:
        if self._process.returncode is None:
            self._process.kill()


class ForkedProgram(Program):
    """`Program` that is forked after its imports: see `tests.processes.fork_server`."""

    def __init__(self, fork_server: ForkServer, folder: Path, settings: Mapping[str, str]) -> None:
        super().__init__(folder, settings)
        self._fork_server = fork_server

    async def _start_process(self, command: str, stdin: str) -> RunningProcess:
        request = {"folder": str(self.folder), "log": str(self.log_file), "settings": dict(self.settings)}
        return await self._fork_server.start_process(command=command, stdin=stdin, **request)


class AcceptanceBot:
    """Process of the bot with its local platforms and a scripted model.

    Attributes:
        answer: the function that returns the model's answer to a request.
    """

    def __init__(self, program: Program, platforms: Sequence[Platform]) -> None:
        self.program = program
        self.platforms = platforms
        self.answer: Callable[[ReceivedRequest], ScriptedResponse] = _unscripted_answer

    async def start(self) -> None:
        await self.program.start()
        await self.wait_until_connected()

    async def wait_until_connected(self) -> None:
        try:
            await self.program.wait_until_ready()
            for platform in self.platforms:
                await platform.wait_for(partial(_is_connected, platform), timeout=60)
        except TimeoutError as error:
            raise TimeoutError(f"{error}\n{self.program.log}") from None

    async def wait_until_disconnected(self) -> None:
        for platform in self.platforms:
            await platform.wait_for(partial(_is_disconnected, platform), timeout=60)

    async def run_on_all_platforms(self, scenario: Callable[[Platform], Awaitable[None]]) -> None:
        """Run a scenario on all platforms of the bot concurrently."""
        await asyncio.gather(*map(scenario, self.platforms))

    async def wait_for_reply(
        self, platform: Platform, conversation: BotConversation, condition: Callable[[str], bool]
    ) -> BotMessage:
        """Wait until the newest reply satisfies a condition, and return this reply.

        Args:
            condition: the condition on the reply's text.

        Raises:
            TimeoutError: after 60 seconds, with the end of the bot's log.
        """

        def find_reply() -> BotMessage | None:
            replies = conversation.replies()
            return replies[-1] if replies and condition(replies[-1].text) else None

        try:
            reply: BotMessage | None = await platform.wait_for(find_reply, timeout=60)
        except TimeoutError as error:
            raise TimeoutError(f"{error}\n{self.program.log[-4000:]}") from None
        assert reply is not None
        return reply

    async def ask(
        self, platform: Platform, conversation: BotConversation, text: str, answer_text: str, *, user: str = "ada"
    ) -> BotMessage:
        """Post `text`, and return the bot's new reply once it is `answer_text`."""
        before = len(conversation.replies())
        await conversation.say(text, user=user)
        await platform.wait_for(lambda: len(conversation.replies()) > before, timeout=60)
        return await self.wait_for_reply(platform, conversation, lambda reply_text: reply_text == answer_text)


def _is_connected(platform: Platform) -> bool:
    return platform.is_connected


def _is_disconnected(platform: Platform) -> bool:
    return not platform.is_connected


def _unscripted_answer(_request: ReceivedRequest) -> ScriptedResponse:
    return Fail(400, "the test has not set `AcceptanceBot.answer`")


StartBot = Callable[..., Awaitable[AcceptanceBot]]
MakeProgram = Callable[[Mapping[str, str]], Program]


@pytest.fixture
async def slack() -> AsyncIterator[SlackSimulator]:
    async with SlackSimulator(bot_name=BOT_NAME) as simulator:
        yield simulator


@pytest.fixture
async def discord() -> AsyncIterator[DiscordSimulator]:
    async with DiscordSimulator(bot_name=BOT_NAME) as simulator:
        yield simulator


@pytest.fixture
def program(fork_server: ForkServer, tmp_path: Path) -> MakeProgram:
    """Return a function that creates the program with given settings, not yet started."""
    return partial(ForkedProgram, fork_server, tmp_path)


async def _start_bot(
    stack: AsyncExitStack,
    fork_server: ForkServer,
    folder: Path,
    platforms: Sequence[Platform],
    settings: Mapping[str, str],
) -> AcceptanceBot:
    def answer(request: ReceivedRequest) -> ScriptedResponse:
        return bot.answer(request)

    model = await stack.enter_async_context(ScriptedOpenAI(answer))
    platform_settings = {name: value for platform in platforms for name, value in platform.settings.items()}
    scripted = {"MODEL": "openai/scripted", "OPENAI_BASE_URL": model.base_url, "WHILE_RUNNING": "queue"}
    bot = AcceptanceBot(ForkedProgram(fork_server, folder, {**platform_settings, **scripted, **settings}), platforms)
    stack.push_async_callback(bot.program.aclose)
    await bot.start()
    return bot


@pytest.fixture
async def start(
    fork_server: ForkServer, slack: SlackSimulator, discord: DiscordSimulator, tmp_path: Path
) -> AsyncIterator[StartBot]:
    """Yield a function that starts a bot on both platforms, with given settings.

    The end of the test stops all started bots.
    """
    async with AsyncExitStack() as stack:

        async def start_bot(*, folder: Path = tmp_path, **settings: str) -> AcceptanceBot:
            return await _start_bot(stack, fork_server, folder, [Slack(slack), Discord(discord)], settings)

        yield start_bot
