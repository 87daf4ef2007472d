"""JSON Schemas of a request, converted from the types that ADK allows for them."""

from collections.abc import Iterable
from typing import Any

from google.genai import types
from pydantic import TypeAdapter

from core.models.provider import ToolSpec


def list_tools(config: types.GenerateContentConfig) -> list[ToolSpec]:
    """Return the functions that the model may call."""
    return [
        ToolSpec(declaration.name or "", declaration.description or "", parameter_schema(declaration))
        for declaration in _list_declarations(config)
    ]


def answer_schema(config: types.GenerateContentConfig) -> dict[str, Any] | None:
    """Return the JSON Schema of the answer, if there is one."""
    if config.response_json_schema is not None:
        return _to_json_schema(config.response_json_schema)
    if config.response_schema is not None:
        return _to_json_schema(config.response_schema)
    return None


def _list_declarations(config: types.GenerateContentConfig) -> Iterable[types.FunctionDeclaration]:
    for tool in config.tools or ():
        if isinstance(tool, types.Tool):
            yield from tool.function_declarations or ()


def parameter_schema(declaration: types.FunctionDeclaration) -> dict[str, Any]:
    """Return the JSON Schema of a function's arguments."""
    schema = declaration.parameters_json_schema or declaration.parameters
    return _to_json_schema(schema) if schema else {"type": "object", "properties": {}}


def _to_json_schema(schema: Any) -> dict[str, Any]:
    if isinstance(schema, dict) and str(schema.get("type", "")).isupper():
        schema = types.Schema.model_validate(schema)  # Gemini's dialect of JSON Schema
    if isinstance(schema, types.Schema):
        return schema.json_schema.model_dump(mode="json", by_alias=True, exclude_none=True)
    if isinstance(schema, dict):
        return schema
    return TypeAdapter(schema).json_schema()
