"""The setup command at a terminal."""

import asyncio
import os
import stat
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from docs.pictures import setup
from docs.pictures.typist import Typist
from sandbox.discord import DiscordSandbox
from sandbox.models import ScriptedOpenAI
from sandbox.slack import SlackSandbox
from tests.acceptance.conftest import MakeProgram
from tests.fixtures.full_disk import fill_disk, make_read_only
from tests.processes.fork_server import ForkedProcess, ForkServer

#: Keys that interrupt a program and end its input.
CTRL_C, CTRL_D = "\x03", "\x04"

#: Unrelated settings in a file that other users may read.
EXISTING_SETTINGS = """\
# of ours
export SLACK_BOT_TOKEN="xoxb-the-one-of-last-year"  # ask Grace
ODD LINE

GREETING='hello # you'
# SLACK_APP_TOKEN=xapp-...      # Basic Information
LOG_LEVEL=DEBUG
"""


class TerminalSession:
    """Terminal with a running program."""

    def __init__(self, typist: Typist, life: ForkedProcess) -> None:
        self.sees, self.answers, self.presses = typist.sees, typist.answers, typist.presses
        self._typist, self._life = typist, life

    @property
    def screen(self) -> str:
        return self._typist.screen

    async def ends(self) -> int:
        return await asyncio.wait_for(self._life.end(), 60)


@pytest.fixture
def settings(slack: SlackSandbox, discord: DiscordSandbox) -> dict[str, str]:
    return {"SLACK_API_URL": slack.api_url, "DISCORD_API_URL": discord.api_url, "TERM": "xterm", "COLUMNS": "80"}


@asynccontextmanager
async def run_in_terminal(
    fork_server: ForkServer, folder: Path, command: str, settings: Mapping[str, str]
) -> AsyncIterator[TerminalSession]:
    with Typist() as typist:
        life = await fork_server.start_process(
            command=command, folder=str(folder), settings=dict(settings), terminal=typist.device
        )
        try:
            yield TerminalSession(typist, life)
        finally:
            await life.aclose()


@pytest.mark.parametrize("name", setup.SCENES)
async def test_the_docs_show_the_output_of_init(name: str, fork_server: ForkServer, tmp_path: Path) -> None:
    async def start(typist: Typist, command: str, settings: Mapping[str, str]) -> Callable[[], Awaitable[int]]:
        order = {"folder": str(tmp_path), "settings": {"TERM": "xterm", **settings}, "terminal": typist.device}
        life = await fork_server.start_process(command=command, **order)
        return life.end

    said = await setup.SCENES[name](start)
    shown = setup.PLACE.search(setup.page(name).read_text())
    assert shown is not None
    assert said == shown["said"], "`make docs-pictures` writes it anew"


async def test_init_reports_mistakes_and_resumes_after_an_interruption(
    fork_server: ForkServer, slack: SlackSandbox, discord: DiscordSandbox, settings: dict[str, str], tmp_path: Path
) -> None:
    file = tmp_path / ".env"
    file.write_text(EXISTING_SETTINGS)
    file.chmod(0o644)

    # current values are masked; a wrong answer is explained and not saved
    slack.scopes.discard("im:history")
    async with run_in_terminal(fork_server, tmp_path, "init", settings) as seat:
        await seat.answers("[both]: ", "everywhere")
        await seat.sees("Write slack, discord, both, or Enter.")
        await seat.answers("[both]: ", "slack")
        await seat.answers("SLACK_BOT_TOKEN [xoxb-…year]: ", "")
        await seat.sees("FAIL SLACK_BOT_TOKEN: Slack says invalid_auth.")
        await seat.answers("goes on without: ", "xoxb-\x01é")
        await seat.sees("it contains a space or another invalid character")
        await seat.answers("goes on without: ", f"SLACK_BOT_TOKEN='{slack.bot_token}'")
        await seat.sees("the app lacks the scopes im:history")
        assert file.read_text() == EXISTING_SETTINGS
        slack.scopes.add("im:history")
        await seat.answers("goes on without: ", "")  # the same after the correction
        await seat.sees("ok   Slack: parley in Sandbox")
        await seat.sees("SLACK_APP_TOKEN: ")
        seat.presses(CTRL_C)
        await seat.sees("Stopped. The answers so far are saved")
        assert await seat.ends() == 130
        assert slack.bot_token not in seat.screen
    kept = EXISTING_SETTINGS.replace('"xoxb-the-one-of-last-year"', slack.bot_token)
    assert file.read_text() == kept
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert os.listdir(tmp_path) == [".env"]

    # again: Enter keeps a good value, and an unreachable service may be saved unchecked
    async with (
        ScriptedOpenAI(["ok"] * 9, models=["real"]) as model,
        run_in_terminal(fork_server, tmp_path, "init", settings) as seat,
    ):
        await seat.answers("[both]: ", "")
        await seat.answers(f"SLACK_BOT_TOKEN [xoxb-…{slack.bot_token[-4:]}]: ", "")
        slack.faults.fail("apps.connections.open", status=503)
        await seat.answers("SLACK_APP_TOKEN: ", slack.app_token)
        await seat.sees("cannot answer right now")
        await seat.answers("`keep` saves it unchecked: ", "keep")
        await seat.sees("ok   SLACK_APP_TOKEN is saved")
        await seat.answers("DISCORD_BOT_TOKEN: ", "MTI.not.theone")
        await seat.sees("FAIL DISCORD_BOT_TOKEN: Discord does not take it.")
        await seat.answers("goes on without: ", discord.bot_token)
        await seat.sees(f"client_id={discord.bot_id}&scope=bot")
        await seat.answers("MODEL [gemini-3.5-flash]: ", "martian/m1")
        await seat.sees("there is no such provider")
        await seat.answers("goes on without: ", "openai/invented")
        await seat.answers("OPENAI_BASE_URL: ", model.base_url)
        await seat.answers("OPENAI_API_KEY: ", "")
        await seat.sees("FAIL MODEL=openai/invented: openai has no model 'invented'")
        await seat.answers("MODEL [openai/invented]: ", "openai/real")
        await seat.answers(f"OPENAI_BASE_URL [{model.base_url}]: ", "")
        await seat.answers("OPENAI_API_KEY: ", "sk-or-what-the-server-takes")
        await seat.sees("ok   model: openai/real answers")
        await seat.answers("DATABASE_URL: ", "mysql://u:p@h/d")
        await seat.sees("DATABASE_URL: it must be a postgresql:// or sqlite:/// URL")
        await seat.answers("Enter goes on without: ", "")
        await seat.sees("ok   Slack: parley in Sandbox")
        await seat.sees("ok   Discord: parley in Sandbox")
        await seat.sees("Next: run `make run`")
        assert await seat.ends() == 0
        typed = (slack.app_token, discord.bot_token, "sk-or-what", "u:p@h")
        assert not any(secret in seat.screen for secret in typed)
    kept = kept.replace("Information\n", f"Information\nSLACK_APP_TOKEN={slack.app_token}\n")
    kept += f"DISCORD_BOT_TOKEN={discord.bot_token}\nMODEL=openai/real\nOPENAI_BASE_URL={model.base_url}\n"
    assert file.read_text() == f"{kept}OPENAI_API_KEY=sk-or-what-the-server-takes\n"


