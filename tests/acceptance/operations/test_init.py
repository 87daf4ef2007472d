"""Setup command `parley init` in a pseudo-terminal."""

import asyncio
import os
import stat
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from chatrig.discord import DiscordSimulator
from chatrig.models import ScriptedOpenAI
from chatrig.slack import SlackSimulator
from docs.pictures import setup
from docs.pictures.typist import Typist
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
    """Pseudo-terminal with a running program, and a typist for its prompts."""

    def __init__(self, typist: Typist, process: ForkedProcess) -> None:
        self.wait_for_text, self.answer_prompt, self.press_keys = (
            typist.wait_for_text,
            typist.answer_prompt,
            typist.press_keys,
        )
        self._typist, self._process = typist, process

    @property
    def screen(self) -> str:
        return self._typist.screen

    async def interrupt(self, text: str) -> None:
        """Press Ctrl-C until the program shows a text: readline loses one that comes just before it waits for a key."""
        for _ in range(10):
            self.press_keys(CTRL_C)
            with suppress(TimeoutError):
                return await self.wait_for_text(text, within=3)
        raise TimeoutError(f"Ctrl-C has no effect: {self.screen}")

    async def wait_for_exit(self) -> int:
        return await asyncio.wait_for(self._process.wait(), 60)


@pytest.fixture
def settings(slack: SlackSimulator, discord: DiscordSimulator) -> dict[str, str]:
    return {"SLACK_API_URL": slack.api_url, "DISCORD_API_URL": discord.api_url, "TERM": "xterm", "COLUMNS": "80"}


@asynccontextmanager
async def run_in_terminal(
    fork_server: ForkServer, folder: Path, command: str, settings: Mapping[str, str]
) -> AsyncIterator[TerminalSession]:
    with Typist() as typist:
        process = await fork_server.start_process(
            command=command, folder=str(folder), settings=dict(settings), terminal=typist.device
        )
        try:
            yield TerminalSession(typist, process)
        finally:
            await process.aclose()


@pytest.mark.parametrize("name", setup.PLAYERS)
async def test_the_docs_show_the_output_of_init(name: str, fork_server: ForkServer, tmp_path: Path) -> None:
    async def start(typist: Typist, command: str, settings: Mapping[str, str]) -> Callable[[], Awaitable[int]]:
        request = {"folder": str(tmp_path), "settings": {"TERM": "xterm", **settings}, "terminal": typist.device}
        process = await fork_server.start_process(command=command, **request)
        return process.wait

    output = await setup.PLAYERS[name](start)
    example = setup.TERMINAL_SESSION.search(setup.get_page_path(name).read_text())
    assert example is not None
    assert output == example["text"], "`make docs-pictures` updates it"


