"""Docs, compared with the code."""

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import discord
import pytest
import typer.main
from typer.core import TyperGroup

from bot.cli.main import cli
from bot.cli.operations import RequestResult
from bot.monitoring.diagnostics import Diagnosis
from bot.settings import Settings
from bot.setup import SetupPlatform, probes
from bot.setup.manifest_command import format_manifest
from channels.commands.handlers import COMMAND_DESCRIPTIONS
from channels.discord.client import api as discord_api
from channels.discord.client.gateway import make_intents
from channels.discord.invite import PERMISSIONS, required_permissions
from channels.discord.replies import surface as discord_surface
from channels.markdown.dialect import MessageLimits
from channels.rate_limits.limiter import Window
from channels.slack import settings as slack_settings
from channels.slack.client import rate_limits as slack_tiers
from channels.slack.client.auth import OPTIONAL_SCOPES, SCOPES
from channels.slack.interactions.commands import SLASH_COMMANDS
from channels.slack.replies import streaming as slack_streams
from channels.slack.replies import surface as slack_surface
from chatrig.discord import DiscordSimulator
from chatrig.discord.api.faults import DiscordFaults
from chatrig.oauth import OAuthFaults, OAuthServer
from chatrig.slack import SlackSimulator
from chatrig.slack.api.faults import SlackFaults
from chatrig.slack.state.messages import SlackMessage
from core import errors
from core.agents.run_record import RunRecord, ToolCallRecord
from core.conversations.overview import (
    FailureGroup,
    Overview,
    PlatformOverview,
    QueueOverview,
    SessionOverview,
    WorkerOverview,
)
from core.conversations.turn_report import TurnReport
from core.errors import ParleyError
from core.messages.identity import User, to_user_state
from core.privacy.deletion import DeletionPreview, DeletionResult
from core.signin.credentials import SignIn
from core.tools.tool import is_idempotent, is_tool_allowed, load_tools
from core.turns.automation.schedules import Schedule
from core.usage.meter import ModelCall
from docs.pictures import diagrams, exchanges, scenes
from tests.channels.discord.conftest import clean_discord_library, run_bot
from tests.channels.i18n.catalogue import list_sentences

__all__ = ["clean_discord_library"]

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [*sorted(ROOT.glob("*.md")), *sorted(DOCS.rglob("*.md"))]
REFERENCE = DOCS / "reference"
MANIFEST = json.loads((ROOT / "manifest.json").read_text())

_ROW = re.compile(
    r"^\| `(?P<name>[A-Z_]+)` \| (?P<default>[^|]+) \| (?P<meaning>[^|]+) \| (?P<occasion>[^|]+) \|$", re.M
)
_EXAMPLE = re.compile(r"^# (?P<name>[A-Z_]+)=(?P<value>.*?)(?:\s{2,}#.*)?$", re.M)
_LINK = re.compile(r"\]\((?!https?:)(?P<path>[^)#]*)(?:#(?P<part>[^)]*))?\)")
_CODE = re.compile(r"^```python\n(?P<code>.*?)^```", re.M | re.S)
_CONSOLE = re.compile(r"^```console\n(?P<said>.*?)^```", re.M | re.S)


def get_relative_path(page: Path) -> str:
    return str(page.relative_to(ROOT))


def get_default(settings: Settings, name: str) -> str:
    """Return a setting's default as `.env` has it; "" if there is none."""
    if name == "database_url":
        return settings.database_address.replace("+aiosqlite", "")
    value: Any = getattr(settings, name)
    match value:
        case None:
            return ""
        case bool():
            return str(int(value))
        case float():
            return f"{value:g}"
        case tuple():
            return ",".join(value)
        case _:
            return str(value)


def is_default(written: str, default: str) -> bool:
    """Return whether the docs state a default; a long one may end with " ...".

    Args:
        written: the text in the docs.
    """
    return default.startswith(written.removesuffix(" ...")) if written.endswith(" ...") else written == default


