import asyncio
import socket
from pathlib import Path

import pytest
from aiohttp import web
from typer.testing import CliRunner

from bot import settings as configuration
from bot.cli import main
from bot.cli import process as bot_process
from bot.simulator import command as simulator
from bot.simulator import model_keys, process
from core.errors import SettingsError

LOCAL = configuration.LOCAL_MODEL


@pytest.mark.parametrize(
    ("key", "vendor", "address"),
    [
        ("GOOGLE_API_KEY", "gemini-", "GOOGLE_BASE_URL"),
        ("OPENAI_API_KEY", "openai/", "OPENAI_BASE_URL"),
        ("ANTHROPIC_API_KEY", "anthropic/", "ANTHROPIC_BASE_URL"),
    ],
)
def test_the_simulator_offers_models_of_each_vendor_with_a_key(
    monkeypatch: pytest.MonkeyPatch, key: str, vendor: str, address: str
) -> None:
    assert model_keys.list_models(configuration.load_settings()) == [LOCAL]
    monkeypatch.setenv(key, "a key")
    offered = model_keys.list_models(configuration.load_settings())
    assert LOCAL in offered
    assert len(offered) > 3
    assert all(name.startswith(vendor) and not name.endswith("*") for name in offered if name != LOCAL)
    monkeypatch.setenv(address, "http://127.0.0.1:1/v1")  # another server has models of its own
    assert set(model_keys.list_models(configuration.load_settings())) <= {configuration.DEFAULT_MODEL, LOCAL}


@pytest.mark.parametrize(("agent", "watched"), [("mine", "mine"), ("examples.clock", ""), ("", "")])
def test_run_watches_the_folder_of_an_agent(monkeypatch: pytest.MonkeyPatch, agent: str, watched: str) -> None:
    Path("mine").mkdir()
    monkeypatch.setenv("AGENT", agent)
    started: list[str] = []
    monkeypatch.setattr(
        bot_process, "run_until_stopped", lambda work, _settings, **_kwargs: started.append(work.keywords["agent"])
    )
    main.run()
    assert started == [watched]


def test_the_exit_reason_follows_the_last_log_entry() -> None:
    entries = [
        "2026-11-24 10:00:00,001 INFO channels.slack: looked up",
        "  more of it",
        "2026-11-24 10:00:01,002 INFO bot: x",
    ]
    assert process._extract_reason([*entries, "AGENT=mine: agent.py, line 2: syntax error"]) == (
        "AGENT=mine: agent.py, line 2: syntax error"
    )
    assert (
        process._extract_reason(["Traceback (most recent call last):", "  File x", "KeyError: 'y'"]) == "KeyError: 'y'"
    )
    assert process._extract_reason(entries) == ""


def test_the_tour_uses_no_setting_of_the_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    own = {"OPENAI_API_KEY": "sk-own", "AGENT_NAME": "mine", "Models": "openai/gpt-5", "TOOLS": "shop:refund"}
    for name, value in {**own, "DATA_DIR": "data", "HTTPS_PROXY": "http://127.0.0.1:1"}.items():
        monkeypatch.setenv(name, value)
    Path("data").mkdir()
    settings = configuration.load_settings()
    tour = simulator._create_tour_launch(settings, {"SLACK_BOT_TOKEN": "xoxb-local"}, "http://127.0.0.1:2/v1", "")
    assert own.keys() & tour.environment.keys() == set()
    assert tour.environment["OPENAI_BASE_URL"] == "http://127.0.0.1:2/v1"
    assert tour.environment["SLACK_BOT_TOKEN"] == "xoxb-local"
    assert tour.environment["HTTPS_PROXY"] == "http://127.0.0.1:1"  # a variable of another program
    assert tour.environment["DATA_DIR"] == str(Path("data").resolve())
    assert tour.folder is not None
    assert list(tour.folder.iterdir()) == []


def test_the_tour_has_the_prefix_of_the_commands() -> None:
    Path(".env").write_text("COMMAND_PREFIX=parley-\nDATA_DIR=data\n")
    Path("data").mkdir()
    launch = simulator._create_tour_launch(configuration.load_settings(), {}, "http://127.0.0.1:2/v1", "")
    assert launch.environment["COMMAND_PREFIX"] == "parley-"


def test_the_bot_has_the_port_after_the_page_if_it_is_free() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
        listener.listen()
        assert simulator._find_free_port(port - 1) not in (port, 0)
    assert simulator._find_free_port(port - 1) == port
    assert 0 < simulator._find_free_port(65_535) < 65_536


@pytest.mark.parametrize("port", ["-1", "65536", "99999"])
def test_an_invalid_port_of_the_page_is_named(port: str) -> None:
    result = CliRunner().invoke(main.cli, ["simulator", "--port", port])
    assert result.exit_code == 2
    assert "--port" in result.output


async def test_a_port_that_cannot_be_served_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    start = web.TCPSite.start

    async def refuse_port_81(site: web.TCPSite) -> None:
        if site.name.endswith(":81"):
            raise PermissionError(13, "Permission denied")
        await start(site)

    monkeypatch.setattr(web.TCPSite, "start", refuse_port_81)
    monkeypatch.setenv("DATA_DIR", str(tmp_path))
    with pytest.raises(SettingsError, match=r"^--port 81: the page cannot be served there \(Permission denied\)$"):
        await simulator.run_local_platforms(
            configuration.load_settings(), asyncio.Event(), terminal=False, port=81, echo=print
        )
