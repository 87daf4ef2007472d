"""What a start loads, and what becomes of what is said meanwhile."""

import asyncio
import os
import re
import sqlite3
from collections.abc import Callable, Mapping
from pathlib import Path

from sandbox.discord import DiscordSandbox
from sandbox.models import ScriptedOpenAI
from sandbox.slack import SlackSandbox
from tests.acceptance.conftest import Program, With
from tests.acceptance.platforms import Discord, Platform, Slack, Talk

#: Tells at the end of a process what it has imported: Python runs a module of this name at its start.
TELLTALE = """
import atexit, sys
atexit.register(lambda: open("modules", "w").write("\\n".join(sys.modules)))
"""

#: What takes long to import, or much memory.
HEAVY = {
    "aiosqlite",
    "alembic",
    "anthropic",
    "asyncpg",
    "discord",
    "google.adk",
    "google.genai",
    "mcp",
    "openai",
    "opentelemetry.sdk",
    "prometheus_client",
    "sandbox",
    "slack_bolt",
    "slack_sdk",
    "sqlalchemy",
    "textual",
    "tiktoken",
}

#: An agent that is not there before there is a file beside it that says how it is.
SLOW = """
import time
from pathlib import Path

from google.adk.agents import LlmAgent

file = Path(__file__).with_name("is")
while not file.exists():
    time.sleep(0.01)
assert file.read_text() == "good"
root_agent = LlmAgent(name="slow")
"""


def telling(folder: Path, settings: Mapping[str, str]) -> Program:
    """A process of its own, from its first import on."""
    (folder / "sitecustomize.py").write_text(TELLTALE)
    return Program(folder, {**settings, "PYTHONPATH": f"{folder}:{os.environ.get('PYTHONPATH') or os.getcwd()}"})


def loaded(folder: Path) -> set[str]:
    return HEAVY & set((folder / "modules").read_text().split())


async def test_a_command_imports_what_it_needs(tmp_path: Path) -> None:
    tokens = {"SLACK_BOT_TOKEN": "xoxb-1", "SLACK_APP_TOKEN": "xapp-1", "DISCORD_BOT_TOKEN": "MTIz.b.c"}

    async def ran(command: str, code: int, needs: set[str]) -> None:
        folder = tmp_path / command.replace(" ", "_")
        folder.mkdir()
        assert (await telling(folder, tokens).finish(command, within=100))[0] == code
        assert loaded(folder) - {"sqlalchemy"} == needs, command

    await asyncio.gather(
        ran("--help", 0, set()),
        ran("manifest slack", 0, {"slack_bolt", "slack_sdk"}),
        ran("manifest discord", 0, {"discord"}),
        ran("status", 1, {"aiosqlite", "alembic"}),
    )


async def test_what_is_not_configured_is_not_imported(
    tmp_path: Path, slack: SlackSandbox, discord: DiscordSandbox
) -> None:
    needs = {"aiosqlite", "alembic", "google.adk", "google.genai", "openai", "sqlalchemy"}
    measured = {"opentelemetry.sdk", "prometheus_client"}

    async def ran(platform: Platform, more: Mapping[str, str], also: set[str]) -> None:
        folder = tmp_path / platform.name
        folder.mkdir()
        program = telling(folder, {**platform.settings, "MODEL": "openai/m", "OPENAI_BASE_URL": model.base_url, **more})
        await program.start()
        try:
            await platform.wait_for(lambda: platform.is_connected, timeout=100)
            talk = platform.direct("ada")
            await talk.say("hello")
            await platform.wait_for(lambda: [shown.text for shown in talk.replies()] == ["Heard: hello"], timeout=100)
            assert await program.end() == 0
        finally:
            await program.aclose()
        assert loaded(folder) == needs | also
        assert ("discord" if platform.name == "slack" else "slack") not in program.log.lower()

    async with ScriptedOpenAI(lambda asked: f"Heard: {asked.text}") as model:
        await asyncio.gather(
            ran(Slack(slack), {"METRICS": "off"}, {"slack_bolt", "slack_sdk"}),
            ran(Discord(discord), {}, {"discord"} | measured),
        )


async def test_what_is_said_while_the_agent_is_loaded_is_kept_and_answered(
    program: With, tmp_path: Path, slack: SlackSandbox, discord: DiscordSandbox
) -> None:
    platforms: list[Platform] = [Slack(slack), Discord(discord)]
    agent = tmp_path / "slow"
    agent.mkdir()
    (agent / "agent.py").write_text(SLOW)
    talks = {platform: platform.talk() for platform in platforms}

    async def start(bot: Program, text: str) -> None:
        """Say it everywhere as soon as the platform hears it, which is before there is an agent."""
        await bot.start()
        for platform in platforms:
            await platform.wait_for(lambda: platform.is_connected, timeout=100)  # noqa: B023 - it is waited for here
            await talks[platform].say(text)
        await until(lambda: text in kept(tmp_path))

    async with ScriptedOpenAI(lambda asked: f"Heard: {asked.text}") as model:
        places = {name: value for platform in platforms for name, value in platform.settings.items()}
        model_of = {"MODEL": "openai/m", "OPENAI_BASE_URL": model.base_url}
        bot = program({**places, **model_of, "AGENT": "slow"})
        try:
            await start(bot, "first")
            (agent / "is").write_text("bad")
            assert await bot.wait() == 2
            assert bot.log.splitlines()[-1] == "AGENT=slow: agent.py, line 10, raises AssertionError"
            (agent / "is").unlink()
            await start(bot, "second")
            assert await bot.end(within=10) == 0
            (agent / "is").write_text("good")
            await bot.start()
            for platform in platforms:
                await platform.wait_for(lambda: told(talks[platform]) == ["first", "second"], timeout=100)  # noqa: B023
            assert await bot.end() == 0
        finally:
            await bot.aclose()


def told(talk: Talk) -> list[str]:
    """What the bot says that it has heard."""
    return re.findall("first|second", " ".join(shown.text for shown in talk.replies()))


def kept(folder: Path) -> str:
    """What the inbox has, as a text."""
    with sqlite3.connect(folder / ".parley" / "parley.db") as connection:
        return str(connection.execute("select inbound from inbox").fetchall())


async def until(predicate: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not predicate():  # noqa: ASYNC110 - another process's file tells nobody
            await asyncio.sleep(0.02)