def list_examples(page: Path) -> list[str]:
    return [found["code"] for found in _CODE.finditer(page.read_text())]


@pytest.fixture
def defaults(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, str]:
    """Return the default of each setting, by its environment variable."""
    monkeypatch.chdir(tmp_path)  # a folder without .env
    for name in [*Settings.model_fields, "dyno"]:
        monkeypatch.delenv(name.upper(), raising=False)
    settings = Settings()
    return {name.upper(): get_default(settings, name) for name in Settings.model_fields}


def test_the_settings_page_lists_each_setting_with_its_default(defaults: dict[str, str]) -> None:
    rows = {row["name"]: row["default"] for row in _ROW.finditer((REFERENCE / "settings.md").read_text())}
    assert rows.keys() == defaults.keys()
    for name, written in rows.items():
        assert is_default("" if written == "none" else written.strip("`"), defaults[name]), name


def test_the_example_env_file_lists_each_setting_with_its_default(defaults: dict[str, str]) -> None:
    lines = {line["name"]: line["value"] for line in _EXAMPLE.finditer((ROOT / ".env.example").read_text())}
    assert lines.keys() == defaults.keys()
    shapes = {"SLACK_BOT_TOKEN": "xoxb-...", "SLACK_APP_TOKEN": "xapp-..."}
    for name, written in lines.items():
        assert written == shapes.get(name) or is_default(written, defaults[name]), name


def test_the_commands_page_lists_each_command() -> None:
    group = typer.main.get_command(cli)
    assert isinstance(group, TyperGroup)
    rows = re.findall(r"^\| `([a-z]+)` \| (?:`make [a-z]+`)? ?\|", (REFERENCE / "commands.md").read_text(), re.M)
    assert sorted(rows) == sorted(name for name, command in group.commands.items() if not command.hidden)


def test_the_commands_page_lists_each_field_of_the_json_output() -> None:
    rows = re.findall(
        r"^\| `([a-z]+)`(?:, (?:each(?: of(?: the)? `(\w+)`)?|`(\w+)`))? \| (`\w+`.*) \|$",
        (REFERENCE / "commands.md").read_text(),
        re.M,
    )
    listed = {
        (command, part or other): set(re.findall(r"`(\w+)`", re.sub(r"\(.*?\)", "", fields)))
        for command, part, other, fields in rows
    }
    records: dict[tuple[str, str], Any] = {
        ("status", "workers"): WorkerOverview,
        ("status", "queue"): QueueOverview,
        ("status", "platforms"): PlatformOverview,
        ("status", "failures"): FailureGroup,
        ("status", "findings"): Diagnosis,
        ("sessions", ""): SessionOverview,
        ("schedules", ""): Schedule,
        ("connections", ""): SignIn,
        ("why", ""): TurnReport,
        ("why", "calls"): ModelCall,
        ("why", "run_record"): RunRecord,
        ("why", "tool_calls"): ToolCallRecord,
        ("status", ""): Overview,
        ("retry", ""): RequestResult,
        ("cancel", ""): RequestResult,
        ("forget", ""): DeletionPreview,
        ("forget", "deleted"): DeletionResult,
        ("check", ""): probes.CheckResult,
    }
    less = {("why", ""): {"cost"}, ("schedules", ""): {"message", "speakers"}}  # printed in dollars, and by fields
    less |= {("connections", ""): {"person"}}
    extra_fields = {
        ("why", ""): {"dollars"},
        ("schedules", ""): {"user", "session", "place", "text"},
        ("connections", ""): {"user", "platform", "workspace"},
        ("status", "workers"): {"is_alive"},
        ("status", ""): {"findings", "is_well"},
    }
    extra_fields |= {("forget", ""): {"is_deleted", "deleted"}}
    assert listed == {
        key: {field.name for field in fields(kind)} - less.get(key, set()) | extra_fields.get(key, set())
        for key, kind in records.items()
    }


