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
from tests.acceptance.conftest import Program
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

#: Holds up what imports ADK until there is a file that says how the agent is.
HELD = """
import sys, time
from pathlib import Path

class Hold:
    @staticmethod
    def find_spec(name, path=None, target=None):
        while name == "bot.runtime" and not Path("is").exists():
            time.sleep(0.01)

sys.meta_path.insert(0, Hold)
"""

#: As under `adk web`, the loop runs when an agent is imported: some of what agents are made of ask for it.
AGENT = """
import asyncio
from pathlib import Path

from google.adk.agents import LlmAgent

asyncio.get_running_loop()
assert Path("is").read_text() == "good"
root_agent = LlmAgent(name="slow")
"""


def anew(folder: Path, settings: Mapping[str, str], first: str = TELLTALE) -> Program:
    """A process of its own, from its first import on, which does something before."""
    (folder / "sitecustomize.py").write_text(first)
    return Program(folder, {**settings, "PYTHONPATH": f"{folder}:{os.environ.get('PYTHONPATH') or os.getcwd()}"})


def loaded(folder: Path) -> set[str]:
    return HEAVY & set((folder / "modules").read_text().split())


async def test_a_command_imports_what_it_needs(tmp_path: Path) -> None:
    tokens = {"SLACK_BOT_TOKEN": "xoxb-1", "SLACK_APP_TOKEN": "xapp-1", "DISCORD_BOT_TOKEN": "MTIz.b.c"}

    async def ran(command: str, code: int, needs: set[str]) -> None:
        folder = tmp_path / command.replace(" ", "_")
        folder.mkdir()
        assert (await anew(folder, tokens).finish(command, within=100))[0] == code
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
        program = anew(folder, {**platform.settings, "MODEL": "openai/m", "OPENAI_BASE_URL": model.base_url, **more})
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
    tmp_path: Path, slack: SlackSandbox, discord: DiscordSandbox
) -> None:
    platforms: list[Platform] = [Slack(slack), Discord(discord)]
    agent = tmp_path / "slow"
    agent.mkdir()
    (agent / "agent.py").write_text(AGENT)
    how = tmp_path / "is"
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
        bot = anew(tmp_path, {**places, **model_of, "AGENT": "slow"}, HELD)
        try:
            await start(bot, "first")
            how.write_text("bad")
            assert await bot.wait() == 2
            assert bot.log.splitlines()[-1] == "AGENT=slow: agent.py, line 8, raises AssertionError"
            how.unlink()
            await start(bot, "second")
            assert await bot.end(within=60) == 0
            how.write_text("good")
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
    async with asyncio.timeout(60):
        while not predicate():  # noqa: ASYNC110 - another process's file tells nobody
            await asyncio.sleep(0.02)
