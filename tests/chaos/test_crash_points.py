"""Crash points before and after each awaited call, which behaves as the original."""

import ast
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from tests.chaos import crash_points as points
from tests.chaos.crash_points import ROOT, compile_instrumented, list_all_points, list_points, module_of

SOURCE = """
from contextlib import asynccontextmanager

logs = []

async def numbers(n):
    for i in range(n):
        yield i

@asynccontextmanager
async def span(name):
    logs.append(f"enter {name}")
    yield name
    logs.append(f"exit {name}")

async def log(value):
    logs.append(value)
    return value

async def main():
    async with span("a") as a, span("b"):
        async for i in numbers(2):
            logs.append(await log(i))
    return a, [i async for i in numbers(3) if await log(i)]

async def fails():
    async with span("c"):
        await nothing
"""


@pytest.fixture
def reached_points() -> Iterator[list[str]]:
    """Return the list to which each crash point that the test passes is appended."""
    points_seen: list[str] = []
    points.set_callback(points_seen.append)
    yield points_seen
    points.set_callback(lambda _point: None)


def execute_source(*, instrumented: bool) -> dict[str, Any]:
    """Run `SOURCE`, and return its globals.

    Args:
        instrumented: whether the code reports its crash points.
    """
    namespace: dict[str, Any] = dict(points.NAMES)
    exec(compile_instrumented(SOURCE, "m.py", "m.py") if instrumented else SOURCE, namespace)
    return namespace


async def test_instrumented_code_behaves_like_the_original() -> None:
    original, instrumented = execute_source(instrumented=False), execute_source(instrumented=True)
    assert await instrumented["main"]() == await original["main"]() == ("a", [1, 2])
    assert instrumented["logs"] == original["logs"]
    for source in (original, instrumented):
        with pytest.raises(NameError):
            await source["fails"]()
    assert instrumented["logs"] == original["logs"]


async def test_each_await_reports_a_point_before_and_after(reached_points: list[str]) -> None:
    await execute_source(instrumented=True)["main"]()
    assert Counter(reached_points) == {
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
    unreached = set(list_points(SOURCE, "m.py")) - set(reached_points)
    assert {point[:7] for point in unreached} == {"m.py:27", "m.py:28"}


async def test_an_awaited_call_runs_between_its_points(reached_points: list[str]) -> None:
    namespace = execute_source(instrumented=True)
    points.set_callback(lambda point: namespace["logs"].append(point) if "23:" in point else None)
    await namespace["main"]()
    assert namespace["logs"][2:6] == ["m.py:23:25 before", 0, "m.py:23:25 after", 0]


def test_each_await_of_the_program_has_its_points() -> None:
    awaited: Counter[str] = Counter()
    for path in sorted({module_of(point) for point in list_all_points()}):
        for node in ast.walk(ast.parse((ROOT / path).read_text())):
            awaited[path] += 2 * isinstance(node, ast.Await | ast.AsyncFor) + 4 * len(
                node.items if isinstance(node, ast.AsyncWith) else ()
            )
            awaited[path] += 2 * (isinstance(node, ast.comprehension) and bool(node.is_async))
    all_points = list_all_points()
    assert len(set(all_points)) == len(all_points)
    assert Counter(map(module_of, all_points)) == awaited
    assert len(all_points) > 900


def test_instrumentation_after_an_import_is_refused() -> None:

    with pytest.raises(RuntimeError, match="imported before"):
        points.install()
