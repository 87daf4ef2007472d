"""Work on foreign schemas: it grows with their size only, and ends."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from core.tools.adk_confirmations import find_secret_paths
from core.tools.json_schema import MAX_COMBINATIONS, MAX_SCHEMAS, SchemaError, SchemaResolver
from core.tools.question_form import MAX_FIELDS, MAX_OPTIONS, create_form, schema_to_form
from tests.fixtures.steps import count_steps

#: The most steps for each byte of JSON, and for an empty schema.
STEPS_PER_BYTE, BASE_STEPS = 20, 500

NAMES = "abcdef"
references = st.sampled_from([f"#/{name}" for name in NAMES])


def count_bytes(*values: Any) -> int:
    return sum(len(json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()) for value in values)


def repeat(draw: Callable[[Any], Any], part: Any) -> list[Any]:
    """Return distinct copies of a part: parsed JSON shares nothing."""
    return [json.loads(json.dumps(part)) for _ in range(draw(st.integers(1, 40)))]


@st.composite
def bombs(draw: Any) -> dict[str, Any]:
    """Return a schema of definitions that refer to each other and combine each other many times."""

    def combine(depth: int) -> Any:
        leaves = st.sampled_from([{}, {"const": 1}, {"enum": ["x", True]}, {"format": "password"}, {"title": "T" * 50}])
        if not depth:
            return {"$ref": draw(references)} if draw(st.booleans()) else draw(leaves)
        key = draw(st.sampled_from(["allOf", "anyOf", "oneOf", "$ref", "properties", "items", "additionalProperties"]))
        match key:
            case "$ref":
                return {"$ref": draw(references), **draw(leaves)}
            case "allOf" | "anyOf" | "oneOf":
                return {key: repeat(draw, combine(depth - 1))}
            case "properties":
                return {key: {name: combine(depth - 1) for name in draw(st.sets(st.sampled_from(NAMES)))}}
        return {key: combine(depth - 1)}

    definitions = {name: combine(2) for name in NAMES}
    root = draw(st.sampled_from(["properties", "allOf", "oneOf", "$ref"]))
    match root:
        case "properties":
            count = draw(st.integers(1, MAX_FIELDS))
            return {**definitions, root: {f"f{i}": {"$ref": draw(references)} for i in range(count)}}
        case "$ref":
            return {**definitions, root: draw(references)}
    return {**definitions, root: repeat(draw, {"$ref": draw(references)})}


def create_bomb(width: int, fields: int) -> dict[str, Any]:
    """Return a schema whose combinations are `fields * width**4` schemas, if each is resolved for each use."""

    def refer(name: str) -> dict[str, Any]:
        return {"allOf": [{"$ref": f"#/{name}"} for _ in range(width)]}

    definitions = {"a": refer("b"), "b": refer("c"), "c": refer("d"), "d": {"allOf": [{} for _ in range(width)]}}
    return {**definitions, "properties": {f"f{i}": {"$ref": "#/a"} for i in range(fields)}}


#: Schemas whose parts are long or many, and used many times.
SHARED: dict[str, Any] = {
    "a long title": {"a": {"title": "T" * 10_000}, "properties": {f"f{i}": {"$ref": "#/a"} for i in range(MAX_FIELDS)}},
    "a long type": {"a": {"type": ["x"] * 500}, "properties": {f"f{i}": {"$ref": "#/a"} for i in range(MAX_FIELDS)}},
    "many options": {
        "a": {"enum": list(range(MAX_OPTIONS))},
        "properties": {f"f{i}": {"$ref": "#/a"} for i in range(MAX_FIELDS)},
    },
    "one option many times": {
        "a": {"const": "x" * 10_000, "title": "y" * 10_000},
        "oneOf": [{"$ref": "#/a"} for _ in range(MAX_OPTIONS)],
    },
    "many keywords": {
        "a": {f"x{i}": i for i in range(1000)},
        "allOf": [{"$ref": "#/a"} for _ in range(1000)],
    },
    "many of nothing": {"allOf": [{} for _ in range(2 * MAX_SCHEMAS)]},
    "many alternatives": {"anyOf": [{"type": "null"} for _ in range(5000)]},
}


@given(bombs())
@example(create_bomb(25, MAX_FIELDS))
@example(create_bomb(300, MAX_FIELDS))
def test_the_work_on_a_form_grows_with_its_schema_only(schema: dict[str, Any]) -> None:
    steps = count_steps(lambda: schema_to_form(schema))
    assert steps <= BASE_STEPS + STEPS_PER_BYTE * count_bytes(schema)


@pytest.mark.parametrize("name", SHARED)
def test_shared_parts_of_a_schema_cost_no_more(name: str) -> None:
    schema = SHARED[name]
    steps = count_steps(lambda: create_form("adk_request_input", {"response_schema": schema}))
    assert steps <= BASE_STEPS + STEPS_PER_BYTE * count_bytes(schema)


values = st.recursive(
    st.sampled_from([None, 1, "x"]),
    lambda inner: st.lists(inner, max_size=10) | st.dictionaries(st.sampled_from(NAMES), inner),
    max_leaves=60,
)


def tree(depth: int) -> Any:
    """Return a binary tree of objects, with `2**depth` leaves."""
    return {"a": tree(depth - 1), "b": tree(depth - 1)} if depth else "x"


def find_paths(schema: dict[str, Any], arguments: dict[str, Any]) -> list[Any] | None:
    """Return the secret paths, or None over the budget."""
    try:
        return find_secret_paths(schema, arguments)
    except SchemaError:
        return None


def refer_to_some(*numbers: int) -> dict[str, Any]:
    return {"anyOf": [{"$ref": f"#/d{number % 30}"} for number in numbers]}


#: A schema in which each field of a value has other alternatives, so that no two values have the same ones.
ALTERNATIVES: dict[str, Any] = {
    "$ref": "#/d0",
    "secret": {"format": "password"},
    **{
        f"d{i}": {
            "properties": {"a": refer_to_some(2 * i, 7 * i + 1, i + 5), "b": refer_to_some(3 * i + 1, 5 * i, i + 2)}
        }
        for i in range(30)
    },
}


@given(bombs(), st.dictionaries(st.sampled_from(NAMES), values))
@example(ALTERNATIVES, tree(9))
@example({"anyOf": [{"$ref": "#"} for _ in range(300)], "additionalProperties": {"format": "password"}}, tree(9))
def test_the_work_on_secrets_grows_with_schema_and_arguments_only(
    schema: dict[str, Any], arguments: dict[str, Any]
) -> None:
    steps = count_steps(lambda: find_paths(schema, arguments))
    assert steps <= BASE_STEPS + STEPS_PER_BYTE * count_bytes(schema, arguments)


def test_a_schema_over_the_budget_is_an_error_and_no_form() -> None:
    schema: dict[str, Any] = {"allOf": [{} for _ in range(MAX_SCHEMAS)]}
    assert "combines more than" in schema_to_form(schema).problem
    secret = {"properties": {"a": {"format": "password"}}, **schema}
    with pytest.raises(SchemaError):
        find_secret_paths(secret, {"a": "x"})
    assert find_secret_paths(schema, {"a": "x"}) == []


@pytest.mark.parametrize("count", [MAX_COMBINATIONS - 2, MAX_COMBINATIONS])
def test_references_in_a_row_are_followed_up_to_a_limit(count: int) -> None:
    chain = {f"a{i}": {"$ref": f"#/a{i + 1}"} for i in range(count)}
    schema = {**chain, f"a{count}": {"type": "integer"}, "$ref": "#/a0"}
    resolver = SchemaResolver(schema)
    if count < MAX_COMBINATIONS:
        assert resolver.merge(schema).keywords == {"type": "integer"}
        return
    with pytest.raises(SchemaError):
        resolver.merge(schema)


def test_the_first_schemas_keywords_win_and_those_of_no_form_are_dropped() -> None:
    schema = {"allOf": [{"title": "a", "type": "string"}, {"title": "b", "x-other": 1, "type": "null"}], "title": "c"}
    assert SchemaResolver(schema).merge(schema).keywords == {"title": "c", "type": "string"}
