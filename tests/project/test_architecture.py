"""Structure of the source tree: import directions, libraries, sizes and names."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fixtures.import_graph import ROOT, TOP_LEVEL, find_cycle, list_folders, list_modules, sibling_imports

#: Top-level packages that a top-level package must not import.
FORBIDDEN = {
    "core": {"bot", "channels", "chatrig"},
    "channels": {"bot", "chatrig"},
    "chatrig": {"bot", "channels", "core"},
}

#: The only places that may import a library.
HOMES = {
    "slack_bolt": ["channels/slack", "simulator/src/chatrig/slack/bolt_app.py"],
    "slack_sdk": ["channels/slack"],
    "discord": ["channels/discord", "simulator/src/chatrig/discord/client_run.py"],
    "openai": ["core/models/providers/openai.py", "core/models/provider_registry.py"],
    "anthropic": ["core/models/providers/anthropic.py", "core/models/provider_registry.py"],
    "xllamacpp": ["core/models/providers/local_server.py"],
    "markdown_it": ["channels/slack/client/blocks.py", "simulator/src/chatrig/page/markdown.py"],
    "pygments": ["simulator/src/chatrig/page/markdown.py"],
    "textual": ["simulator/src/chatrig/terminal"],
    "watchfiles": ["bot/simulator/command.py"],
    "typer": ["bot/cli"],
}

PAGE = (ROOT / "docs/reference/architecture.md").read_text()

MAX_ENTRIES = 16
#: Folders with more entries: `chatrig` has one package for each capability.
ENTRIES = {"simulator/src/chatrig": 18}

MAX_LINES = 600
SMALL_LINES = 35
MAX_SMALL_MODULES = 20

FOLDERS = [
    path
    for top in (*TOP_LEVEL.values(), ROOT / "benchmarks", ROOT / "tests", ROOT / "simulator/tests")
    for path in [top, *top.rglob("*/")]
    if "node_modules" not in path.parts
]


def get_top_level_names(names: frozenset[str]) -> set[str]:
    return {name.partition(".")[0] for name in names}


def list_imports(package: str) -> Iterator[tuple[str, set[str]]]:
    """Yield path and imported top-level modules of each module of a package."""
    for module in list_modules().values():
        if module.path.is_relative_to(TOP_LEVEL[package]):
            yield module.path.relative_to(ROOT).as_posix(), get_top_level_names(module.imports)


def list_entries(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name != "__pycache__")


def is_source(folder: Path) -> bool:
    return folder.is_dir() and "__pycache__" not in folder.parts and any(folder.iterdir())


@pytest.mark.parametrize("package", FORBIDDEN)
def test_imports_run_from_bot_to_channels_to_core(package: str) -> None:
    wrong = {path: names & FORBIDDEN[package] for path, names in list_imports(package) if names & FORBIDDEN[package]}
    assert wrong == {}


def test_only_the_simulator_command_imports_the_simulator() -> None:
    assert [path for path, names in list_imports("bot") if "chatrig" in names] == [
        "bot/simulator/command.py",
        "bot/simulator/extension.py",  # imported by the command alone
        "bot/simulator/inspector_store.py",
        "bot/simulator/tour.py",
    ]


def test_imports_within_a_folder_have_no_cycle() -> None:
    assert {folder: cycle for folder in list_folders() if (cycle := find_cycle(sibling_imports(folder)))} == {}


@pytest.mark.parametrize("library", HOMES)
def test_a_library_is_imported_only_at_its_home(library: str) -> None:
    homes = tuple(HOMES[library])
    strays = [path for top in TOP_LEVEL for path, names in list_imports(top) if library in names]
    assert [path for path in strays if not path.startswith(homes)] == []


def test_a_folder_has_few_entries() -> None:
    counts = {path.relative_to(ROOT).as_posix(): len(list_entries(path)) for path in FOLDERS if is_source(path)}
    assert {name: count for name, count in counts.items() if count > ENTRIES.get(name, MAX_ENTRIES)} == {}


def test_a_module_fits_into_one_reading() -> None:
    lengths = {module.name: module.lines for module in list_modules().values()}
    assert {name: lines for name, lines in lengths.items() if lines > MAX_LINES} == {}


def test_few_modules_are_very_small() -> None:
    small = [
        module.name
        for module in list_modules().values()
        if module.lines < SMALL_LINES and module.path.name != "__init__.py" and not module.name.startswith("chatrig")
    ]
    assert len(small) <= MAX_SMALL_MODULES, small


@pytest.mark.parametrize("parent", ["channels", "chatrig"])
def test_both_platforms_have_the_same_packages(parent: str) -> None:
    slack, discord = (
        {entry for entry in list_entries(folder) if (folder / entry).is_dir()}
        for folder in (TOP_LEVEL[parent] / "slack", TOP_LEVEL[parent] / "discord")
    )
    assert slack == discord


def test_the_tests_of_a_package_are_in_the_folder_of_its_name() -> None:
    tests = [path.parent.relative_to(ROOT / "tests") for path in (ROOT / "tests").rglob("test_*.py")]
    mirrored = {ROOT / folder for folder in tests if folder.parts and folder.parts[0] in (*TOP_LEVEL, "benchmarks")}
    simulator, clients = ROOT / "simulator/tests", ROOT / "simulator/tests/clients"
    folders = {path.parent for path in simulator.rglob("test_*.py")} - {clients}
    mirrored |= {TOP_LEVEL["chatrig"] / folder.relative_to(simulator) for folder in folders}
    assert sorted(folder.as_posix() for folder in mirrored if not folder.is_dir()) == []


def test_the_architecture_page_names_each_package() -> None:
    packages = {name for name in list_folders() if name.count(".") <= 1}
    paths = {path for name in packages if not is_platform_part(path := name.replace(".", "/"))}
    assert sorted(path for path in paths if f"**`{path}`**" not in PAGE) == []


def is_platform_part(path: str) -> bool:
    return path.startswith(("channels/slack/", "channels/discord/", "chatrig/slack/", "chatrig/discord/"))


def test_the_architecture_page_names_files_that_exist() -> None:
    paths = re.findall(r"`((?:bot|channels|core|simulator)/[\w/.]+)`", PAGE)
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_the_path_of_a_message_names_classes_of_its_files() -> None:
    rows = re.findall(r"^\| [^|]*\| (`\w[^|]*) \| (`[^|]*) \|$", PAGE, re.M)
    assert len(rows) > 10
    for names, files in rows:
        text = "".join((ROOT / path).read_text() for path in re.findall(r"`([\w/]+/[\w/.]+\.py)`", files))
        for name in re.findall(r"`(\w+)`", names):
            assert re.search(rf"^(class|def|async def) {name}\b", text, re.M), name
