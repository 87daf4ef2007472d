"""Known bots with pinned packages, as entries of `bots.toml`."""

import asyncio
import shutil
import sys
import tempfile
import tomllib
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from chatrig.conformance.platforms import PlatformName
from chatrig.testing.process import BotError

_FILE = Path(__file__).with_name("bots.toml")


@dataclass(frozen=True, slots=True)
class KnownBot:
    """Bot that anybody can install from PyPI or npm.

    Attributes:
        name: the name with the version, for reports.
        packages: requirements of PyPI, or packages of npm for a launcher in JavaScript, with their versions.
        launcher: the program that starts the bot.
        env: variables of the bot: see `BotCommand`.
        language: `python` or `node`.
        is_echo: whether the bot repeats the words of a question.
        claims_follow_up: whether its documentation says that it answers in threads without a mention.
    """

    name: str
    platforms: Sequence[PlatformName]
    packages: Sequence[str]
    launcher: str
    env: Mapping[str, str] = field(default_factory=dict)
    language: str = "python"
    is_echo: bool = False
    claims_follow_up: bool = False


def load_bots() -> dict[str, KnownBot]:
    entries = tomllib.loads(_FILE.read_text())
    return {name: KnownBot(**entry) for name, entry in entries.items()}


@asynccontextmanager
async def install_bot(bot: KnownBot) -> AsyncIterator[Sequence[str]]:
    """Install a bot in a temporary folder that all users can read, and yield its command.

    Packages from npm are installed without their scripts.

    Raises:
        BotError: uv or npm is missing, or cannot install the packages.
    """
    folder = Path(tempfile.mkdtemp(prefix="chatrig-bot-"))
    try:
        await asyncio.to_thread(folder.chmod, 0o755)
        if bot.language == "node":
            launcher = folder / "bot.mjs"
            options = ("--ignore-scripts", "--no-audit", "--no-fund", "--prefix", folder)
            await _run("npm", "install", *options, *bot.packages)
            command = ["node", str(launcher)]
        else:
            launcher = folder / "bot.py"
            python = folder / "env/bin/python"
            await _run("uv", "venv", "--quiet", "--python", _find_python(), folder / "env")
            await _run("uv", "pip", "install", "--quiet", "--python", python, *bot.packages)
            command = [str(python), str(launcher)]
        launcher.write_text(bot.launcher)
        yield command
    finally:
        await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)


def _find_python() -> str:
    """Return the interpreter of the system, which every user can run, or else this one's version."""
    system = Path("/usr/bin/python3")
    return str(system) if system.exists() else f"{sys.version_info.major}.{sys.version_info.minor}"


async def _run(program: str, *arguments: str | Path) -> None:
    try:
        process = await asyncio.create_subprocess_exec(
            program, *map(str, arguments), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
    except OSError as error:
        raise BotError(f"the bot cannot be installed: {program}: {error.strerror}") from error
    output, _ = await process.communicate()
    if process.returncode:
        last_line = output.decode(errors="replace").strip().splitlines()[-1:]
        raise BotError(f"the bot cannot be installed: {program}: {' '.join(last_line)}")
