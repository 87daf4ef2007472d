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
    [
        types.Schema.model_validate(GEMINI),
        GEMINI,
        PERSON,
    ],
    ids=["Gemini's type", "Gemini's dialect", "JSON Schema"],
)
def test_an_answer_schema_of_any_type_becomes_json_schema(schema: Any) -> None:
    assert get_response_schema(types.GenerateContentConfig(response_schema=schema)) == PERSON


def test_a_pydantic_model_is_an_answer_schema() -> None:
    schema = get_response_schema(types.GenerateContentConfig(response_schema=Person))
    assert schema is not None
    assert schema["properties"] == {"name": {"title": "Name", "type": "string"}}


def test_a_list_of_models_is_an_answer_schema() -> None:
    schema = get_response_schema(types.GenerateContentConfig(response_schema=list[Person]))
    assert schema is not None
    assert schema["type"] == "array"


def test_a_json_schema_of_the_answer_does_not_change() -> None:
    assert get_response_schema(types.GenerateContentConfig(response_json_schema=PERSON)) == PERSON


def test_without_an_answer_schema_there_is_none() -> None:
    assert get_response_schema(types.GenerateContentConfig()) is None


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
