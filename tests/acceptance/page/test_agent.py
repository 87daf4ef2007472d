"""Simulator page for the developer of an agent: errors, reloads, the local model."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from channels.commands.handlers import COMMAND_DESCRIPTIONS
from core.errors import StoreError
from tests.acceptance.page.conftest import ROOT, run_simulator
from tests.processes.procfile import create_clean_environment

AGENT = """
from google.adk.agents import LlmAgent

root_agent = LlmAgent(name="mine", instruction="Say hello.")
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in os.environ.keys() - create_clean_environment().keys():
        monkeypatch.delenv(name)
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "agent.py").write_text(f"{AGENT}\nraise KeyError")
    for name, value in {"PYTHONPATH": str(ROOT), "DATA_DIR": str(tmp_path), "AGENT": str(folder)}.items():
        monkeypatch.setenv(name, value)
    return folder


@pytest.mark.usefixtures("python")
async def test_an_agents_error_is_shown_until_it_is_fixed(folder: Path) -> None:
    async with (
        run_simulator(str(folder)) as (address, lines),
        aiohttp.ClientSession() as session,
        session.ws_connect(f"{address}socket", headers={"Origin": address.removesuffix("/")}) as socket,
    ):
        bot: dict[str, Any] = {}

        async def wait_until(is_so: Callable[[], bool]) -> None:
            async with asyncio.timeout(60):
                while not is_so():
                    values = (await socket.receive_json()).get("set", {})
                    bot.update(values.get("bot", {}) | values.get("parley", {}))

        await wait_until(lambda: "agent.py, line" in bot.get("exit_reason", ""))
        assert bot["state"] == "ended"
        assert bot["exit_reason"] == f"AGENT={folder}: agent.py, line 6, raises KeyError"
        assert "healthz" in bot["log"]
        (folder / "agent.py").write_text(AGENT)
        await wait_until(lambda: bot["state"] == "running")
        assert f"The bot exited: AGENT={folder}: agent.py, line 6, raises KeyError" in "\n".join(lines)
        assert bot["lacks_key"]
        assert bot["agent_models"] == {"names": ["local/smollm2-135m"], "uses_default": True, "replaced": []}
        assert any("agent.py changed" in line for line in lines)


@pytest.mark.usefixtures("python")
async def test_the_local_model_replaces_one_without_an_api_key(folder: Path) -> None:
    (folder / "agent.py").write_text(AGENT.replace('name="mine"', 'name="mine", model="gemini-2.0-flash"'))
    async with (
        run_simulator(str(folder)) as (address, _),
        aiohttp.ClientSession() as session,
        session.ws_connect(f"{address}socket", headers={"Origin": address.removesuffix("/")}) as socket,
        asyncio.timeout(60),
    ):
        notices: list[str] = []
        while not any(line.startswith("gemini-2.0-flash has no API key: local/") for line in notices):
            notices = (await socket.receive_json()).get("set", {}).get("parley", {}).get("notices", notices)


@pytest.mark.usefixtures("python")
async def test_the_page_offers_the_commands_with_their_prefix(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMMAND_PREFIX", "parley-")
    (folder / "agent.py").write_text(AGENT)
    async with (
        run_simulator(str(folder)) as (address, _),
        aiohttp.ClientSession() as session,
        session.ws_connect(f"{address}socket", headers={"Origin": address.removesuffix("/")}) as socket,
        asyncio.timeout(90),
    ):
        view: dict[str, Any] = {}

        def list_commands(platform: str) -> set[str]:
            return {command["name"] for command in view.get(platform, {}).get("commands", ())}

        names = {f"parley-{name}" for name in COMMAND_DESCRIPTIONS}
        while list_commands("discord") != names | {"parley-ask"} or list_commands("slack") != names - {
            "parley-mute",
            "parley-listen",
        }:
            view.update((await socket.receive_json()).get("set", {}))


@pytest.mark.usefixtures("python")
async def test_each_simulator_has_a_new_database_and_its_own_data_dir(folder: Path) -> None:
    (folder / "agent.py").write_text(AGENT)
    database = folder.parent / "simulator.db"
    database.write_bytes(b"of the last start")
    async with run_simulator(str(folder)):
        assert not database.exists() or database.read_bytes() != b"of the last start"
        with pytest.raises(StoreError, match=r"is in use by process .*DATA_DIR") as refusal:
            async with run_simulator(str(folder)):
                pass
        assert str(refusal.value).startswith(f"{folder.parent / 'bot.log'} ")
