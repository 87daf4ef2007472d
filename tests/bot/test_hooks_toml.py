"""File `hooks.toml`, its faults, and the port that senders need."""

import re
import socket
from pathlib import Path

import pytest

from bot.hooks_toml import read_hooks
from bot.server import MAX_REQUEST_BYTES
from bot.settings import load_settings
from bot.settings.monitoring import LOOPBACK
from bot.setup.check import run_checks
from bot.setup.probes import CheckVerdict
from core.errors import SettingsError
from core.turns.automation.hooks import MAX_BYTES, Delivery, read_payload
from core.turns.automation.signatures import SignatureScheme
from tests.core.turns.automation.payloads import ALERTMANAGER, GITHUB_ISSUE, encode

SECRET = "0123456789abcdef0123456789abcdef"

FULL_FILE = """
[github]
place = "slack:C0123456789"
agent = "clerk"
signature = "github"
secret = "GITHUB_HOOK_SECRET"
delivery_header = "X-GitHub-Delivery"
prompt = "Answer the issue {{ payload.issue.title }}."
fields = ["repository.full_name", "issue.number"]
max_bytes = 100000
per_minute = 5

[alerts-2]
place = "discord:123456789012345678"
signature = "bearer"
secret = "ALERTS_TOKEN"
delivery_field = "groupKey"
"""

AGENTS_FILE = 'default = "desk"\n[agents.desk]\n[agents.clerk]\n'

