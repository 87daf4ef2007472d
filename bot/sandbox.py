"""`sandbox`: a Slack and a Discord on this machine, the bot against both, and a terminal to speak in."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from bot.settings import LOCAL_MODEL, Settings
from channels.slack.manifest import manifest
from core.errors import ParleyError, SettingsError

#: Seconds that the bot has to end its replies when the sandbox is left.
STOP_TIMEOUT = 30.0


async def run(settings: Settings, stop: asyncio.Event) -> None:
    """Run until the person leaves, `stop` is set, or the bot ends.

    The bot is a process of its own, started as it is anywhere else: only its settings point here.

    Raises:
        ParleyError: the bot ended by itself; its last words say why.
    """
    try:
        from sandbox.discord import DiscordSandbox  # noqa: PLC0415 - an extra that production does without
        from sandbox.slack import SlackSandbox  # noqa: PLC0415
        from sandbox.terminal import run_terminal  # noqa: PLC0415
    except ImportError as error:
        raise SettingsError("the sandbox is not installed: `uv sync --all-extras`") from error

    model, log = settings.sandbox_model, settings.data_dir / "bot.log"
    warning = " (tiny and often wrong; set GOOGLE_API_KEY for a real one)" if model == LOCAL_MODEL else ""
    notices = [
        "This is the sandbox: a Slack and a Discord on this machine, with the real bot in both.",
        f"Model: {model}{warning}",
        f"The bot's log: {log}",
    ]
    async with SlackSandbox() as slack, DiscordSandbox() as discord:
        slack.install(manifest(prompts=settings.prompts))
        environment = {
            "SLACK_API_URL": slack.api_url,
            "SLACK_BOT_TOKEN": slack.bot_token,
            "SLACK_APP_TOKEN": slack.app_token,
            "SLACK_MODE": "socket",
            "SLACK_CLIENT_ID": "",
            "SLACK_CLIENT_SECRET": "",
            "DISCORD_API_URL": discord.api_url,
            "DISCORD_BOT_TOKEN": discord.bot_token,
            "DISCORD_GUILDS": "",  # the sandbox's own is none of those that the operator serves
            "MODEL": model,
            "DATABASE_URL": f"sqlite:///{settings.data_dir / 'sandbox.db'}",
            "PORT": "0",
            "STOP_SECONDS": "2",  # who leaves does not wait for an answer
        }
        async with _bot(environment, log) as bot:
            terminal = asyncio.create_task(run_terminal(slack, discord, notices=notices), name="terminal")
            ends = [asyncio.create_task(bot.wait(), name="bot"), asyncio.create_task(stop.wait(), name="stop")]
            try:
                await asyncio.wait([terminal, *ends], return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in (terminal, *ends):
                    task.cancel()
                await asyncio.wait([terminal, *ends])
            if terminal.done() and not terminal.cancelled():
                terminal.result()
            if bot.returncode:
                raise ParleyError(f"the bot ended by itself; {log} ends with:\n{_tail(log)}")


@asynccontextmanager
async def _bot(environment: Mapping[str, str], log: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    """The bot in a process of its own, which is stopped behind the block."""
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "bot",
            "run",
            env={**os.environ, **environment},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,  # Ctrl-C is for the terminal; the bot is told by us
        )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
            try:
                await asyncio.wait_for(process.wait(), STOP_TIMEOUT)
            except TimeoutError:
                process.kill()
                await process.wait()


def _tail(log: Path, lines: int = 8) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])
