"""Imports of the program at its start, and messages that arrive meanwhile."""

import asyncio
import os
import re
from collections.abc import Mapping
from pathlib import Path

from chatrig.discord import DiscordSimulator
from chatrig.models import ScriptedOpenAI
from chatrig.slack import SlackSimulator
from tests.acceptance.conftest import Program
from tests.acceptance.platforms import BotConversation, Discord, Platform, Slack

#: Prints the imported modules at exit: Python runs a module of this name at startup.
IMPORT_RECORDER = """
import atexit, sys
atexit.register(lambda: open("modules", "w").write("\\n".join(sys.modules)))
"""

#: Modules with a slow or large import.
HEAVY_MODULES = {
    "aiosqlite",
    "alembic",
    "anthropic",
    "asyncpg",
    "chatrig",
    "discord",
    "google.adk",
    "google.genai",
    "mcp",
    "openai",
    "opentelemetry.sdk",
    "prometheus_client",
    "slack_bolt",
    "slack_sdk",
    "sqlalchemy",
    "textual",
    "tiktoken",
}

#: Modules of ADK that sessions need for events.
ADK_MODULES = {"google.adk", "google.genai"}

#: Blocks the import of the agent until a file exists.
BLOCKED_AGENT = """
import sys, time
from pathlib import Path

class Hold:
    @staticmethod
    def find_spec(name, path=None, target=None):
        while name == "bot.runtime" and not Path("is").exists():
            time.sleep(0.01)

sys.meta_path.insert(0, Hold)
"""

#: An agent that needs the running event loop during its import, as under `adk web`.
AGENT = """
import asyncio
from pathlib import Path

from google.adk.agents import LlmAgent

asyncio.get_running_loop()
assert Path("is").read_text() == "good"
root_agent = LlmAgent(name="slow")
"""


def make_fresh_program(folder: Path, settings: Mapping[str, str], first: str = IMPORT_RECORDER) -> Program:
    """Return a program with imports of its own that first runs the code `first`."""
    (folder / "sitecustomize.py").write_text(first)
    return Program(folder, {**settings, "PYTHONPATH": f"{folder}:{os.environ.get('PYTHONPATH') or os.getcwd()}"})


def list_imports(folder: Path) -> set[str]:
    return HEAVY_MODULES & set((folder / "modules").read_text().split())


async def test_a_command_imports_only_its_dependencies(tmp_path: Path) -> None:
    tokens = {"SLACK_BOT_TOKEN": "xoxb-1", "SLACK_APP_TOKEN": "xapp-1", "DISCORD_BOT_TOKEN": "MTIz.b.c"}

    async def check_imports(command: str, code: int, needs: set[str]) -> None:
        folder = tmp_path / command.replace(" ", "_")
        folder.mkdir()
        assert (await make_fresh_program(folder, tokens).run_command(command, within=100))[0] == code
        assert list_imports(folder) - {"sqlalchemy"} == needs, command

    await asyncio.gather(
        check_imports("--help", 0, set()),
        check_imports("manifest slack", 0, {"slack_bolt", "slack_sdk", *ADK_MODULES}),
        check_imports("manifest discord", 0, {"discord"}),
        check_imports("migrate", 0, {"aiosqlite", "alembic"}),
        check_imports("status", 1, {"alembic", *ADK_MODULES}),  # there is no database to open
    )


async def test_unconfigured_platforms_and_models_are_not_imported(
    tmp_path: Path, slack: SlackSimulator, discord: DiscordSimulator
) -> None:
    needs = {"aiosqlite", "alembic", "google.adk", "google.genai", "openai", "sqlalchemy"}
    measured = {"opentelemetry.sdk", "prometheus_client"}

    async def check_imports(platform: Platform, environment: Mapping[str, str], also: set[str]) -> None:
        folder = tmp_path / platform.name
        folder.mkdir()
        program = make_fresh_program(
            folder, {**platform.settings, "MODEL": "openai/m", "OPENAI_BASE_URL": model.base_url, **environment}
        )
        await program.start()
        try:
            await platform.wait_for(lambda: platform.is_connected, timeout=100)
            conversation = platform.start_dm("ada")
            await conversation.say("hello")
            await platform.wait_for(
                lambda: [reply.text for reply in conversation.replies()] == ["Heard: hello"], timeout=100
            )
            assert await program.stop() == 0
        finally:
            await program.aclose()
        assert list_imports(folder) == needs | also
        assert ("discord" if platform.name == "slack" else "slack") not in program.log.lower()

    async with ScriptedOpenAI(lambda request: f"Heard: {request.text}") as model:
        await asyncio.gather(
            check_imports(Slack(slack), {"METRICS": "off"}, {"slack_bolt", "slack_sdk"}),
            check_imports(Discord(discord), {}, {"discord"} | measured),
        )


async def test_a_message_sent_during_startup_is_answered(
    tmp_path: Path, slack: SlackSimulator, discord: DiscordSimulator
) -> None:
    platforms: list[Platform] = [Slack(slack), Discord(discord)]
    agent = tmp_path / "slow"
    agent.mkdir()
    (agent / "agent.py").write_text(AGENT)
    how = tmp_path / "is"
    conversations = {platform: platform.start_conversation() for platform in platforms}

    async def wait_for_answers(*texts: str) -> None:
        for platform, conversation in conversations.items():
            await platform.wait_for(lambda: quoted_messages(conversation) == [*texts], timeout=100)  # noqa: B023 - it is waited for here

    async with ScriptedOpenAI(lambda request: f"Heard: {request.text}") as model:
        places = {name: value for platform in platforms for name, value in platform.settings.items()}
        model_of = {"MODEL": "openai/m", "OPENAI_BASE_URL": model.base_url}
        bot = make_fresh_program(tmp_path, {**places, **model_of, "AGENT": "slow"}, BLOCKED_AGENT)
        try:
            how.write_text("good")
            await bot.start()
            for platform, conversation in conversations.items():
                await platform.wait_for(lambda: platform.is_connected, timeout=100)  # noqa: B023
                await conversation.say("first")
            await wait_for_answers("first")
            assert await bot.stop() == 0
            how.unlink()
            await bot.start()
            for conversation in conversations.values():
                await conversation.say("second")
            how.write_text("good")
            await wait_for_answers("first", "second")
            assert await bot.stop() == 0
        finally:
            await bot.aclose()


async def test_an_agent_with_an_import_error_stops_the_start_with_that_error(tmp_path: Path) -> None:
    agent = tmp_path / "slow"
    agent.mkdir()
    (agent / "agent.py").write_text(AGENT)
    (tmp_path / "is").write_text("bad")
    tokens = {"SLACK_BOT_TOKEN": "xoxb-1", "SLACK_APP_TOKEN": "xapp-1"}
    code, log = await make_fresh_program(tmp_path, {**tokens, "AGENT": "slow"}).run_command("run", within=100)
    assert code == 2
    assert log.splitlines()[-1] == "AGENT=slow: agent.py, line 8, raises AssertionError"


def quoted_messages(conversation: BotConversation) -> list[str]:
    """Return the words "first" and "second" in the bot's replies, in order."""
    return re.findall("first|second", " ".join(reply.text for reply in conversation.replies()))
