"""Seeds' page, scenarios and tests, which must match."""

import inspect
import re
from collections.abc import Callable, Iterator
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests import seeds
from tests.seeds.scenarios import SCENARIOS, get_test_name

PAGE = Path(__file__).parents[1] / "seeds" / "README.md"
FOLDER = Path(seeds.__file__).parent

#: | scenario | requirement | `module::test` | `module:object`, ... |
_ROW = re.compile(r"^\| (?P<scenario>[^|]+) \| (?P<asks>[^|]+) \| `(?P<test>[^|]+)` \| (?P<code>[^|]+) \|$", re.M)


class Row(NamedTuple):
    """Row of the table in the seeds' page."""

    scenario: str
    asks: str
    test: str
    code: list[str]


PLANNED = {scenario: theme for theme, groups in SCENARIOS.items() for names in groups.values() for scenario in names}
ROWS = [
    Row(row["scenario"], row["asks"], row["test"], re.findall(r"`([^`]+)`", row["code"]))
    for row in _ROW.finditer(PAGE.read_text())
]


def get_tests(theme: str) -> dict[str, Callable[..., Any]]:
    module = import_module(f"{seeds.__name__}.test_{theme}")
    return {name: found for name, found in vars(module).items() if name.startswith("test_") and callable(found)}


def list_tests() -> Iterator[tuple[str, str, Callable[..., Any]]]:
    for file in sorted(FOLDER.glob("test_*.py")):
        theme = file.stem.removeprefix("test_")
        for name, test in get_tests(theme).items():
            yield theme, name, test


def test_there_are_46_scenarios_and_one_risk() -> None:
    assert len(PLANNED) == sum(len(names) for groups in SCENARIOS.values() for names in groups.values()) == 47


@pytest.mark.parametrize("scenario", PLANNED)
def test_each_scenario_has_its_test(scenario: str) -> None:
    test = get_tests(PLANNED[scenario]).get(get_test_name(scenario))
    assert test is not None, f"tests/seeds/test_{PLANNED[scenario]}.py has no {get_test_name(scenario)}"
    assert inspect.getdoc(test) == f"{scenario}."


def test_each_test_is_of_a_scenario() -> None:
    wanted = {(theme, get_test_name(scenario)) for scenario, theme in PLANNED.items()}
    assert {(theme, name) for theme, name, _ in list_tests()} == wanted


def test_the_page_has_one_row_a_scenario() -> None:
    assert sorted(row.scenario for row in ROWS) == sorted(PLANNED)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.scenario)
def test_the_page_names_existing_tests_and_code(row: Row) -> None:
    assert row.test == f"tests/seeds/test_{PLANNED[row.scenario]}.py::{get_test_name(row.scenario)}"
    assert row.code
    for place in row.code:
        module, _, name = place.partition(":")
        assert attrgetter(name)(import_module(module)) is not None
