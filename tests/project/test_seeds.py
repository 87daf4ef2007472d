"""Seeds' page and tests, which must match."""

import inspect
import re
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

import pytest

FOLDER = Path(__file__).parents[1] / "seeds"

#: | scenario | requirement | `file::test` | `module:object`, ... |
_ROW = re.compile(r"^\| (?P<scenario>[^|]+) \| [^|]+ \| `(?P<test>[^|]+)` \| (?P<code>[^|]+) \|$", re.M)


class Row(NamedTuple):
    """Row of the table in the seeds' page."""

    scenario: str
    test: str
    code: list[str]


ROWS = [
    Row(row["scenario"], row["test"], re.findall(r"`([^`]+)`", row["code"]))
    for row in _ROW.finditer((FOLDER / "README.md").read_text())
]


def get_test_name(scenario: str) -> str:
    """Return the name of a scenario's test function.

    `AppendEvent` becomes `append_event`, `ID` becomes `id`.
    """
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", scenario)
    return "test_" + re.sub(r"\W+", "_", words).lower()


def test_there_are_46_scenarios_and_one_risk() -> None:
    assert len({row.scenario for row in ROWS}) == len(ROWS) == 47


def test_each_test_is_of_a_scenario() -> None:
    tests = [
        f"tests/seeds/{file.name}::{name}"
        for file in FOLDER.glob("test_*.py")
        for name in re.findall(r"^(?:async )?def (test_\w+)", file.read_text(), re.M)
    ]
    assert sorted(tests) == sorted(row.test for row in ROWS)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.scenario)
def test_the_page_names_the_test_and_existing_code_of_a_scenario(row: Row) -> None:
    file, _, name = row.test.partition("::")
    assert name == get_test_name(row.scenario)
    test = getattr(import_module(file.removesuffix(".py").replace("/", ".")), name)
    assert inspect.getdoc(test) == f"{row.scenario}."
    assert row.code
    for place in row.code:
        module, _, attribute = place.partition(":")
        assert attrgetter(attribute)(import_module(module)) is not None