TABLE = '[news]\nplace = "slack:C0123456789"\nsignature = "github"\nsecret = "GITHUB_HOOK_SECRET"\n'


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Return a folder with settings of both platforms and secrets in the environment and in `.env`."""
    variables = {
        "SLACK_BOT_TOKEN": "xoxb-1",
        "SLACK_APP_TOKEN": "xapp-1",
        "DISCORD_BOT_TOKEN": "a.b.c",
        "MODEL": "local/none",
        "GITHUB_HOOK_SECRET": SECRET,
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    (tmp_path / ".env").write_text(f"ALERTS_TOKEN={SECRET[::-1]}\n")
    return tmp_path


def test_a_file_configures_each_hook(folder: Path) -> None:
    (folder / "hooks.toml").write_text(FULL_FILE)
    (folder / "agents.toml").write_text(AGENTS_FILE)
    hooks = read_hooks(load_settings())
    assert list(hooks) == ["github", "alerts-2"]
    github, alerts = hooks.values()
    assert github.signature is SignatureScheme.GITHUB
    assert github.secret.get_secret_value() == SECRET
    assert (github.place, github.agent, github.max_bytes, github.per_minute) == (
        "slack:C0123456789",
        "clerk",
        100_000,
        5,
    )
    assert github.fields == ("repository.full_name", "issue.number")
    assert alerts.secret.get_secret_value() == SECRET[::-1]
    assert (alerts.prompt, alerts.max_bytes, alerts.per_minute) == ("", MAX_BYTES, 30)


def test_a_hook_accepts_no_more_than_the_server() -> None:
    assert MAX_BYTES == MAX_REQUEST_BYTES


def test_hooks_need_a_port_on_all_interfaces(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = load_settings()
    assert read_hooks(settings) == {}
    assert (settings.needs_public_http, settings.listen_address) == (False, LOOPBACK)
    (folder / "hooks.toml").write_text(TABLE)
    settings = load_settings()
    assert (settings.needs_public_http, settings.listen_address) == (True, None)
    monkeypatch.setenv("HOOKS_FILE", "other.toml")
    with pytest.raises(SettingsError, match=r"HOOKS_FILE=other.toml: it cannot be read"):
        read_hooks(load_settings())


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("[news", "it is not TOML: end of document"),
        ("", "it is empty: write a table [NAME] for each hook, or remove the file"),
        ('secret = "hunter22hunter22"', "[secret] it must be a table"),
        (TABLE.replace("news", '"New s"'), "[New s] a name: it must have small letters"),
        (TABLE.replace("signature", "signatur"), "[news] signatur: there is no such key: did you mean signature?"),
        (TABLE.replace('"github"', '"gitlab"'), "[news] signature: it must be 'github', 'slack', 'stripe' or 'bearer'"),
        (TABLE.replace("GITHUB_HOOK_SECRET", "NO_SUCH"), "[news] secret: names the variable NO_SUCH, which is not set"),
        (TABLE.replace("GITHUB_HOOK_SECRET", "p-w-d"), "[news] secret: it must be the name of an environment variable"),
        (TABLE.replace("GITHUB_HOOK_SECRET", "SHORT"), "[news] secret: the secret in SHORT must have 16 characters"),
        (TABLE.replace("slack:C0123456789", "#general"), "[news] place: it must be slack: or discord: with the id"),
        (TABLE + 'prompt = "{{ alerts }}"', "[news] prompt: there is no variable alerts: write payload.alerts"),
        (TABLE + 'prompt = "{% for %}"', "[news] prompt: line 1: "),
        (TABLE + 'agent = "clerk"', "[news] agent=clerk: there is one agent only"),
        (TABLE + "max_bytes = 99999999", "[news] max_bytes: it must be at most 1048576 (it is 99999999)"),
        (TABLE + 'fields = "a"', "[news] fields: it must be a list"),
        (TABLE + 'fields = ["a."]', "[news] fields.0: 'a.' is no field: write names with dots"),
        ('[news]\nplace = "slack:C0123456789"\nsignature = "github"', "[news] secret: it is missing"),
    ],
)
def test_a_wrong_file_is_reported_with_hook_and_remedy(
    folder: Path, monkeypatch: pytest.MonkeyPatch, text: str, fault: str
) -> None:
    monkeypatch.setenv("SHORT", "abc")
    (folder / "hooks.toml").write_text(text)
    with pytest.raises(SettingsError) as error:
        read_hooks(load_settings())
    assert [line for line in error.value.faults if line.startswith(f"hooks.toml: {fault}")], error.value.faults
    assert not any(secret in str(error.value) for secret in ("hunter22", "p-w-d", "'abc'"))


def test_an_unknown_agent_is_an_error(folder: Path) -> None:
    (folder / "hooks.toml").write_text(TABLE + 'agent = "ghost"')
    (folder / "agents.toml").write_text(AGENTS_FILE)
    with pytest.raises(
        SettingsError, match=r"\[news\] agent=ghost: it is not in agents.toml: write one of desk, clerk"
    ):
        read_hooks(load_settings())


@pytest.mark.parametrize(
    ("unset", "place", "fault"),
    [
        ("DISCORD_BOT_TOKEN", "discord:123456789012345678", "Discord is not set up: set DISCORD_BOT_TOKEN"),
        ("SLACK_BOT_TOKEN", "slack:C0123456789", "Slack is not set up: set SLACK_BOT_TOKEN"),
    ],
)
def test_a_place_of_a_platform_without_token_is_an_error(
    folder: Path, monkeypatch: pytest.MonkeyPatch, unset: str, place: str, fault: str
) -> None:
    monkeypatch.delenv(unset)
    monkeypatch.delenv("SLACK_APP_TOKEN")
    monkeypatch.setenv("SLACK_MODE", "http")
    monkeypatch.setenv("SLACK_SIGNING_SECRET", "s")
    (folder / "hooks.toml").write_text(TABLE.replace("slack:C0123456789", place))
    with pytest.raises(SettingsError, match=f"place={place}: {fault}"):
        read_hooks(load_settings())


def test_several_workspaces_need_one_in_the_place(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLACK_BOT_TOKEN")
    for name, value in {"SLACK_CLIENT_ID": "1.2", "SLACK_CLIENT_SECRET": "s", "SECRET_KEY": SECRET}.items():
        monkeypatch.setenv(name, value)
    (folder / "hooks.toml").write_text(TABLE)
    with pytest.raises(SettingsError, match=r"several workspaces: write slack:T\.\.\.:C0123456789"):
        read_hooks(load_settings())
    (folder / "hooks.toml").write_text(TABLE.replace("slack:", "slack:T0123456789:"))
    assert list(read_hooks(load_settings())) == ["news"]


async def test_the_examples_of_the_docs_are_valid_hooks(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (Path(__file__).parents[2] / "docs/howto/begin-from-a-hook.md").read_text()
    text = "".join(re.findall(r"^```toml\n(.*?)^```", page, re.M | re.S))
    for variable in re.findall(r'^secret = "(\w+)"', text, re.M):
        monkeypatch.setenv(variable, SECRET)
    (folder / "hooks.toml").write_text(text)
    (folder / "agents.toml").write_text(AGENTS_FILE.replace("clerk", "oncall"))
    hooks = read_hooks(load_settings())
    assert list(hooks) == ["deploys", "issues", "alerts"]
    payloads = ({"version": "2.4.0"}, GITHUB_ISSUE, ALERTMANAGER)
    read = [
        await read_payload(name, hook, encode(payload))
        for (name, hook), payload in zip(hooks.items(), payloads, strict=True)
    ]
    assert [delivery.title for delivery in read if isinstance(delivery, Delivery)] == [
        "deploys (version: 2.4.0)",
        "issues (full_name: octo-org/octo-repo, number: 7)",
        "alerts (status: firing, alertname: HighLatency)",
    ]
    deploy, issue, alerts = (delivery.prompt for delivery in read if isinstance(delivery, Delivery))
    assert deploy in page
    assert "name similar ones: ⟦Spelling error in the README⟧\n\n⟦It says 'committ'." in issue
    assert "2 alerts are ⟦firing⟧." in alerts


async def list_lines(verdict: CheckVerdict) -> list[str]:
    return [
        found.line
        async for found in run_checks()
        if found.verdict is verdict and re.match("hook|requests ", found.line)
    ]


@pytest.fixture
def no_platform(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the platforms, whose services cannot be asked; the file's places name both."""
    monkeypatch.setattr("bot.hooks_toml._find_conflicts", lambda *_: iter(()))
    for name in ("SLACK_BOT_TOKEN", "SLACK_APP_TOKEN", "DISCORD_BOT_TOKEN"):
        monkeypatch.delenv(name)


