"""Tool results as JSON that the model receives."""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from core.tools.results import MAX_RESULT_CHARACTERS, to_model_result


@dataclass
class CustomResult:
    data: bytes
    more: Any = None


def make_nested(depth: int) -> Any:
    value: Any = "end"
    for _ in range(depth):
        value = {"in": [value]}
    return value


ROUND: dict[str, Any] = {}
ROUND["self"] = ROUND
TWISTED = CustomResult(b"")
TWISTED.more = TWISTED


@pytest.mark.parametrize(
    "create",
    [
        lambda: "x" * 10_000_000,
        lambda: b"\xff" * 10_000_000,
        lambda: {"rows": [{"id": i, "text": "word " * 20} for i in range(50_000)]},
        lambda: ["x"] * 1_000_000,
        lambda: {str(i): None for i in range(1_000_000)},
        lambda: {"x" * 1_000_000: 1},
        lambda: make_nested(5_000),
        lambda: ROUND,
        lambda: TWISTED,
        lambda: CustomResult(b"\xff" * 10_000),
        lambda: 10**100_000,
        object,
        lambda: range(10**9),
    ],
    ids=[
        "text",
        "bytes",
        "rows",
        "list",
        "dict",
        "key",
        "deep",
        "round",
        "twisted",
        "odd",
        "number",
        "object",
        "range",
    ],
)
def test_every_result_becomes_bounded_json_in_time(create: Callable[[], Any]) -> None:
    result = create()
    start = time.thread_time()  # CPU time: other processes do not count
    text = json.dumps(to_model_result(result))
    assert len(text) < 4 * MAX_RESULT_CHARACTERS
    assert time.thread_time() - start < 5


def test_a_truncated_result_has_a_note() -> None:
    assert to_model_result(["x" * MAX_RESULT_CHARACTERS, "y", "z"])[1:] == ["… (cut: there is more)"]
    assert to_model_result({"a": "x" * (MAX_RESULT_CHARACTERS + 1), "b": 1})["…"] == "… (cut: there is more)"
    assert to_model_result(b"\xff" * 2_000) == "(2000 bytes)"
    assert to_model_result(b"\xff") == "/w=="