def test_make_targets_in_the_docs_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    for page in PAGES:
        named = re.findall(r"(?:`|^(?:\$ )?)make ([a-z-]+)", page.read_text(), re.M)
        assert targets.issuperset(named), get_relative_path(page)


def test_the_manifest_file_equals_the_printed_manifest(defaults: dict[str, str]) -> None:
    del defaults
    assert f"{format_manifest(SetupPlatform.SLACK, Settings())}\n" == (ROOT / "manifest.json").read_text()


def test_the_slack_page_lists_the_scopes_and_events() -> None:
    page = (REFERENCE / "slack.md").read_text()
    scopes, _, events = page.partition("## Scopes")[2].partition("| Event |")
    assert set(re.findall(r"^\| `([a-z_.]+(?::[a-z]+)?)` \|", scopes, re.M)) == SCOPES | OPTIONAL_SCOPES
    named = {name for row in re.findall(r"^\| (`[^|]+) \|", events, re.M) for name in re.findall(r"`([^`]+)`", row)}
    assert named == set(MANIFEST["settings"]["event_subscriptions"]["bot_events"])


def test_the_slack_page_lists_the_rate_limits() -> None:
    page = (REFERENCE / "slack.md").read_text()
    windows = {
        "Posts": slack_surface.POST_WINDOW,
        "Starts of streams (`chat.startStream`)": slack_tiers.TIER_2,
        "Appends (`chat.appendStream`)": slack_tiers.TIER_4,
        "Stops of streams (`chat.stopStream`)": slack_tiers.TIER_2,
        "Edits (`chat.update`)": slack_tiers.TIER_3,
        "Deletions": slack_tiers.TIER_3,
        "Names (`users.info`)": slack_tiers.TIER_4,
        "Names of user groups (`usergroups.list`)": slack_tiers.TIER_2,
        "Status of a thread (`agents.sessions.setStatus`)": slack_tiers.TIER_3,
        "Suggested prompts (`assistant.threads.setSuggestedPrompts`), modals (`views.open`)": slack_tiers.TIER_4,
    }
    check_limits(page, slack_surface.LIMITS, windows)
    assert (
        f"| One stream | {slack_streams.STREAM_SECONDS:g} seconds, {slack_streams.MAX_STREAM_BYTES:,} bytes |" in page
    )


def test_the_slack_page_lists_the_reply_modes() -> None:
    part = (REFERENCE / "slack.md").read_text().partition("### Streams and edits")[2].partition("## Scopes")[0]
    modes = re.findall(r"^\| `([a-z]+)` \|", part, re.M)
    assert modes == list(get_args(slack_settings.Streaming))


def test_the_discord_page_lists_the_rate_limits() -> None:
    page = (REFERENCE / "discord.md").read_text()
    windows = {
        "Posts": discord_api.MESSAGE_WINDOW,
        "Edits": discord_api.MESSAGE_WINDOW,
        "Reading history": discord_api.MESSAGE_WINDOW,
        "Deletions": discord_api.DELETION_WINDOW,
        "Reactions": discord_api.REACTION_WINDOW,
        "All requests together": discord_api.GLOBAL_WINDOW,
    }
    check_limits(page, discord_surface.LIMITS, windows)


async def test_the_discord_page_lists_the_keys_of_sessions_and_events(tmp_path: Path) -> None:
    page = (REFERENCE / "discord.md").read_text()
    sessions = dict(re.findall(r"^\| ([a-z ]+) \| `(discord:[^`]+)`", page, re.M))
    event, users = re.findall(r"^\| (?:Event|ADK's `user_id`) \| (.+) \|$", page, re.M)
    async with DiscordSimulator() as simulator, run_bot(simulator, tmp_path, "hello") as bot:
        call = f"<@{simulator.bot_id}> hi"
        question = await simulator.post_message("ada", "general", call)
        post = await simulator.start_forum_post("ada", "ideas", "a post", call)
        direct = await simulator.post_message("ada", simulator.open_dm("ada"), "hi")
        rows = {row.session: row for row in await bot.wait_for_messages(3)}

    ids = {"SERVER": simulator.guild_id, "THREAD": post.id}
    forum = simulator.channels["ideas"].id
    for where, place, channel, message in [
        ("channel", question.channel.id, question.channel.id, question.id),
        ("thread or post", forum, post.id, post.id),
        ("direct messages", direct.channel.id, direct.channel.id, direct.id),
    ]:
        row = rows[fill_placeholders(sessions[where], CHANNEL=place, **ids)]
        assert f"`{row.event_key}`" in fill_placeholders(event, CHANNEL=channel, MESSAGE=message)
        assert f"`{row.place}`" in fill_placeholders(users, CHANNEL=place, **ids)


