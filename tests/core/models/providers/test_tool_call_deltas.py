"""Tool calls from deltas in every known shape and order."""

import json
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.models.provider import ToolCall
from core.models.providers.tool_call_deltas import ToolCallBuilder

#: Tools and arguments of the calls; all names differ, or all are the same.
ARGUMENTS = st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=8), min_size=1, max_size=3)
TEXTS = st.lists(ARGUMENTS, min_size=2, max_size=3).map(lambda found: [json.dumps(arguments) for arguments in found])

#: Which fields tell the calls apart, by the number of the call.
IDENTITIES: dict[str, Callable[[int], dict[str, Any]]] = {
    "index and id": lambda number: {"index": number, "id": f"c{number}"},
    "index": lambda number: {"index": number},
    "index, empty id": lambda number: {"index": number, "id": ""},
    "same index, other ids": lambda number: {"index": 0, "id": f"c{number}"},
    "same index, empty id": lambda number: {"index": 0, "id": ""},
    "same index, same id": lambda number: {"index": 0, "id": "call_0"},
    "no index, other ids": lambda number: {"id": f"c{number}"},
    "no index, same id": lambda number: {"id": "call_0"},
    "nothing": lambda number: {},
}


def split(text: str, cuts: list[int]) -> list[str]:
    """Return a text in pieces that end at some of its positions."""
    places = sorted({0, len(text), *(cut % (len(text) + 1) for cut in cuts)})
    return [text[begin:end] for begin, end in pairwise(places)]


def list_deltas(
    identity: dict[str, Any], name: str, pieces: list[str], *, is_repeated: bool
) -> Iterator[dict[str, Any]]:
    """Yield the deltas of a call.

    Args:
        identity: the index and the id.
        is_repeated: whether each delta has the id and the name; else only the first one has them.
    """
    for number, piece in enumerate(pieces):
        is_named = is_repeated or number == 0
        fields = identity if is_named else {key: value for key, value in identity.items() if key == "index"}
        yield {**fields, "function": {"arguments": piece, **({"name": name} if is_named else {})}}


def build(deltas: list[dict[str, Any]]) -> list[tuple[str, Any]]:
    builder = ToolCallBuilder()
    for delta in deltas:
        builder.add_delta(delta)
    return [(call.name, call.arguments) for call in builder.build({}, is_truncated=False)]


@pytest.mark.parametrize("identity", IDENTITIES)
@pytest.mark.parametrize("is_same_tool", [False, True], ids=["other tools", "same tool"])
@given(texts=TEXTS, cuts=st.lists(st.integers(0, 40), max_size=3), is_repeated=st.booleans())
def test_calls_after_one_another_are_told_apart(
    identity: str, is_same_tool: bool, texts: list[str], cuts: list[int], is_repeated: bool
) -> None:
    names = ["tool" if is_same_tool else f"tool{number}" for number in range(len(texts))]
    calls = zip(names, texts, strict=True)
    deltas = [
        delta
        for number, (name, text) in enumerate(calls)
        for delta in list_deltas(IDENTITIES[identity](number), name, split(text, cuts), is_repeated=is_repeated)
    ]
    assert build(deltas) == [(name, json.loads(text)) for name, text in zip(names, texts, strict=True)]


@pytest.mark.parametrize("identity", ["index and id", "index", "index, empty id"])
@given(texts=TEXTS, cuts=st.lists(st.integers(0, 40), max_size=3), data=st.data())
def test_calls_with_an_index_may_be_interleaved(identity: str, texts: list[str], cuts: list[int], data: Any) -> None:
    left = [
        list(list_deltas(IDENTITIES[identity](number), f"tool{number}", split(text, cuts), is_repeated=False))
        for number, text in enumerate(texts)
    ]
    deltas, begun = [], [calls.pop(0) for calls in left]
    deltas += begun
    while any(left):
        turn = data.draw(st.sampled_from([number for number, calls in enumerate(left) if calls]))
        deltas.append(left[turn].pop(0))
    assert build(deltas) == [(f"tool{number}", json.loads(text)) for number, text in enumerate(texts)]


@given(arguments=ARGUMENTS, cuts=st.lists(st.integers(0, 40), min_size=1, max_size=4), is_named=st.booleans())
def test_an_id_that_changes_within_a_call_does_not_divide_it(
    arguments: dict[str, Any], cuts: list[int], is_named: bool
) -> None:
    pieces = split(json.dumps(arguments), cuts)
    name = {"name": "tool"} if is_named else {}
    deltas = [
        {"index": 0, "id": f"c{number}", "function": {"arguments": piece, **(name if number else {"name": "tool"})}}
        for number, piece in enumerate(pieces)
    ]
    assert build(deltas) == [("tool", arguments)]


@pytest.mark.parametrize(
    ("arguments", "read"),
    [
        (None, {}),
        ("", {}),
        ("null", {}),
        ({"city": "Oslo"}, {"city": "Oslo"}),
        ('{"city": "Oslo"}', {"city": "Oslo"}),
        ('"{\\"city\\": \\"Oslo\\"}"', {"city": "Oslo"}),
    ],
)
def test_arguments_may_have_any_form_of_an_object(arguments: Any, read: dict[str, Any]) -> None:
    assert build([{"index": 0, "id": "a", "function": {"name": "tool", "arguments": arguments}}]) == [("tool", read)]


@pytest.mark.parametrize("identity", IDENTITIES)
def test_real_arguments_replace_an_empty_object(identity: str) -> None:
    fields = IDENTITIES[identity](0)
    first = {**fields, "function": {"name": "tool", "arguments": "{}"}}
    whole = {**fields, "function": {"arguments": '{"city": "Oslo"}'}}
    assert build([first, whole]) == [("tool", {"city": "Oslo"})]
    pieces = [{**fields, "function": {"arguments": piece}} for piece in ('{"city"', ': "Oslo"}')]
    assert build([first, *pieces]) == [("tool", {"city": "Oslo"})]


def test_two_calls_without_arguments_have_ids_of_their_own() -> None:
    builder = ToolCallBuilder()
    for id_ in ("a", "b"):
        builder.add_delta({"index": 0, "id": id_, "function": {"name": "now", "arguments": "{}"}})
    assert builder.build({}, is_truncated=False) == [ToolCall("a", "now", {}), ToolCall("b", "now", {})]


@pytest.mark.parametrize("function", [None, "oops", [], {"name": 5, "arguments": [1]}])
def test_a_function_of_another_shape_is_a_malformed_call(function: Any) -> None:
    (name, _), *others = build([{"index": 0, "id": "a", "function": function}])
    assert name in ("", "malformed_call_to_")
    assert others == []
