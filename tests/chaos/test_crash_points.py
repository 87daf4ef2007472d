"""Each awaited call has a point before and after it, and behaves as without them."""

import ast
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from tests.chaos import crash_points as points
from tests.chaos.crash_points import ROOT, compile_instrumented, list_all_points, list_points, module_of

SOURCE = """
from contextlib import asynccontextmanager

said = []

async def numbers(n):
    for i in range(n):
        yield i

@asynccontextmanager
async def room(name):
    said.append(f"into {name}")
    yield name
    said.append(f"out of {name}")

async def one(value):
    said.append(value)
    return value

async def main():
    async with room("a") as a, room("b"):
        async for i in numbers(2):
            said.append(await one(i))
    return a, [i async for i in numbers(3) if await one(i)]

async def fails():
    async with room("c"):
        await nothing
"""


@pytest.fixture
def passed() -> Iterator[list[str]]:
    """Return the points that the test passes."""
    told: list[str] = []
    points.watch(told.append)
    yield told
    points.watch(lambda _point: None)


def names(*, pointed: bool) -> dict[str, Any]:
    found: dict[str, Any] = dict(points.NAMES)
    exec(compile_instrumented(SOURCE, "m.py", "m.py") if pointed else SOURCE, found)
    return found


async def test_instrumented_code_behaves_like_the_original() -> None:
    plain, pointed = names(pointed=False), names(pointed=True)
    assert await pointed["main"]() == await plain["main"]() == ("a", [1, 2])
    assert pointed["said"] == plain["said"]
    for each in (plain, pointed):
        with pytest.raises(NameError):
            await each["fails"]()
    assert pointed["said"] == plain["said"]


async def test_each_await_reports_a_point_before_and_after(passed: list[str]) -> None:
    await names(pointed=True)["main"]()
    assert Counter(passed) == {
        "m.py:21:16 before entering": 1,
        "m.py:21:16 after entering": 1,
        "m.py:21:16 before leaving": 1,
        "m.py:21:16 after leaving": 1,
        "m.py:21:32 before entering": 1,
        "m.py:21:32 after entering": 1,
        "m.py:21:32 before leaving": 1,
        "m.py:21:32 after leaving": 1,
        "m.py:22:9 before": 3,
        "m.py:22:9 after": 3,
        "m.py:23:25 before": 2,
        "m.py:23:25 after": 2,
        "m.py:24:28 before": 4,
        "m.py:24:28 after": 4,
        "m.py:24:47 before": 3,
        "m.py:24:47 after": 3,
    }
    never = set(list_points(SOURCE, "m.py")) - set(passed)
    assert {point[:7] for point in never} == {"m.py:27", "m.py:28"}


async def test_an_awaited_call_runs_between_its_points(passed: list[str]) -> None:
    found = names(pointed=True)
    points.watch(lambda point: found["said"].append(point) if "23:" in point else None)
    await found["main"]()
    assert found["said"][2:6] == ["m.py:23:25 before", 0, "m.py:23:25 after", 0]


def test_each_await_of_the_program_has_its_points() -> None:
    awaited: Counter[str] = Counter()
    for path in sorted({module_of(point) for point in list_all_points()}):
        for node in ast.walk(ast.parse((ROOT / path).read_text())):
            awaited[path] += 2 * isinstance(node, ast.Await | ast.AsyncFor) + 4 * len(
                node.items if isinstance(node, ast.AsyncWith) else ()
            )
            awaited[path] += 2 * (isinstance(node, ast.comprehension) and bool(node.is_async))
    found = list_all_points()
    assert len(set(found)) == len(found)
    assert Counter(map(module_of, found)) == awaited
    assert len(found) > 900


def test_instrumentation_after_an_import_is_refused() -> None:

    with pytest.raises(RuntimeError, match="imported before"):
        points.install()
