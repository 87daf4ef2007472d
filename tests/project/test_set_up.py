"""Setup pages of the docs, followed step by step."""

import json
import re
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import typer.main
from typer.core import TyperGroup

from bot import settings as configuration
from bot.cli.main import cli
from bot.settings import Settings
from bot.setup import SetupPlatform
from bot.setup import check as checking
from bot.setup.check import run_checks
from bot.setup.manifest_command import EXAMPLE_URL, format_manifest
from bot.simulator.command import BOT_NAME
from channels.slack.client.http_mode import EVENTS_PATH
from channels.slack.client.oauth import INSTALL_PATH, REDIRECT_PATH
from chatrig.discord import DiscordSimulator
from chatrig.models import ScriptedGemini
from chatrig.slack import SlackSimulator
from core.errors import SettingsError
from core.signin.browser import CALLBACK_PATH, IDENTITY_PATH

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
HOWTO = ROOT / "docs" / "howto"

_BLOCK = re.compile(r"^(?P<indent> *)```(?P<kind>sh|console)\n(?P<said>.*?)^(?P=indent)```", re.M | re.S)
_SETTING = re.compile(r"^(?P<name>[A-Z][A-Z_]+)=", re.M)

#: Environment variables that other programs read: OpenTelemetry's exporter settings.
OTHERS = {"OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_HEADERS"}


@pytest.fixture(autouse=True)
def _empty_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    for name in [*Settings.model_fields, "dyno"]:
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.fixture
async def slack() -> AsyncIterator[SlackSimulator]:
    """Yield a local Slack whose app has the manifest in `manifest.json`."""
    async with SlackSimulator(bot_name=BOT_NAME) as simulator:
        simulator.install(json.loads((ROOT / "manifest.json").read_text()))
        yield simulator


@pytest.fixture
async def discord() -> AsyncIterator[DiscordSimulator]:
    async with DiscordSimulator(bot_name=BOT_NAME) as simulator:
        yield simulator


def list_blocks(page: str, kind: str) -> list[str]:
    found = _BLOCK.finditer((HOWTO / page).read_text())
    return ["\n".join(line[len(b["indent"]) :] for line in b["said"].splitlines()) for b in found if b["kind"] == kind]


def write_env(block: str, **values: str) -> None:
    """Write a block of the docs into `.env`, with other values for these settings."""
    for name, value in values.items():
        block, count = re.subn(rf"(?m)^{name}=.*$", f"{name}={value}", block)
        assert count == 1, name
    Path(".env").write_text(block + "\n")


async def run_make_check(monkeypatch: pytest.MonkeyPatch, **addresses: str) -> list[str]:
    """Return the lines of `make check` with these environment variables.

    The token vocabulary counts as downloaded.
    """
    monkeypatch.setattr(checking, "has_vocabulary", lambda _: True)
    for name, address in addresses.items():
        monkeypatch.setenv(name, address)
    async with ScriptedGemini(["ok"]) as model:
        monkeypatch.setenv("GOOGLE_BASE_URL", model.base_url)
        return [str(finding) async for finding in run_checks()]


def list_documented_outputs(page: str) -> list[list[str]]:
    """Return the lines of each `make check` output in a page of the docs."""
    return [block.splitlines()[1:] for block in list_blocks(page, "console") if block.startswith("$ make check")]


def list_sign_in_lines(page: str) -> list[str]:
    """Return the documented lines of `parley check` about the sign-in."""
    (block,) = [block for block in list_blocks(page, "console") if block.startswith("$ parley check | grep sign-in")]
    return block.splitlines()[1:]


def make_sign_in_values(slack: SlackSimulator) -> dict[str, str]:
    return {
        "SECRET_KEY": "0123456789abcdef" * 4,
        "SLACK_SIGN_IN_CLIENT_ID": slack.oauth.client_id,
        "SLACK_SIGN_IN_CLIENT_SECRET": slack.oauth.client_secret,
    }


