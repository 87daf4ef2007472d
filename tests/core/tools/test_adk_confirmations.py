from typing import Any

import pytest

from core.tools.adk_confirmations import find_secret_paths

SECRET = {"type": "string", "writeOnly": True}
TREE = {"type": "object", "properties": {"pin": SECRET, "next": {"$ref": "#/$defs/Tree"}}}

SCHEMAS: dict[str, tuple[dict[str, Any], Any, list[tuple[str | int, ...]]]] = {
    "write only": ({"properties": {"a": SECRET, "b": {}}}, {"a": "x", "b": "y"}, [("a",)]),
    "a password": ({"properties": {"a": {"format": "password"}}}, {"a": "x"}, [("a",)]),
    "one of several types": ({"properties": {"a": {"anyOf": [SECRET, {"type": "null"}]}}}, {"a": "x"}, [("a",)]),
    "no value": ({"properties": {"a": {"anyOf": [SECRET, {"type": "null"}]}}}, {"a": None}, []),
    "an item": ({"properties": {"a": {"items": SECRET}}}, {"a": ["x", "y"]}, [("a", 0), ("a", 1)]),
    "an item by its position": ({"properties": {"a": {"prefixItems": [{}, SECRET]}}}, {"a": ["x", "y"]}, [("a", 1)]),
    "any other field": ({"properties": {"a": {}}, "additionalProperties": SECRET}, {"a": "x", "b": "y"}, [("b",)]),
    "a reference": (
        {"properties": {"a": {"$ref": "#/$defs/Tree"}}, "$defs": {"Tree": TREE}},
        {"a": {"pin": "x", "next": {"next": {"pin": "y"}}}},
        [("a", "pin"), ("a", "next", "next", "pin")],
    ),
    "a reference to itself": ({"$ref": "#", "properties": {"a": SECRET}}, {"a": "x"}, [("a",)]),
    "a reference to nothing": ({"properties": {"a": {"$ref": "#/$defs/None"}}}, {"a": "x"}, []),
    "an argument by its name": ({"properties": {"password": {"type": "string"}}}, {"password": "x"}, []),
    "another type than that of the schema": ({"properties": {"a": {"items": SECRET}}}, {"a": "x"}, []),
}


@pytest.mark.parametrize("case", SCHEMAS)
def test_the_schema_marks_the_secret_arguments(case: str) -> None:
    schema, arguments, paths = SCHEMAS[case]
    assert find_secret_paths(schema, arguments) == paths
