"""The bot as its users have it: a process with the platforms' real clients in it, and the platforms on this machine."""

import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import pytest
import pytest_asyncio

from sandbox.discord import DiscordSandbox
from sandbox.models import Asked, Fail, ScriptedOpenAI, Turn
from sandbox.slack import SlackSandbox
from tests.acceptance.platforms import Discord, Platform, Shown, Slack, Talk
from tests.environment import inherited


class Program:
    """`python -m bot COMMAND`, in a folder of its own."""

    def __init__(self, folder: Path, settings: Mapping[str, str]) -> None:
        self.folder = folder
        self._log = folder / "bot.log"
        self._environment = {**inherited(), **settings}
        self._process: asyncio.subprocess.Process | None = None
        self._before = 0

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    async def start(self, command: str = "run", *, typed: str = "") -> None:
        self._before = len(self.log)
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "bot",
                command,
                cwd=self.folder,
                env=self._environment,
                stdin=asyncio.subprocess.PIPE,
                stdout=log,
                stderr=log,
            )
        assert self._process.stdin is not None
        self._process.stdin.write(typed.encode())
        self._process.stdin.close()

    async def ready(self, *, within: float = 60) -> None:
        """Wait until it says that it is."""
        async with asyncio.timeout(within):
            while "bot.app: ready" not in self.log[self._before :]:  # noqa: ASYNC110 - a file tells nobody
                await asyncio.sleep(0.05)

    async def end(self, number: int = signal.SIGTERM, *, within: float = 30) -> int:
        """Send a signal; the exit code."""
        assert self._process is not None
        if self._process.returncode is None:
            self._process.send_signal(number)
        return await asyncio.wait_for(self._process.wait(), within)

    async def wait(self, *, within: float = 30) -> int:
        """Wait for it to end by itself; the exit code."""
        assert self._process is not None
        return await asyncio.wait_for(self._process.wait(), within)

    async def finish(self, command: str, *, typed: str = "", within: float = 30) -> tuple[int, str]:
        """Run a command to its end; the exit code, and what it printed."""
        await self.start(command, typed=typed)
        return await self.wait(within=within), self.log

    async def aclose(self) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()


class Bot:
    """The bot on the platforms that it was started for, with a model that does as it is told.

    Attributes:
        answer: what the model answers, until a test says otherwise.
    """

    def __init__(self, program: Program, platforms: Sequence[Platform]) -> None:
        self.program = program
        self.platforms = platforms
        self.answer: Callable[[Asked], Turn] = _nothing

    async def start(self) -> None:
        await self.program.start()
        await self.connected()

    async def connected(self) -> None:
        try:
            await self.program.ready()
            for platform in self.platforms:
                await platform.wait_for(partial(_is_connected, platform), timeout=30)
        except TimeoutError as error:
            raise TimeoutError(f"{error}\n{self.program.log}") from None

    async def disconnected(self) -> None:
        for platform in self.platforms:
            await platform.wait_for(partial(_is_gone, platform), timeout=30)

    async def everywhere(self, scenario: Callable[[Platform], Awaitable[None]]) -> None:
        """Play a scenario on every platform, at the same time."""
        await asyncio.gather(*map(scenario, self.platforms))

    async def reply(self, platform: Platform, talk: Talk, is_it: Callable[[str], bool]) -> Shown:
        """The newest reply, once it says what is waited for."""

        def found() -> Shown | None:
            replies = talk.replies()
            return replies[-1] if replies and is_it(replies[-1].text) else None

        try:
            shown = await platform.wait_for(found, timeout=20)
        except TimeoutError as error:
            raise TimeoutError(f"{error}\n{self.program.log[-4000:]}") from None
        assert shown is not None
        return shown

    async def ask(self, platform: Platform, talk: Talk, text: str, says: str, *, user: str = "ada") -> Shown:
        """Say `text` to the bot and wait until its reply is `says`."""
        before = len(talk.replies())
        await talk.say(text, user=user)
        await platform.wait_for(lambda: len(talk.replies()) > before, timeout=20)
        return await self.reply(platform, talk, lambda shown: shown == says)


def _is_connected(platform: Platform) -> bool:
    return platform.is_connected


def _is_gone(platform: Platform) -> bool:
    return not platform.is_connected


def _nothing(_asked: Asked) -> Turn:
    return Fail(400, "no test has told the model what to say")


Start = Callable[..., Awaitable[Bot]]


@pytest.fixture
async def slack() -> AsyncIterator[SlackSandbox]:
    async with SlackSandbox() as sandbox:
        yield sandbox


@pytest.fixture
async def discord() -> AsyncIterator[DiscordSandbox]:
    async with DiscordSandbox() as sandbox:
        yield sandbox


async def _started(
    stack: AsyncExitStack, folder: Path, platforms: Sequence[Platform], settings: Mapping[str, str]
) -> Bot:
    def answer(asked: Asked) -> Turn:
        return bot.answer(asked)

    model = await stack.enter_async_context(ScriptedOpenAI(answer))
    places = {name: value for platform in platforms for name, value in platform.settings.items()}
    scripted = {"MODEL": "openai/scripted", "OPENAI_BASE_URL": model.base_url}
    bot = Bot(Program(folder, {**places, **scripted, **settings}), platforms)
    stack.push_async_callback(bot.program.aclose)
    await bot.start()
    return bot


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def everyday(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Bot]:
    """One bot on both platforms, for all scenarios in which it just lives."""
    async with AsyncExitStack() as stack:
        slack = await stack.enter_async_context(SlackSandbox())
        discord = await stack.enter_async_context(DiscordSandbox())
        folder = tmp_path_factory.mktemp("bot")
        yield await _started(stack, folder, [Slack(slack), Discord(discord)], {})


@pytest.fixture
async def start(slack: SlackSandbox, discord: DiscordSandbox, tmp_path: Path) -> AsyncIterator[Start]:
    """Starts a bot of its own on both platforms, for a scenario in which it ends."""
    async with AsyncExitStack() as stack:

        async def begin(*, folder: Path = tmp_path, **settings: str) -> Bot:
            return await _started(stack, folder, [Slack(slack), Discord(discord)], settings)

        yield begin