async def test_the_slack_setup_page_leads_to_the_documented_check_output(
    slack: SlackSimulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (HOWTO / "set-up-slack.md").read_text()
    _, tokens, by_http, sign_in = list_blocks("set-up-slack.md", "sh")
    values = {"SLACK_BOT_TOKEN": slack.bot_token, "SLACK_APP_TOKEN": slack.app_token, "GOOGLE_API_KEY": "key"}
    write_env(tokens, **values)
    (good,) = list_documented_outputs("set-up-slack.md")
    assert await run_make_check(monkeypatch, SLACK_API_URL=slack.api_url) == good

    write_env(tokens, **values | {"SLACK_BOT_TOKEN": "xoxb-wrong"})
    wrong = [line for line in await run_make_check(monkeypatch) if line.startswith("FAIL")]
    assert wrong
    assert set(wrong) <= set("\n".join(list_blocks("set-up-slack.md", "console")).splitlines())

    del values["SLACK_APP_TOKEN"]
    write_env(by_http, **values, SLACK_SIGNING_SECRET=slack.signing_secret)
    assert await run_make_check(monkeypatch) == good
    assert f"`{EXAMPLE_URL}{EVENTS_PATH}`" in page

    write_env(f"{tokens}\n{sign_in}", **values, **make_sign_in_values(slack), SLACK_APP_TOKEN=slack.app_token)
    checked = await run_make_check(monkeypatch)
    assert [line for line in checked if "sign-in" in line] == list_sign_in_lines("set-up-slack.md")
    manifest = json.loads(format_manifest(SetupPlatform.SLACK, configuration.load_settings()))
    assert manifest["oauth_config"]["redirect_urls"] == [f"{EXAMPLE_URL}{IDENTITY_PATH}"]
    assert manifest["oauth_config"]["scopes"]["user"] == ["openid"]
    assert {f"`{EXAMPLE_URL}{path}`" for path in (IDENTITY_PATH, CALLBACK_PATH)} <= set(
        re.findall(r"`https:\S+`", page)
    )


async def test_the_discord_setup_page_leads_to_the_documented_check_output(
    discord: DiscordSimulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, token, behaviour, sign_in, servers = list_blocks("set-up-discord.md", "sh")
    values = {"DISCORD_BOT_TOKEN": discord.bot_token, "GOOGLE_API_KEY": "key"}
    write_env(token, **values)
    lonely, good = list_documented_outputs("set-up-discord.md")
    assert await run_make_check(monkeypatch, DISCORD_API_URL=discord.api_url) == good
    discord.remove_bot()
    alone = await run_make_check(monkeypatch)
    assert [line.replace(discord.bot_id, "...") for line in alone[: len(lonely)]] == lonely

    first, _, rest = discord.bot_token.partition(".")
    write_env(token, **values | {"DISCORD_BOT_TOKEN": f"{first}.{rest[::-1]}"})
    wrong = [line for line in await run_make_check(monkeypatch) if line.startswith("FAIL")]
    assert wrong
    assert set(wrong) <= set("\n".join(list_blocks("set-up-discord.md", "console")).splitlines())

    client = {"DISCORD_CLIENT_SECRET": discord.oauth.client_secret, "SECRET_KEY": "0123456789abcdef" * 4}
    write_env(f"{token}\n{sign_in}", **values, **client)
    checked = await run_make_check(monkeypatch)
    assert [line for line in checked if "sign-in" in line] == list_sign_in_lines("set-up-discord.md")

    for more in (behaviour, servers):
        write_env(f"{token}\n{more}", **values)
        assert configuration.load_settings().discord is not None


def test_the_settings_of_the_several_workspaces_page_are_consistent() -> None:
    page = (HOWTO / "several-workspaces.md").read_text()
    (keys,) = list_blocks("several-workspaces.md", "sh")
    write_env(f"{keys}\nSLACK_APP_TOKEN=xapp-1\nGOOGLE_API_KEY=key", SECRET_KEY="0123456789abcdef" * 4)
    assert configuration.load_settings().token_encryption_key == "0123456789abcdef" * 4
    assert {f"{EXAMPLE_URL}{path}" for path in (INSTALL_PATH, REDIRECT_PATH)} <= set(re.findall(r"`(https:\S+)`", page))
    write_env(f"{keys}\nSLACK_APP_TOKEN=xapp-1\nSLACK_BOT_TOKEN=xoxb-1", SECRET_KEY="0123456789abcdef" * 4)
    with pytest.raises(SettingsError, match="unset one of them"):
        configuration.load_settings()


def test_each_setting_in_the_docs_exists() -> None:
    known = {name.upper() for name in Settings.model_fields} | OTHERS
    for page in PAGES:
        blocks = [block["said"] for block in _BLOCK.finditer(page.read_text()) if block["kind"] == "sh"]
        named = {found["name"] for block in blocks for found in _SETTING.finditer(re.sub(r"(?m)^ +", "", block))}
        assert named <= known, page.name


def test_each_command_in_the_docs_exists() -> None:
    group = typer.main.get_command(cli)
    assert isinstance(group, TyperGroup)
    for page in PAGES:
        assert set(_list_commands(page.read_text())) <= group.commands.keys(), page.name


def _list_commands(text: str) -> Iterator[str]:
    for found in re.finditer(r"(?:`|^ *(?:\$ )?)(?:\.venv/bin/)?(?:parley|python -m bot) ([a-z]+)", text, re.M):
        yield found[1]


def test_make_help_lists_the_targets_with_descriptions() -> None:
    listed = subprocess.check_output(["make", "--no-print-directory", "help"], cwd=ROOT, text=True)
    assert [line.split()[1] for line in listed.splitlines()][:3] == ["run", "tour", "help"]
