"""Unmodified bots of five libraries, each in a process of its own."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

SAMPLES = Path(__file__).parent / "samples"
NODE_FOLDER = Path(__file__).parents[1] / "clients"  # with the packages of node

StartBot = Callable[..., Any]


def start_sample(start_bot: StartBot, name: str, tmp_path: Path) -> Any:
    """Start a sample bot; a script of node gets the packages of `clients` beside it."""
    if name.endswith(".py"):
        pytest.importorskip("hikari" if "hikari" in name else "discord")
        return start_bot("python", str(SAMPLES / name))
    if shutil.which("node") is None or not (NODE_FOLDER / "node_modules").exists():
        pytest.skip("node or its packages are not installed")
    shutil.copy(SAMPLES / name, tmp_path)
    (tmp_path / "node_modules").symlink_to(NODE_FOLDER / "node_modules")
    return start_bot("node", name, cwd=tmp_path)


@pytest.mark.parametrize("name", ["bolt_bot.py", "async_bolt_bot.py", "bolt_bot.mjs"])
def test_an_unmodified_slack_bot_answers(slack_simulator: Any, start_bot: StartBot, name: str, tmp_path: Path) -> None:
    bot = start_sample(start_bot, name, tmp_path)
    question = slack_simulator.mention_bot("ada", "general", "hi")
    assert slack_simulator.wait_for_reply(question).text == "hello @ada"
    bot.kill()
    assert bot.exit_code == -9


@pytest.mark.parametrize("name", ["discord_bot.py", "hikari_bot.py", "discordjs_bot.mjs"])
def test_an_unmodified_discord_bot_answers(
    discord_simulator: Any, start_bot: StartBot, name: str, tmp_path: Path
) -> None:
    bot = start_sample(start_bot, name, tmp_path)
    question = discord_simulator.mention_bot("ada", "general", "hi")
    assert discord_simulator.wait_for_reply(question).text == "hello @Ada Lovelace"
    bot.restart()
    question = discord_simulator.mention_bot("grace", "general", "hi again")
    assert discord_simulator.wait_for_reply(question).text == "hello @Grace Hopper"