async def test_init_reports_mistakes_and_resumes_after_an_interruption(
    fork_server: ForkServer, slack: SlackSimulator, discord: DiscordSimulator, settings: dict[str, str], tmp_path: Path
) -> None:
    file = tmp_path / ".env"
    file.write_text(EXISTING_SETTINGS)
    file.chmod(0o644)

    async with run_in_terminal(fork_server, tmp_path, "init", settings) as terminal:
        await terminal.wait_for_text("[both]: ")
        await terminal.interrupt("Stopped. Nothing is saved; run `parley init` to continue.")
        assert await terminal.wait_for_exit() == 130
    assert file.read_text() == EXISTING_SETTINGS

    # current values are masked; a wrong answer is explained and not saved
    slack.scopes.discard("im:history")
    async with run_in_terminal(fork_server, tmp_path, "init", settings) as terminal:
        await terminal.answer_prompt("[both]: ", "everywhere")
        await terminal.wait_for_text("Write slack, discord, both, or Enter.")
        await terminal.answer_prompt("[both]: ", "slack")
        await terminal.answer_prompt("SLACK_BOT_TOKEN [xoxb-…year]: ", "")
        await terminal.wait_for_text("FAIL SLACK_BOT_TOKEN: Slack says invalid_auth.")
        await terminal.answer_prompt("goes on without: ", "xoxb-\x01é")
        await terminal.wait_for_text("it contains a space or another invalid character")
        await terminal.answer_prompt("goes on without: ", f"SLACK_BOT_TOKEN='{slack.bot_token}'")
        await terminal.wait_for_text("the app lacks the scopes im:history")
        assert file.read_text() == EXISTING_SETTINGS
        slack.scopes.add("im:history")
        await terminal.answer_prompt("goes on without: ", "")  # the same after the correction
        await terminal.wait_for_text("ok   Slack: parley in Simulator")
        await terminal.wait_for_text("SLACK_APP_TOKEN: ")
        await terminal.interrupt("Stopped. The answers so far are saved")
        assert await terminal.wait_for_exit() == 130
        assert slack.bot_token not in terminal.screen
    expected = EXISTING_SETTINGS.replace('"xoxb-the-one-of-last-year"', slack.bot_token)
    assert file.read_text() == expected
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert os.listdir(tmp_path) == [".env"]

    # a second run: Enter keeps a value; an unreachable service can be saved unchecked
    async with (
        ScriptedOpenAI(["ok"] * 9, models=["real"]) as model,
        run_in_terminal(fork_server, tmp_path, "init", settings) as terminal,
    ):
        await terminal.answer_prompt("[both]: ", "")
        await terminal.answer_prompt(f"SLACK_BOT_TOKEN [xoxb-…{slack.bot_token[-4:]}]: ", "")
        slack.faults.fail("apps.connections.open", status=503)
        await terminal.answer_prompt("SLACK_APP_TOKEN: ", slack.app_token)
        await terminal.wait_for_text("cannot answer right now")
        await terminal.answer_prompt("`keep` saves it unchecked: ", "keep")
        await terminal.wait_for_text("ok   SLACK_APP_TOKEN is saved")
        await terminal.answer_prompt("DISCORD_BOT_TOKEN: ", "MTI.not.theone")
        await terminal.wait_for_text("FAIL DISCORD_BOT_TOKEN: Discord rejects it.")
        await terminal.answer_prompt("goes on without: ", discord.bot_token)
        await terminal.wait_for_text(f"client_id={discord.bot_id}&scope=bot")
        await terminal.answer_prompt("MODEL [gemini-3.5-flash]: ", "martian/m1")
        await terminal.wait_for_text("there is no such provider")
        await terminal.answer_prompt("goes on without: ", "openai/invented")
        await terminal.answer_prompt("OPENAI_BASE_URL: ", model.base_url)
        await terminal.answer_prompt("OPENAI_API_KEY: ", "")
        await terminal.wait_for_text("FAIL MODEL=openai/invented: openai has no model 'invented'")
        await terminal.answer_prompt("MODEL [openai/invented]: ", "openai/real")
        await terminal.answer_prompt(f"OPENAI_BASE_URL [{model.base_url}]: ", "")
        await terminal.answer_prompt("OPENAI_API_KEY: ", "sk-or-what-the-server-takes")
        await terminal.wait_for_text("ok   model: openai/real answers")
        await terminal.answer_prompt("DATABASE_URL: ", "mysql://u:p@h/d")
        await terminal.wait_for_text("DATABASE_URL: it must be a postgresql:// or sqlite:/// URL")
        await terminal.answer_prompt("Enter goes on without: ", "")
        await terminal.wait_for_text("ok   Slack: parley in Simulator")
        await terminal.wait_for_text("ok   Discord: parley in Simulator")
        await terminal.wait_for_text("Next: run `make run`")
        assert await terminal.wait_for_exit() == 0
        typed = (slack.app_token, discord.bot_token, "sk-or-what", "u:p@h")
        assert not any(secret in terminal.screen for secret in typed)
    expected = expected.replace("Information\n", f"Information\nSLACK_APP_TOKEN={slack.app_token}\n")
    expected += f"DISCORD_BOT_TOKEN={discord.bot_token}\nMODEL=openai/real\nOPENAI_BASE_URL={model.base_url}\n"
    assert file.read_text() == f"{expected}OPENAI_API_KEY=sk-or-what-the-server-takes\n"


async def test_init_checks_environment_settings_without_a_question(
    fork_server: ForkServer, slack: SlackSimulator, settings: dict[str, str], tmp_path: Path
) -> None:
    values = {"SLACK_BOT_TOKEN": slack.bot_token, "SLACK_APP_TOKEN": "xapp-wrong", "AGENT": "brought"}
    slack.faults.delay("auth.test", 2.0)
    async with run_in_terminal(fork_server, tmp_path, "init --platform slack", {**settings, **values}) as terminal:
        await terminal.wait_for_text("SLACK_BOT_TOKEN is set in the environment")
        await terminal.wait_for_text("asking Slack …")  # the check takes time
        await terminal.wait_for_text("FAIL SLACK_APP_TOKEN: Slack says invalid_auth.")
        await terminal.wait_for_text("Your own agent names its models")
        await terminal.answer_prompt("DATABASE_URL: ", "")
        await terminal.wait_for_text("Next: fix the lines that begin with FAIL")
        assert await terminal.wait_for_exit() == 1
        assert "asking Slack …" not in terminal.screen
    assert not (tmp_path / ".env").exists()


