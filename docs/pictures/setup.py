"""Terminal sessions of `parley init` for the set-up pages."""

import asyncio
import os
import re
import sys
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path

from bot.simulator.command import BOT_NAME
from chatrig.discord import DiscordSimulator
from chatrig.models import ScriptedGemini
from chatrig.slack import SlackSimulator
from docs.pictures.stage import ROOT
from docs.pictures.typist import Typist

#: Function that starts a command of the bot at a terminal, with environment variables. It returns a function that waits
#: for the exit code.
Start = Callable[[Typist, str, Mapping[str, str]], Awaitable[Callable[[], Awaitable[int]]]]

#: Terminal session in a page.
TERMINAL_SESSION = re.compile(
    r"(?P<begin><!-- terminal -->\n```console\n\$ [^\n]*\n)(?P<text>.*?)(?P<end>^```$)", re.M | re.S
)

#: Patterns of values that change with each run or machine, and their replacements in the page.
VOLATILE_VALUES = {
    r"client_id=\d+": "client_id=...",
    r"^note tokens:.*?(?=\n\n)": "ok   tokens: counted exactly",
}


async def slack(start: Start) -> str:
    """Set up Slack with one wrong token; return the terminal session."""
    async with SlackSimulator(bot_name=BOT_NAME) as simulator, ScriptedGemini(lambda _request: "ok") as model:
        with Typist() as typist:
            settings = {"SLACK_API_URL": simulator.api_url, "GOOGLE_BASE_URL": model.base_url}
            wait_for_exit = await start(typist, "init --platform slack", settings)
            await typist.answer_prompt("SLACK_BOT_TOKEN: ", simulator.app_token)
            await typist.answer_prompt("`skip` goes on without: ", simulator.bot_token)
            await typist.answer_prompt("SLACK_APP_TOKEN: ", simulator.app_token)
            return await _finish_setup(typist, wait_for_exit)


async def discord(start: Start) -> str:
    """Set up Discord with a missing intent; return the terminal session."""
    async with DiscordSimulator(bot_name=BOT_NAME) as simulator, ScriptedGemini(lambda _request: "ok") as model:
        with Typist() as typist:
            simulator.privileged_intents.discard("message_content")
            settings = {"DISCORD_API_URL": simulator.api_url, "GOOGLE_BASE_URL": model.base_url}
            wait_for_exit = await start(typist, "init --platform discord", settings)
            await typist.answer_prompt("DISCORD_BOT_TOKEN: ", simulator.bot_token)
            await typist.wait_for_text("Enter checks again")
            simulator.privileged_intents.add("message_content")
            await typist.answer_prompt("`skip` goes on: ", "")
            return await _finish_setup(typist, wait_for_exit)


#: Functions that play a set-up, by the name of their page.
PLAYERS = {"set-up-slack": slack, "set-up-discord": discord}


def get_page_path(name: str) -> Path:
    return ROOT / "docs" / "howto" / f"{name}.md"


async def main() -> None:
    """Play all set-ups, and write their terminal sessions into the pages."""
    for name, play in PLAYERS.items():
        with tempfile.TemporaryDirectory() as folder:

            async def start(
                typist: Typist, command: str, settings: Mapping[str, str], at: str = folder
            ) -> Callable[[], Awaitable[int]]:
                process = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-m", "bot", *command.split()),
                    cwd=at,
                    env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "TERM": "xterm", **settings},
                    stdin=typist.program_fd,
                    stdout=typist.program_fd,
                    stderr=typist.program_fd,
                    start_new_session=True,
                )
                return process.wait

            output = await play(start)
        page = get_page_path(name)
        page.write_text(TERMINAL_SESSION.sub(partial(_replace_session, output), page.read_text()))


def _replace_session(text: str, found: re.Match[str]) -> str:
    """Return the found part of the page with another terminal session."""
    return f"{found['begin']}{text}{found['end']}"


async def _finish_setup(typist: Typist, wait_for_exit: Callable[[], Awaitable[int]]) -> str:
    await typist.answer_prompt("MODEL [gemini-3.5-flash]: ", "")
    await typist.answer_prompt("GOOGLE_API_KEY: ", "AIzaSyD-of-somebody-who-reads-a-page")
    await typist.answer_prompt("DATABASE_URL: ", "")
    await typist.wait_for_text("parley run`.\n")
    await wait_for_exit()
    text = "\n".join(line.rstrip() for line in typist.screen.splitlines()) + "\n"
    for pattern, replacement in VOLATILE_VALUES.items():
        text = re.sub(pattern, replacement, text, flags=re.MULTILINE | re.DOTALL)
    return text


if __name__ == "__main__":
    asyncio.run(main())
