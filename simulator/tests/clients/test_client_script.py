"""Client scripts that fail or end early, and machines without Node.js."""

import sys
from pathlib import Path

import pytest

from tests.clients import client_script
from tests.clients.client_script import find_command, run_script


@pytest.fixture
def no_node(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))


@pytest.fixture
def old_node(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    node = tmp_path / "node"
    node.write_text("#!/bin/sh\necho v18.20.4\n")
    node.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))


@pytest.mark.usefixtures("no_node")
def test_a_machine_without_node_skips_its_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match=r"Node\.js is not installed"):
        find_command("bolt.mjs")
    assert find_command("hikari_bot.py") == [sys.executable, "hikari_bot.py"]


@pytest.mark.usefixtures("no_node")
def test_ci_fails_without_node(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "1")
    with pytest.raises(pytest.fail.Exception, match=r"Node\.js is not installed"):
        find_command("bolt.mjs")


@pytest.mark.usefixtures("old_node")
def test_an_old_node_skips_its_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match=r"Node\.js is v18.20.4: install Node.js 20"):
        find_command("discordjs.mjs")


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("""print('{"step": "a", "error": "no such channel"}')""", "a: no such channel"),
        ("""import sys; sys.exit("a broken script")""", "a broken script"),
        ("""print("no JSON")""", "a: the script has ended(.|\n)*no JSON"),
        ("import time; time.sleep(60)", "a: no line within 1 s"),
    ],
)
async def test_a_failed_step_fails_its_row(
    script: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_script, "STEP_TIMEOUT_SECONDS", 1.0)
    async with run_script([sys.executable, "-c", script], {}, tmp_path / "log") as client:
        with pytest.raises(pytest.fail.Exception, match=reason):
            await client.read_step("a")
