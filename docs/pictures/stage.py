"""What the pictures and the exchanges are taken of: the sandbox, and the bot as a process of its own."""

import asyncio
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from channels.slack.manifest import manifest
from channels.slack.settings import PROMPTS
from sandbox.discord import DiscordSandbox
from sandbox.models import ScriptedOpenAI
from sandbox.slack import SlackSandbox

ROOT = Path(__file__).parents[2]


def lay(folder: Path, files: Mapping[str, str]) -> None:
    """Put these files there."""
    for name, text in files.items():
        (folder / name).write_text(text)


@asynccontextmanager
async def bot(
    slack: SlackSandbox,
    discord: DiscordSandbox,
    model: ScriptedOpenAI,
    files: Mapping[str, str] | None = None,
    **settings: str,
) -> AsyncIterator[None]:
    """The bot, connected to both, in a folder of its own that holds these files."""
    slack.install(manifest(prompts=PROMPTS))
    with tempfile.TemporaryDirectory() as folder:
        lay(Path(folder), files or {})
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "bot",
            "run",
            cwd=folder,
            env={
                "PATH": os.environ["PATH"],
                "PYTHONPATH": f"{ROOT}{os.pathsep}{folder}",
                "SLACK_API_URL": slack.api_url,
                "SLACK_BOT_TOKEN": slack.bot_token,
                "SLACK_APP_TOKEN": slack.app_token,
                "DISCORD_API_URL": discord.api_url,
                "DISCORD_BOT_TOKEN": discord.bot_token,
                "MODEL": "openai/scripted",
                "OPENAI_BASE_URL": model.base_url,
                **settings,
            },
        )
        try:
            await slack.wait_connected(60)
            await discord.wait_connected(60)
            await discord.wait_for(lambda: discord.commands, timeout=60)
            yield
        finally:
            process.terminate()
            await process.wait()
