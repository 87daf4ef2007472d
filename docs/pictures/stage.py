"""Bot process of the pictures and exchanges, connected to the simulator."""

import asyncio
import os
import re
import sys
import tempfile
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from channels.slack.manifest import manifest
from channels.slack.settings import DEFAULT_PROMPTS
from chatrig.discord import DiscordSimulator
from chatrig.models import ScriptedOpenAI
from chatrig.slack import SlackSimulator

ROOT = Path(__file__).parents[2]

#: Limit of the bot's start.
START_TIMEOUT_SECONDS = 60.0

#: Path of the program on the pages.
PROGRAM = "parley"

#: Prefix of a log line: time, level and logger.
_LOG_PREFIX = re.compile(r"^\S+ \S+ [A-Z]+ [\w.]+: ")


def write_files(folder: Path, files: Mapping[str, str]) -> None:
    """Write files into a folder.

    Args:
        files: the texts by file name.
    """
    for name, text in files.items():
        (folder / name).write_text(text)


class Bot:
    """Process of the bot in a folder of its own, and operator commands there."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self._folder = folder
        self._environment = environment
        self._log = folder / "bot.log"
        self._process: Process | None = None

    async def start(self) -> None:
        """Start the process, and wait until the bot is ready.

        Raises:
            TimeoutError: after `START_TIMEOUT_SECONDS`.
        """
        with self._log.open("w") as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "bot", "run", cwd=self._folder, env=self._environment, stdout=log, stderr=log
            )
        async with asyncio.timeout(START_TIMEOUT_SECONDS):
            while "ready" not in self.find_log_lines("ready"):  # noqa: ASYNC110 - a file sends no event
                await asyncio.sleep(0.05)

    async def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            await self._process.wait()
            self._process = None

    async def run(self, line: str) -> str:
        """Run a shell command with the bot's settings, and return its output."""
        command = line.replace(PROGRAM, f"{sys.executable} -m bot")
        process = await asyncio.create_subprocess_shell(
            command, cwd=self._folder, env=self._environment, stdout=PIPE, stderr=PIPE
        )
        output, _ = await process.communicate()
        return output.decode()

    def find_log_lines(self, words: str) -> list[str]:
        """Return the log lines that contain this text, without time, level and logger."""
        lines = [_LOG_PREFIX.sub("", line) for line in self._log.read_text().splitlines()]
        return [line for line in lines if words in line]

    @property
    def address(self) -> str:
        """Base URL of the bot's HTTP server."""
        (line,) = self.find_log_lines("/healthz")
        return f"http://127.0.0.1:{line.partition('at port ')[2].split()[0]}"


@asynccontextmanager
async def run_bot(
    slack: SlackSimulator,
    discord: DiscordSimulator,
    model: ScriptedOpenAI,
    **settings: str,
) -> AsyncIterator[Bot]:
    """Run the bot on both platforms, in a folder of its own."""
    address = "https://your-bot.example.com" if settings.get("SLACK_MODE") == "http" else ""
    slack.install(manifest(prompts=DEFAULT_PROMPTS, address=address))
    with tempfile.TemporaryDirectory() as folder:
        environment = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(ROOT),
            "SLACK_API_URL": slack.api_url,
            "SLACK_BOT_TOKEN": slack.bot_token,
            "SLACK_APP_TOKEN": slack.app_token,
            "DISCORD_API_URL": discord.api_url,
            "DISCORD_BOT_TOKEN": discord.bot_token,
            "MODEL": "openai/scripted",
            "OPENAI_BASE_URL": model.base_url,
            "PORT": "0",
            **settings,
        }
        bot = Bot(Path(folder), {name: value for name, value in environment.items() if value})
        try:
            await bot.start()
            await discord.wait_for(lambda: discord.commands, timeout=START_TIMEOUT_SECONDS)
            yield bot
        finally:
            await bot.stop()