async def test_init_asks_for_the_http_signing_secret_and_an_interrupt_saves_nothing(
    fork_server: ForkServer, slack: SlackSimulator, settings: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / ".env").write_text("SLACK_MODE=http\n")
    slack.faults.delay("auth.test", 30.0)
    async with run_in_terminal(fork_server, tmp_path, "init --platform slack", settings) as terminal:
        await terminal.wait_for_text("https://your-bot.example.com/slack/events")
        await terminal.answer_prompt("SLACK_BOT_TOKEN: ", slack.bot_token)
        await terminal.wait_for_text("asking Slack …")
        await terminal.interrupt("Stopped. Nothing is saved; run `parley init`")
        assert await terminal.wait_for_exit() == 130
    assert (tmp_path / ".env").read_text() == "SLACK_MODE=http\n"
    slack.faults.clear()
    async with run_in_terminal(fork_server, tmp_path, "init --platform slack", settings) as terminal:
        await terminal.answer_prompt("SLACK_BOT_TOKEN: ", slack.bot_token)
        await terminal.answer_prompt("SLACK_SIGNING_SECRET: ", "")
        await terminal.wait_for_text("FAIL SLACK_SIGNING_SECRET: the answer is empty")
        await terminal.answer_prompt("goes on without: ", slack.signing_secret)
        await terminal.wait_for_text("ok   SLACK_SIGNING_SECRET is saved")
        await terminal.wait_for_text("MODEL [gemini-3.5-flash]: ")
        terminal.press_keys(CTRL_D)
        await terminal.wait_for_text("Stopped. The answers so far are saved")
        assert await terminal.wait_for_exit() == 130
    written = f"SLACK_BOT_TOKEN={slack.bot_token}\nSLACK_SIGNING_SECRET={slack.signing_secret}\n"
    assert (tmp_path / ".env").read_text() == f"SLACK_MODE=http\n{written}"


async def test_the_introduction_and_the_link_of_slack_fit_on_one_screen(
    fork_server: ForkServer, settings: dict[str, str], tmp_path: Path
) -> None:
    async with run_in_terminal(fork_server, tmp_path, "init --platform slack", settings) as terminal:
        await terminal.wait_for_text("SLACK_BOT_TOKEN: ")
        lines = terminal.screen.splitlines()
    assert "https://api.slack.com/apps?new_app=1" in lines
    assert max(map(len, lines)) <= 80
    assert len(lines) <= 24


async def test_init_without_a_writable_file_or_terminal_prints_one_line(
    fork_server: ForkServer, program: MakeProgram, slack: SlackSimulator, settings: dict[str, str], disk: Path
) -> None:
    code, output = await program(settings).run_command("init", stdin="slack\n")
    assert (code, len(output.splitlines())) == (2, 1)
    assert "init needs a terminal" in output

    (disk / ".env").write_text(EXISTING_SETTINGS)
    with fill_disk(disk):
        async with run_in_terminal(fork_server, disk, "init --platform slack", settings) as terminal:
            await terminal.answer_prompt("SLACK_BOT_TOKEN [", slack.bot_token)
            await terminal.wait_for_text(".env: it cannot be written (No space left on device); it is unchanged")
            assert await terminal.wait_for_exit() == 2
    assert (disk / ".env").read_text() == EXISTING_SETTINGS
    make_read_only(disk)
    async with run_in_terminal(fork_server, disk, "init", settings) as terminal:
        await terminal.wait_for_text("this folder is not writable: change to another one")
        assert await terminal.wait_for_exit() == 2
    assert os.listdir(disk) == [".env"]


async def test_init_asks_for_the_clients_of_sign_ins_with_a_public_url(
    fork_server: ForkServer, slack: SlackSimulator, discord: DiscordSimulator, settings: dict[str, str], tmp_path: Path
) -> None:
    values = {"PUBLIC_URL": "https://bot.example.com", "SECRET_KEY": "0123456789abcdef" * 4, "AGENT": "brought"}
    values |= {"SLACK_BOT_TOKEN": slack.bot_token, "SLACK_APP_TOKEN": slack.app_token}
    values |= {"DISCORD_BOT_TOKEN": discord.bot_token}
    async with run_in_terminal(fork_server, tmp_path, "init", {**settings, **values}) as terminal:
        await terminal.answer_prompt("[both]: ", "")
        await terminal.answer_prompt("SLACK_SIGN_IN_CLIENT_ID: ", slack.oauth.client_id)
        await terminal.answer_prompt("SLACK_SIGN_IN_CLIENT_SECRET: ", "wrong-secret-of-the-app")
        await terminal.wait_for_text("FAIL sign-in on Slack: Slack says bad_client_secret.")
        await terminal.answer_prompt("saves it unchecked: ", slack.oauth.client_secret)
        await terminal.wait_for_text("ok   sign-in on Slack: the app must have the redirect URL")
        await terminal.answer_prompt("DISCORD_CLIENT_SECRET: ", discord.oauth.client_secret)
        await terminal.wait_for_text("ok   sign-in on Discord: the app must have the redirect URL")
        await terminal.answer_prompt("DATABASE_URL: ", "")
        await terminal.wait_for_text("Checking all settings")
        await terminal.wait_for_exit()
        assert not any(secret in terminal.screen for secret in (slack.oauth.client_secret, discord.oauth.client_secret))
    assert (tmp_path / ".env").read_text().splitlines()[1:] == [
        f"SLACK_SIGN_IN_CLIENT_ID={slack.oauth.client_id}",
        f"SLACK_SIGN_IN_CLIENT_SECRET={slack.oauth.client_secret}",
        f"DISCORD_CLIENT_SECRET={discord.oauth.client_secret}",
    ]
