"""The bot as its users have it: a process of its own, Slack's real client in it, and a Slack on this machine."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path

import pytest

from sandbox.models import Script, ScriptedOpenAI
from sandbox.slack import SlackSandbox
from sandbox.slack.workspace import Channel, Message

#: Settings of whoever runs the tests, which must not reach the bot.
FOREIGN = (
    "SLACK_",
    "OPENAI_",
    "ANTHROPIC_",
    "GOOGLE_",
    "GEMINI_",
    "MODEL",
    "DATABASE_URL",
    "AGENT_",
    "TOOLS",
    "DYNO",
    "LOG_LEVEL",
)


class Program:
    """`python -m bot COMMAND`, in a folder of its own."""

    def __init__(self, folder: Path, settings: Mapping[str, str]) -> None:
        self.folder = folder
        self._log = folder / "bot.log"
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
        self._environment = {**inherited, **settings}
        self._process: asyncio.subprocess.Process | None = None

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    async def start(self, command: str = "run", *, typed: str = "") -> None:
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


class Workspace:
    """A Slack with the bot in it."""

    def __init__(self, slack: SlackSandbox, program: Program) -> None:
        self.slack = slack
        self.program = program

    @property
    def mention(self) -> str:
        return f"<@{self.slack.bot_user_id}>"

    async def started(self) -> None:
        """The bot is started, and hears."""
        await self.program.start()
        await self.connected()

    async def connected(self) -> None:
        try:
            await self.slack.wait_connected(30)
        except TimeoutError as error:
            raise TimeoutError(f"{error}\n{self.program.log}") from None

    def replies(self, root: Message) -> list[Message]:
        """What the bot says in the thread of `root`."""
        thread = self.slack.messages(root.channel, thread_ts=root.thread_ts or root.ts)
        return [message for message in thread if message.user == self.slack.bot_user_id]

    async def reply(self, root: Message, is_it: Callable[[str], bool], *, within: float = 20) -> Message:
        """The newest reply in the thread of `root`, once it says what is waited for."""

        def found() -> Message | None:
            replies = self.replies(root)
            return replies[-1] if replies and is_it(replies[-1].text) else None

        try:
            message = await self.slack.wait_for(found, timeout=within)
        except TimeoutError as error:
            raise TimeoutError(f"{error}\n{self.program.log[-4000:]}") from None
        assert message is not None
        return message

    async def ask(
        self,
        text: str,
        says: str,
        *,
        user: str = "ada",
        channel: Channel | str = "general",
        under: Message | None = None,
    ) -> Message:
        """Say `text` to the bot and wait until its reply is `says`; the message that was said."""
        where, thread = (under.channel, under.thread_ts or under.ts) if under else (channel, None)
        root = await self.slack.say(user, where, f"{self.mention} {text}", thread_ts=thread)
        await self.reply(root, lambda shown: shown == says)
        return root


@pytest.fixture
async def slack() -> AsyncIterator[SlackSandbox]:
    async with SlackSandbox() as sandbox:
        yield sandbox


Start = Callable[..., "asyncio.Future[Workspace]"]


@pytest.fixture
async def start(slack: SlackSandbox, tmp_path: Path) -> AsyncIterator[Callable[..., object]]:
    """Starts the bot in the sandbox with a scripted model, or with the settings that are given."""
    programs: list[Program] = []
    models: list[ScriptedOpenAI] = []

    async def begin(script: Script | None = None, **settings: str) -> Workspace:
        if script is not None:
            models.append(await ScriptedOpenAI(script).__aenter__())
            settings = {"MODEL": "openai/scripted", "OPENAI_BASE_URL": models[-1].base_url, **settings}
        program = Program(
            tmp_path,
            {
                "SLACK_API_URL": slack.api_url,
                "SLACK_BOT_TOKEN": slack.bot_token,
                "SLACK_APP_TOKEN": slack.app_token,
                **settings,
            },
        )
        programs.append(program)
        workspace = Workspace(slack, program)
        await workspace.started()
        return workspace

    yield begin
    for program in programs:
        await program.aclose()
    for model in models:
        await model.__aexit__(None, None, None)
