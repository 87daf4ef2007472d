from typing import Any

import pytest
from google.adk.tools.function_tool import FunctionTool
from google.genai import types
from pydantic import BaseModel

from core.models.messages import get_response_schema, list_tools

PERSON = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
GEMINI = {"type": "OBJECT", "properties": {"name": {"type": "STRING"}}, "required": ["name"]}


class Person(BaseModel):
    name: str


@pytest.mark.parametrize(
    "schema",
    [types.Schema.model_validate(GEMINI), GEMINI, PERSON],
    ids=["Gemini's type", "Gemini's dialect", "JSON Schema"],
)
def test_an_answer_schema_of_any_type_becomes_json_schema(schema: Any) -> None:
    assert get_response_schema(types.GenerateContentConfig(response_schema=schema)) == PERSON


@pytest.mark.parametrize(("schema", "kind"), [(Person, "object"), (list[Person], "array")])
def test_a_python_type_is_an_answer_schema(schema: Any, kind: str) -> None:
    found = get_response_schema(types.GenerateContentConfig(response_schema=schema))
    assert found is not None
    assert found["type"] == kind
    assert "name" in str(found)


@pytest.mark.parametrize("schema", [PERSON, None])
def test_a_json_schema_of_the_answer_does_not_change(schema: Any) -> None:
    assert get_response_schema(types.GenerateContentConfig(response_json_schema=schema)) == schema


def test_a_python_function_is_a_tool_with_its_parameters() -> None:
    def add(a: int, b: int = 2) -> int:
        """Add two numbers."""
        return a + b

    declaration = FunctionTool(add)._get_declaration()
    assert declaration is not None
    config = types.GenerateContentConfig(tools=[types.Tool(function_declarations=[declaration])])
    [spec] = list_tools(config)
    assert (spec.name, spec.description) == ("add", "Add two numbers.")
    assert spec.parameters["properties"]["a"]["type"] == "integer"
    assert spec.parameters["required"] == ["a"]


def test_built_in_tools_are_not_listed_as_functions() -> None:
    config = types.GenerateContentConfig(tools=[types.Tool(google_search=types.GoogleSearch())])
    assert list_tools(config) == []