def test_the_discord_page_lists_the_permissions_and_intents() -> None:
    page = (REFERENCE / "discord.md").read_text()
    intents, _, permissions = page.partition("## Intents")[2].partition("## Permissions")
    named_there = discord.Permissions(**dict.fromkeys(list_constants(permissions), True))
    assert named_there == required_permissions(auto_thread=True)
    assert f"`{PERMISSIONS.value}`" in permissions
    names = {"direct_messages": "dm_messages", "guild_members": "members"}  # those in discord.py
    named = {names.get(name, name) for name in list_constants(intents)}
    assert named == {name for name, is_on in make_intents(message_content=True, members=True) if is_on}


def test_the_slack_page_lists_its_commands() -> None:
    page = (REFERENCE / "slack.md").read_text()
    assert set(re.findall(r"^\| `(/[a-z-]+)` \|", page, re.M)) == SLASH_COMMANDS.keys()


def test_the_discord_page_lists_its_commands() -> None:
    page = (REFERENCE / "discord.md").read_text()
    assert set(re.findall(r"^\| `/([a-z]+)(?: [a-z]+)?` \|", page, re.M)) == {*COMMAND_DESCRIPTIONS, "ask"}


def test_the_invite_link_has_the_required_permissions() -> None:
    page = (DOCS / "howto" / "set-up-discord.md").read_text()
    values = {str(required_permissions(auto_thread=is_on).value) for is_on in (False, True)}
    assert set(re.findall(r"permissions=(\d+)", page)) == values


def test_the_variables_of_app_json_are_settings() -> None:
    environment = json.loads((ROOT / "app.json").read_text())["env"]
    assert {name.lower() for name in environment} <= Settings.model_fields.keys()


def test_the_errors_page_shows_the_exception_tree() -> None:
    tree = re.search(r"^```text\n(.*?)^```", (REFERENCE / "errors.md").read_text(), re.M | re.S)
    assert tree is not None
    names = {name for name, found in vars(errors).items() if isinstance(found, type)}
    assert set(re.findall(r"\w+Error\b", tree[1])) == names
    assert errors.__doc__ is not None
    assert [line.rstrip() for line in tree[1].splitlines()] == re.findall(
        r"^ {4}((?:Par|[│├└ ]).*\S)", errors.__doc__, re.M
    )


def test_the_errors_page_lists_the_texts_for_users() -> None:
    page = (REFERENCE / "errors.md").read_text()
    rows = dict(re.findall(r"^\| `(\w+Error)`[^|]* \| ([^|]+) \|$", page, re.M))
    silent = {
        "ChatError",
        "ScheduleError",
        "ConnectionLostError",
        "ShutdownTimeoutError",
        "SettingsError",
        "SurfaceError",
        "TicketError",
        "ToolError",
    }
    silent |= {"SchemaError", "SessionResetError", "TurnLostError", "DatabaseClosedError", "SpendingLimitError"}
    kinds = {name: found for name, found in vars(errors).items() if isinstance(found, type) and name not in silent}
    assert rows == {name: kind.public for name, kind in kinds.items() if issubclass(kind, ParleyError)}


