"""The pages say what the code does."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main
from typer.core import TyperGroup

from bot.cli import cli
from bot.settings import Settings
from channels.slack.channel import RESET_COMMAND, SCOPES
from channels.slack.hearing import hear
from core import errors
from core.errors import ParleyError
from core.tools import load_tools

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
REFERENCE = DOCS / "reference"
MANIFEST = json.loads((ROOT / "manifest.json").read_text())

_ROW = re.compile(r"^\| `(?P<name>[A-Z_]+)` \| (?P<default>[^|]+) \| (?P<meaning>[^|]+) \|$", re.M)
_EXAMPLE = re.compile(r"^# (?P<name>[A-Z_]+)=(?P<value>.*?)(?:\s{2,}#.*)?$", re.M)
_LINK = re.compile(r"\]\((?!https?:)(?P<path>[^)#]*)(?:#(?P<part>[^)]*))?\)")
_CODE = re.compile(r"^```python\n(?P<code>.*?)^```", re.M | re.S)
_CONSOLE = re.compile(r"^```console\n(?P<said>.*?)^```", re.M | re.S)


def relative(page: Path) -> str:
    return str(page.relative_to(ROOT))


def default_of(settings: Settings, name: str) -> str:
    """As one would write it into `.env`; empty for none."""
    if name == "database_url":
        return settings.database.replace("+aiosqlite", "")
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


def is_said(written: str, default: str) -> bool:
    """A long default may be cut short, with dots."""
    return default.startswith(written.removesuffix(" ...")) if written.endswith(" ...") else written == default


def examples(page: Path) -> list[str]:
    return [found["code"] for found in _CODE.finditer(page.read_text())]


@pytest.fixture
def defaults(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, str]:
    """Each setting in the name of the environment, with its default."""
    monkeypatch.chdir(tmp_path)  # away from any .env
    for name in [*Settings.model_fields, "dyno"]:
        monkeypatch.delenv(name.upper(), raising=False)
    settings = Settings()
    return {name.upper(): default_of(settings, name) for name in Settings.model_fields}


def test_the_page_of_settings_has_each_with_its_default_and_no_other(defaults: dict[str, str]) -> None:
    rows = {row["name"]: row["default"] for row in _ROW.finditer((REFERENCE / "settings.md").read_text())}
    assert rows.keys() == defaults.keys()
    for name, written in rows.items():
        assert is_said("" if written == "none" else written.strip("`"), defaults[name]), name


def test_the_example_file_has_each_setting_with_its_default_and_no_other(defaults: dict[str, str]) -> None:
    lines = {line["name"]: line["value"] for line in _EXAMPLE.finditer((ROOT / ".env.example").read_text())}
    assert lines.keys() == defaults.keys()
    shapes = {"SLACK_BOT_TOKEN": "xoxb-...", "SLACK_APP_TOKEN": "xapp-..."}
    for name, written in lines.items():
        assert written == shapes.get(name) or is_said(written, defaults[name]), name


def test_the_page_of_commands_has_each_of_them_and_no_other() -> None:
    group = typer.main.get_command(cli)
    assert isinstance(group, TyperGroup)
    rows = re.findall(r"^\| `([a-z]+)` \| (?:`make [a-z]+`)? ?\|", (REFERENCE / "commands.md").read_text(), re.M)
    assert sorted(rows) == sorted(group.commands)


def test_the_commands_of_make_that_the_pages_name_are_there() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    for page in PAGES:
        named = re.findall(r"(?:`|^(?:\$ )?)make ([a-z-]+)", page.read_text(), re.M)
        assert targets.issuperset(named), relative(page)


def test_the_manifest_asks_for_the_scopes_that_the_code_needs() -> None:
    assert set(MANIFEST["oauth_config"]["scopes"]["bot"]) == SCOPES


def test_the_manifest_has_the_commands_that_the_code_takes() -> None:
    assert [command["command"] for command in MANIFEST["features"]["slash_commands"]] == [RESET_COMMAND]


@pytest.mark.parametrize("subscription", MANIFEST["settings"]["event_subscriptions"]["bot_events"])
def test_each_event_of_the_manifest_is_heard(subscription: str) -> None:
    kind, _, where = subscription.partition(".")
    event = {"type": kind, "user": "U1", "channel": "C1", "ts": "1.0", "thread_ts": "0.5", "text": "hi"}
    types = {"channels": "channel", "groups": "group", "im": "im", "mpim": "mpim"}
    body = {"event": event | ({"channel_type": types[where]} if where else {}), "team_id": "T1"}
    assert hear(body) is not None


def test_the_manifest_has_each_event_that_is_heard() -> None:
    heard = {"app_mention", *(f"message.{where}" for where in ("channels", "groups", "im", "mpim"))}
    assert set(MANIFEST["settings"]["event_subscriptions"]["bot_events"]) == heard


def test_the_page_of_slack_has_the_scopes_and_the_events() -> None:
    page = (REFERENCE / "slack.md").read_text()
    scopes, _, events = page.partition("## Scopes")[2].partition("| Event |")
    assert set(re.findall(r"^\| `([a-z_.]+(?::[a-z]+)?)` \|", scopes, re.M)) == SCOPES
    named = {name for row in re.findall(r"^\| (`[^|]+) \|", events, re.M) for name in re.findall(r"`([^`]+)`", row)}
    assert named == set(MANIFEST["settings"]["event_subscriptions"]["bot_events"])


def test_the_page_of_errors_has_the_tree_of_the_code() -> None:
    tree = re.search(r"^```text\n(.*?)^```", (REFERENCE / "errors.md").read_text(), re.M | re.S)
    assert tree is not None
    names = {name for name, found in vars(errors).items() if isinstance(found, type)}
    assert set(re.findall(r"\w+Error\b", tree[1])) == names
    assert errors.__doc__ is not None
    assert [line.rstrip() for line in tree[1].splitlines()] == re.findall(
        r"^ {4}((?:Par|[│├└ ]).*\S)", errors.__doc__, re.M
    )


def test_the_page_of_errors_has_what_people_read() -> None:
    page = (REFERENCE / "errors.md").read_text()
    rows = dict(re.findall(r"^\| `(\w+Error)`[^|]* \| ([^|]+) \|$", page, re.M))
    silent = {"SettingsError", "SurfaceError", "ToolError", "SessionResetError"}
    kinds = {name: found for name, found in vars(errors).items() if isinstance(found, type) and name not in silent}
    assert rows == {name: kind.public for name, kind in kinds.items() if issubclass(kind, ParleyError)}


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_each_link_leads_somewhere(page: Path) -> None:
    for link in _LINK.finditer(page.read_text()):
        target = (page.parent / link["path"]).resolve() if link["path"] else page
        assert target.exists(), f"{relative(page)}: {link['path']}"
        if link["part"]:
            assert link["part"] in headings(target), f"{relative(page)}: {link[0]}"


def test_each_page_is_in_the_index() -> None:
    index = DOCS / "README.md"
    linked = {(DOCS / link["path"]).resolve() for link in _LINK.finditer(index.read_text())}
    assert linked == {page for page in DOCS.rglob("*.md") if page != index}


@pytest.mark.parametrize("page", [page for page in PAGES if examples(page)], ids=relative)
def test_the_examples_compile(page: Path) -> None:
    for number, code in enumerate(examples(page), 1):
        compile(code, f"{relative(page)}, example {number}", "exec")


async def test_the_tools_of_the_page_are_tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    function, declared = examples(DOCS / "howto" / "write-a-tool.md")
    (tmp_path / "team_of_the_page.py").write_text(function)
    (tmp_path / "rating_of_the_page.py").write_text(declared)
    monkeypatch.syspath_prepend(tmp_path)
    on_call, rate = load_tools(["team_of_the_page:on_call", "rating_of_the_page:rate"])

    context: Any = None  # neither of them looks at it
    assert (on_call.name, rate.name) == ("on_call", "rate")
    found = await on_call.run_async(args={"day": "2026-11-23"}, tool_context=context)
    assert found == {"day": "2026-11-23", "name": "Ada"}
    assert await rate.run_async(args={"stars": 4}, tool_context=context) == {"rated": 4}


def test_the_example_of_the_sandbox_prints_what_the_page_says() -> None:
    page = REFERENCE / "sandbox.md"
    (code,) = examples(page)
    said = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=30, check=True
    )
    assert said.stdout in [found["said"] for found in _CONSOLE.finditer(page.read_text())]


def headings(page: Path) -> set[str]:
    """The names by which a page's headings are linked to."""
    return set(_anchors(page.read_text()))


def _anchors(text: str) -> Iterator[str]:
    for heading in re.findall(r"^#+ (.+)$", text, re.M):
        yield re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
