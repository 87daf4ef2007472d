"""Contenders of the start benchmark: their commands and settings."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.replies.contenders.nanobot import NAME as NANOBOT
from benchmarks.replies.contenders.nanobot import PACKAGES, PROGRAM, UV, build_config

ROOT = str(Path(__file__).parents[2])

#: Name of the contender that the others are compared with.
MINIMAL_BOT = "minimal bot"

_MINIMAL_BOT_FILE = Path(__file__).with_name("minimal_bot.py")

#: Installation folder of nanobot.
_NANOBOT_FOLDER = Path(".parley/bench-start/nanobot")

#: Folder of the token vocabulary, which Parley and the minimal bot use if it exists.
_VOCABULARY_FOLDER = Path(".parley/tiktoken").resolve()


@dataclass(frozen=True, slots=True)
class StartContender:
    """Program whose start is measured.

    Attributes:
        platforms: "slack", "discord" and "both", if the program supports them.
        command: prepares a start and returns the command line, from the platform, the run's folder and Parley's
            settings. It may install the program or migrate a database. Call it once per folder.
        ready: text in the output that reports readiness; "" if a connection does.
        environment: returns more environment variables, from the run's folder.
    """

    name: str
    platforms: Sequence[str]
    command: Callable[[str, Path, Mapping[str, str]], list[str]]
    ready: str = ""
    environment: Callable[[Path], Mapping[str, str]] = lambda folder: {}


def _prepare_minimal_bot(platform: str, _folder: Path, _settings: Mapping[str, str]) -> list[str]:
    return [sys.executable, str(_MINIMAL_BOT_FILE), platform]


def _vocabulary_environment(_folder: Path) -> Mapping[str, str]:
    return {"TIKTOKEN_CACHE_DIR": str(_VOCABULARY_FOLDER)} if _VOCABULARY_FOLDER.exists() else {}


def _prepare_parley(_platform: str, folder: Path, settings: Mapping[str, str]) -> list[str]:
    """Return Parley's command line, after migrating its database in `folder`.

    A migrated database is the state at each start but the first.
    """
    if _VOCABULARY_FOLDER.exists():
        (folder / ".parley").mkdir()
        (folder / ".parley" / "tiktoken").symlink_to(_VOCABULARY_FOLDER)
    environment = {**os.environ, "PYTHONPATH": ROOT, **settings}
    migrate = [sys.executable, "-m", "bot", "migrate"]
    subprocess.run(migrate, cwd=folder, env=environment, check=True, capture_output=True)
    return [sys.executable, "-m", "bot", "run"]


def _prepare_nanobot(_platform: str, folder: Path, settings: Mapping[str, str]) -> list[str]:
    python = _NANOBOT_FOLDER / "bin" / "python"
    if not python.exists():
        subprocess.run([UV, "venv", "--quiet", "--python", "3.11", str(_NANOBOT_FOLDER)], check=True)
        subprocess.run([UV, "pip", "install", "--quiet", "--python", str(python), *PACKAGES], check=True)
    file = folder / "config.json"
    file.write_text(json.dumps(build_config(str(folder), settings["OPENAI_BASE_URL"], settings["DISCORD_BOT_TOKEN"])))
    addresses = [settings["DISCORD_API_URL"], settings["DISCORD_GATEWAY_URL"], str(folder)]
    return [str(python.absolute()), "-c", PROGRAM, *addresses, "gateway", "--config", str(file)]


CONTENDERS = (
    StartContender(MINIMAL_BOT, ("slack", "discord", "both"), _prepare_minimal_bot, "ready", _vocabulary_environment),
    StartContender("Parley", ("slack", "discord", "both"), _prepare_parley, "bot.app: ready"),
    StartContender(
        "google-adk's SlackRunner",
        ("slack",),
        _prepare_minimal_bot,
        "ready",
        lambda folder: {**_vocabulary_environment(folder), "SLACK_RUNNER": "1"},
    ),
    StartContender(NANOBOT, ("discord",), _prepare_nanobot, "bot connected as user"),
)