def test_the_errors_page_lists_messages_of_the_catalogue() -> None:
    table = (REFERENCE / "errors.md").read_text().partition("| Event | Message |")[2].partition("\n## ")[0]
    cells = re.findall(r"^\| [^-|][^|]* \| (?:⚠️ )?(.+) \|$", table, re.M)
    messages = tuple(sentence.strip().removeprefix("⚠️ ") for sentence in list_sentences())
    assert len(cells) > 20
    assert [cell for cell in cells if not cell.startswith(messages)] == []


@pytest.mark.parametrize("name", diagrams.DIAGRAMS)
def test_the_generated_pictures_are_up_to_date(name: str) -> None:
    assert (diagrams.HERE / name).read_text() == diagrams.DIAGRAMS[name](), (
        "python -m docs.pictures.diagrams draws them again"
    )


def test_the_figures_of_the_readme_are_in_the_benchmarks() -> None:
    figures = re.findall(r"\d[\d.]*\s(?:m?s|MB)\b", (ROOT / "README.md").read_text())
    assert figures
    measured = (DOCS / "benchmarks.md").read_text()
    assert [figure for figure in figures if not re.search(rf"\b{re.escape(figure.split()[0])}\b", measured)] == []


@pytest.mark.parametrize("page", PAGES, ids=get_relative_path)
def test_each_link_has_a_target(page: Path) -> None:
    for link in _LINK.finditer(page.read_text()):
        target = (page.parent / link["path"]).resolve() if link["path"] else page
        assert target.exists(), f"{get_relative_path(page)}: {link['path']}"
        if link["part"]:
            assert link["part"] in list_anchors(target), f"{get_relative_path(page)}: {link[0]}"


@pytest.mark.parametrize("page", ["adk.md", "model-servers.md"])
def test_each_test_that_a_page_names_exists(page: str) -> None:
    sources = "".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    names = set(re.findall(r"`(test_\w+)`", (REFERENCE / page).read_text()))
    assert names
    assert [name for name in names if f"def {name}(" not in sources] == []


def test_each_page_is_in_the_index() -> None:
    index = DOCS / "README.md"
    linked = {
        (DOCS / link["path"]).resolve() for link in _LINK.finditer(index.read_text()) if link["path"].endswith(".md")
    }
    assert linked == {page for page in DOCS.rglob("*.md") if page != index}


def test_imports_of_the_examples_are_in_the_api_page() -> None:
    page = (REFERENCE / "api.md").read_text()
    for code in (code for path in PAGES for code in list_examples(path)):
        for node in ast.walk(ast.parse(code)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in {"core", "chatrig"}:
                assert all(f"`{node.module}" in page and alias.name in page for alias in node.names), code


def test_each_object_of_the_api_page_has_a_docstring() -> None:
    named = re.findall(r"^<!-- ::: ([\w.]+)\.(\w+)", (REFERENCE / "api.md").read_text(), re.M)
    assert len(named) >= 10
    assert [name for module, name in named if not getattr(import_module(module), name).__doc__] == []


@pytest.mark.parametrize("page", [page for page in PAGES if list_examples(page)], ids=get_relative_path)
def test_the_examples_compile(page: Path) -> None:
    for number, code in enumerate(list_examples(page), 1):
        compile(code, f"{get_relative_path(page)}, example {number}", "exec")


async def test_the_tools_of_the_docs_are_valid_tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    function, marked, identity_tool, restricted, announcing, declared = list_examples(
        DOCS / "howto" / "write-a-tool.md"
    )
    (tmp_path / "team_of_the_page.py").write_text(function)
    (tmp_path / "rating_of_the_page.py").write_text(declared)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "marked_of_the_page.py").write_text(marked)
    (tmp_path / "announced_of_the_page.py").write_text(announcing)
    (tmp_path / "restricted_of_the_page.py").write_text(f"{identity_tool}\n\n{restricted}")
    names = ["team_of_the_page:on_call", "rating_of_the_page:rate", "marked_of_the_page:holidays"]
    on_call, rate, holidays, tickets, restart, announce = load_tools(
        [
            *names,
            "restricted_of_the_page:my_tickets",
            "restricted_of_the_page:restart",
            "announced_of_the_page:announce",
        ]
    )
    ada = User("U1", "Ada")
    assert [is_tool_allowed(tool, ada) for tool in (tickets, restart)] == [True, False]
    assert is_tool_allowed(restart, replace(ada, is_admin=True))
    tool_context: Any = SimpleNamespace(state={"temp:speaker": to_user_state(ada)})
    assert await tickets.run_async(args={}, tool_context=tool_context) == ["a ticket of Ada"]
    assert [is_idempotent(tool) for tool in (on_call, rate, holidays)] == [False, False, True]

    context: Any = None  # both tools ignore their context
    assert (on_call.name, rate.name) == ("on_call", "rate")
    found = await on_call.run_async(args={"day": "2026-11-23"}, tool_context=context)
    assert found == {"day": "2026-11-23", "name": "Ada"}
    assert await rate.run_async(args={"stars": 4}, tool_context=context) == {"rated": 4}
    announced = await announce.run_async(args={"release": "2.0"}, tool_context=context)
    assert announced.startswith("not announced: there is no conversation")