@pytest.mark.usefixtures("no_platform")
async def test_check_lists_the_hooks_and_tries_the_port(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "hooks.toml").write_text(TABLE)
    with socket.create_server((LOOPBACK, 0)) as listener:
        monkeypatch.setenv("PORT", str(port := listener.getsockname()[1]))
        assert await list_lines(CheckVerdict.OK) == ["hook news: POST /hooks/news begins turns in slack:C0123456789"]
        assert await list_lines(CheckVerdict.NOTE) == []
        monkeypatch.setenv("LISTEN_HOST", LOOPBACK)
        (line,) = await list_lines(CheckVerdict.NOTE)
        assert line.startswith("requests from outside: LISTEN_HOST=127.0.0.1: only this machine, or a proxy on it")
    monkeypatch.delenv("LISTEN_HOST")
    monkeypatch.setenv("PUBLIC_URL", "https://bot.example/")  # tickets have the same port
    (line,) = await list_lines(CheckVerdict.NOTE)
    assert line.startswith(f"requests from outside: nothing listens at PORT={port} of this machine")


@pytest.mark.usefixtures("no_platform")
@pytest.mark.parametrize(
    ("name", "value", "line"),
    [
        ("PORT", "0", "requests from outside: PORT=0 takes any free port, of this machine only"),
        (
            "DYNO",
            "run.1",
            "requests from outside: only the process type `web` has a port: `heroku ps:scale web=1 worker=0`",
        ),
    ],
)
async def test_check_warns_of_a_port_that_senders_cannot_reach(
    folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str, line: str
) -> None:
    monkeypatch.setenv("DATABASE_URL", "sqlite:///parley.db")  # Heroku: it must be named
    monkeypatch.setenv(name, value)
    (folder / "hooks.toml").write_text(TABLE)
    (found,) = await list_lines(CheckVerdict.NOTE)
    assert found.startswith(line)


async def test_check_reports_each_fault_in_a_line(folder: Path) -> None:
    (folder / "hooks.toml").write_text(TABLE.replace("slack:", "") + TABLE.replace("news", "b").replace("secret", "s"))
    lines = await list_lines(CheckVerdict.FAIL)
    assert [line.partition(": ")[2].partition(":")[0] for line in lines] == ["[news] place", "[b] secret", "[b] s"]