async def test_init_checks_environment_settings_without_a_question(
    fork_server: ForkServer, slack: SlackSandbox, settings: dict[str, str], tmp_path: Path
) -> None:
    said = {"SLACK_BOT_TOKEN": slack.bot_token, "SLACK_APP_TOKEN": "xapp-wrong", "AGENT": "brought"}
    slack.faults.delay("auth.test", 2.0)
    async with run_in_terminal(fork_server, tmp_path, "init --platform slack", {**settings, **said}) as seat:
        await seat.sees("SLACK_BOT_TOKEN is set in the environment")
        await seat.sees("asking Slack …")  # the check takes time
        await seat.sees("FAIL SLACK_APP_TOKEN: Slack says invalid_auth.")
        await seat.sees("Your own agent names its models")
        await seat.answers("DATABASE_URL: ", "")
        await seat.sees("Next: fix the lines that begin with FAIL")
        assert await seat.ends() == 1
        assert "asking Slack …" not in seat.screen
    assert not (tmp_path / ".env").exists()


async def test_init_asks_for_the_http_signing_secret_and_an_interrupt_saves_nothing(
    fork_server: ForkServer, slack: SlackSandbox, settings: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / ".env").write_text("SLACK_MODE=http\n")
    slack.faults.delay("auth.test", 30.0)
    async with run_in_terminal(fork_server, tmp_path, "init --platform slack", settings) as seat:
        await seat.sees("https://your-bot.example.com/slack/events")
        await seat.answers("SLACK_BOT_TOKEN: ", slack.bot_token)
        await seat.sees("asking Slack …")
        seat.presses(CTRL_C)
        await seat.sees("Stopped. The answers so far are saved")
        assert await seat.ends() == 130
    assert (tmp_path / ".env").read_text() == "SLACK_MODE=http\n"
    slack.faults.clear()
    async with run_in_terminal(fork_server, tmp_path, "init --platform slack", settings) as seat:
        await seat.answers("SLACK_BOT_TOKEN: ", slack.bot_token)
        await seat.answers("SLACK_SIGNING_SECRET: ", "")
        await seat.sees("FAIL SLACK_SIGNING_SECRET: the answer is empty")
        await seat.answers("goes on without: ", slack.signing_secret)
        await seat.sees("ok   SLACK_SIGNING_SECRET is saved")
        await seat.sees("MODEL [gemini-3.5-flash]: ")
        seat.presses(CTRL_D)
        assert await seat.ends() == 130
    written = f"SLACK_BOT_TOKEN={slack.bot_token}\nSLACK_SIGNING_SECRET={slack.signing_secret}\n"
    assert (tmp_path / ".env").read_text() == f"SLACK_MODE=http\n{written}"


async def test_init_without_a_writable_file_or_terminal_prints_one_line(
    fork_server: ForkServer, program: MakeProgram, slack: SlackSandbox, settings: dict[str, str], disk: Path
) -> None:
    code, said = await program(settings).run_command("init", typed="slack\n")
    assert (code, len(said.splitlines())) == (2, 1)
    assert "init needs a terminal" in said

    (disk / ".env").write_text(EXISTING_SETTINGS)
    with fill_disk(disk):
        async with run_in_terminal(fork_server, disk, "init --platform slack", settings) as seat:
            await seat.answers("SLACK_BOT_TOKEN [", slack.bot_token)
            await seat.sees(".env: it cannot be written (No space left on device); it is unchanged")
            assert await seat.ends() == 2
    assert (disk / ".env").read_text() == EXISTING_SETTINGS
    make_read_only(disk)
    async with run_in_terminal(fork_server, disk, "init", settings) as seat:
        await seat.sees("this folder is not writable: change to another one")
        assert await seat.ends() == 2
    assert os.listdir(disk) == [".env"]