def test_each_exchange_of_the_docs_is_tested() -> None:
    written = [found for page in PAGES for found in exchanges.EXCHANGE.finditer(page.read_text())]
    assert sorted(found["name"] for found in written) == sorted(
        scene.name for setup in scenes.SETUPS for scene in setup.scenes
    )
    assert all(found["text"].strip() for found in written)


def test_the_simulator_example_prints_the_documented_output() -> None:
    page = REFERENCE / "simulator.md"
    (code,) = list_examples(page)
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=100, check=True
    )
    assert result.stdout in [found["said"] for found in _CONSOLE.finditer(page.read_text())]


def test_the_methods_on_the_page_of_the_simulator_exist() -> None:
    page = (REFERENCE / "simulator.md").read_text()
    named = set(re.findall(r"`(?:await )?(?:faults\.)?([a-z_]+)\(", page))
    kinds = [SlackSimulator, DiscordSimulator, SlackFaults, DiscordFaults, SlackMessage, OAuthServer, OAuthFaults]
    assert len(named) > 30
    assert [name for name in sorted(named) if not any(hasattr(kind, name) for kind in kinds)] == []


def list_anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings."""
    return set(_list_anchors(page.read_text()))


def _list_anchors(text: str) -> Iterator[str]:
    for heading in re.findall(r"^#+ (.+)$", text, re.M):
        yield re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def list_constants(text: str) -> set[str]:
    """Return the upper-case names in a Markdown table's first column, in lower case."""
    rows = re.findall(r"^\| (`[A-Z_`, ]+`) \|", text, re.M)
    return {name.lower() for row in rows for name in re.findall(r"[A-Z_]+", row)}


def check_limits(page: str, limits: MessageLimits, windows: Mapping[str, Window]) -> None:
    rows = dict(re.findall(r"^\| (.+?) \| (\d.*) \|$", page, re.M))
    assert rows["One message of a reply"].startswith(f"{limits.chunk_size:,} ")
    for name, window in windows.items():
        period = "a minute" if window.seconds == 60 else f"in {window.seconds:g} seconds"
        assert rows[name].startswith(f"{window.calls} {period}"), name


def fill_placeholders(text: str, **ids: str) -> str:
    """Return a page's text with ids in place of its upper-case placeholders.

    Args:
        ids: the id for each placeholder.
    """
    for word, key in ids.items():
        text = re.sub(rf"\b{word}\b", key, text)
    return text


def test_each_picture_is_used_by_a_page() -> None:
    pages = "".join(page.read_text() for page in [ROOT / "README.md", *DOCS.rglob("*.md")])
    pictures = {path.name for path in (DOCS / "pictures").iterdir() if path.suffix in (".png", ".svg")}
    assert {name for name in pictures if f"pictures/{name})" not in pages} == set()
