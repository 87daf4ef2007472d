"""The arrows between the rooms run one way, and each foreign library has one room."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ROOMS = ("bot", "channels", "core", "sandbox")

#: What must not be imported from where: a folder or a module, and the top-level packages that stay out of it.
FORBIDDEN = {
    "core": {"bot", "channels", "sandbox"},
    "channels": {"bot", "sandbox"},
    "sandbox": {"bot", "channels", "core"},
}

#: Where alone a library may be imported.
HOMES = {
    "slack_bolt": ["channels/slack"],
    "slack_sdk": ["channels/slack"],
    "discord": ["channels/discord"],
    "openai": ["core/models/providers/openai.py", "core/models/provider_registry.py"],
    "anthropic": [
        "core/models/providers/anthropic.py",
        "core/models/provider_registry.py",
        "core/models/providers/anthropic.py",
    ],
    "xllamacpp": ["core/models/providers/local_server.py"],
    "markdown_it": ["sandbox/page/markdown.py"],
    "pygments": ["sandbox/page/markdown.py"],
    "textual": ["sandbox/terminal"],
    "watchfiles": ["bot/sandbox/command.py"],
    "typer": ["bot/cli/main.py", "bot/cli/main.py", "bot/cli/privacy.py", "bot/cli/operations.py"],
}


def modules(*folders: str) -> Iterator[tuple[str, set[str]]]:
    """Each module's path, and the top-level packages that it imports."""
    for folder in folders:
        for file in files(folder):
            yield file.relative_to(ROOT).as_posix(), imports(file)


def files(folder: str) -> list[Path]:
    return sorted((ROOT / folder).rglob("*.py"))


@cache
def imports(file: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add((node.module or "").partition(".")[0])
    return names


@pytest.mark.parametrize("room", FORBIDDEN)
def test_arrows_run_from_bot_to_channels_to_core_and_the_sandbox_stands_apart(room: str) -> None:
    wrong = {path: names & FORBIDDEN[room] for path, names in modules(room) if names & FORBIDDEN[room]}
    assert wrong == {}


def test_the_sandbox_is_imported_by_the_bots_sandbox_command_alone() -> None:
    assert [path for path, names in modules("bot") if "sandbox" in names] == ["bot/sandbox/command.py"]


@pytest.mark.parametrize("library", HOMES)
def test_a_library_is_imported_where_it_is_at_home_and_nowhere_else(library: str) -> None:
    homes = tuple(HOMES[library])
    strays = [path for path, names in modules(*ROOMS) if library in names and not path.startswith(homes)]
    assert strays == []


def test_no_room_is_longer_than_one_can_hold_in_mind() -> None:
    lengths = {file: len(file.read_text().splitlines()) for room in ROOMS for file in files(room)}
    assert {file.relative_to(ROOT).as_posix(): length for file, length in lengths.items() if length > 600} == {}
