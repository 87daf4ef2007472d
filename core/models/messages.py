"""Conversion of ADK's requests to messages, tools and schemas for all providers.

In the converted messages, each call has a unique id, and its result comes directly after its message. Every result has
a call, and all text is valid Unicode.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from google.genai import types
from pydantic import TypeAdapter
from pydantic_core import to_jsonable_python

from core.models.provider import Media, ModelMessage, Part, Role, Text, Thought, ToolCall, ToolResult, ToolSpec
from core.models.tool_calls import MAX_ID_LENGTH, part_text, unique_id

#: Result of a call without a stored result.
INTERRUPTED_RESULT: Mapping[str, Any] = {"error": "interrupted, may have taken effect"}


def convert_messages(
    contents: Sequence[types.Content], system_instruction: types.ContentUnion | None = None
) -> list[ModelMessage]:
    """Return the messages of an ADK request in a form that every provider accepts.

    The text parts of the system instruction, joined by newlines, are the first message, the only one with the role
    `system`. A call id has only ASCII letters, digits, `_` and `-`, at most 40. A repeated id gets a number (`call_t`,
    `call_t_2`). Responses without ids belong to the calls of their tool in order. A call without a response gets
    `INTERRUPTED_RESULT`; a response without a call is dropped.
    """
    history = _MessageBuilder()
    for content in contents:
        history.add(content)
    messages = history.build()
    system = "\n".join(_list_texts(system_instruction))
    if system:
        messages.insert(0, ModelMessage("system", (Text(clean_text(system)),)))
    return messages


def find_newest_question(messages: Sequence[ModelMessage]) -> int:
    """Return the index of the newest message of a user; -1 without one. The steps of a tool loop come after it."""
    return max((number for number, message in enumerate(messages) if message.role == "user"), default=-1)


def clean_tool_name(name: str, extra_characters: str = "") -> str:
    """Return a tool's name, of at most 64 characters, with `_` for each character that vendors refuse.

    A model can call a tool that does not exist. If such a name were invalid, vendors would refuse every later request
    of the conversation.
    """
    return re.sub(rf"[^A-Za-z0-9_{extra_characters}-]", "_", name)[:64] or "_"


def clean_text(text: str) -> str:
    """Return a text with U+FFFD for NUL and lone surrogates, which JSON, UTF-8 and databases refuse."""
    if text.isascii() and "\0" not in text:
        return text
    cleaned = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return cleaned.replace("\0", "\N{REPLACEMENT CHARACTER}")


def clean_json(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return JSON values with clean texts; bytes become base64, NaN and infinity None, other objects their `str`."""
    plain = to_jsonable_python(value, fallback=str, inf_nan_mode="null", bytes_mode="base64")
    return {clean_text(key): _clean_value(item) for key, item in plain.items()}


def _clean_value(value: Any) -> Any:
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, list):
        return [_clean_value(item) for item in value]
    if isinstance(value, dict):
        return {clean_text(key): _clean_value(item) for key, item in value.items()}
    return value


@dataclass(slots=True)
class _PendingCall:
    """Tool call with an `id` that is unique in the request, and its result once a later message contains it."""

    id: str
    original_id: str | None
    name: str
    result: ToolResult | None = None


class _MessageBuilder:
    """Builder of messages from ADK contents; `build` puts results directly after the message with their calls."""

    def __init__(self) -> None:
        self._messages: list[tuple[ModelMessage, list[_PendingCall]]] = []
        self._ids: set[str] = set()

    def add(self, content: types.Content) -> None:
        parts: list[Part] = []
        calls: list[_PendingCall] = []
        for part in content.parts or ():
            if part.function_response is not None:
                self._add_result(part.function_response)
            elif part.function_call is not None:
                call = self._make_call(part.function_call)
                arguments = clean_json(part.function_call.args or {})
                calls.append(call)
                parts.append(ToolCall(call.id, call.name, arguments, part.thought_signature))
            elif (converted := _convert_part(part)) is not None:
                parts.append(converted)
        if parts:
            role: Role = "assistant" if calls or content.role in ("model", "assistant") else "user"
            self._messages.append((ModelMessage(role, tuple(parts)), calls))

    def build(self) -> list[ModelMessage]:
        messages: list[ModelMessage] = []
        for message, calls in self._messages:
            messages.append(message)
            if calls:
                results = (call.result or ToolResult(call.id, call.name, INTERRUPTED_RESULT) for call in calls)
                messages.append(ModelMessage("tool", tuple(results)))
        return messages

    def _make_call(self, call: types.FunctionCall) -> _PendingCall:
        name = call.name or ""
        call_id = re.sub(r"[^A-Za-z0-9_-]", "_", call.id or f"call_{name}")[:MAX_ID_LENGTH]
        return _PendingCall(unique_id(call_id, name, self._ids), call.id or None, name)

    def _add_result(self, response: types.FunctionResponse) -> None:
        call = self._find_call(response)
        if call is None:
            return
        result = clean_json(response.response or {})
        call.result = ToolResult(call.id, call.name, result, tuple(_list_media(response)))

    def _find_call(self, response: types.FunctionResponse) -> _PendingCall | None:
        """Return the call to which a function response belongs.

        The call has the id of the response. If the call or the response has no id, it has the name of the response's
        tool. The newest message is searched first, because ids may be used again; within a message the calls keep their
        order. A call with a result gets another one only by its id, as long-running tools do.
        """
        calls = [call for _, message_calls in reversed(self._messages) for call in message_calls]
        matching = [call for call in calls if response.id and response.id in (call.id, call.original_id)]
        open_calls = [call for call in matching if call.result is None]
        if not matching:
            open_calls = [
                call
                for call in calls
                if call.result is None and call.name == response.name and not (response.id and call.original_id)
            ]
        return next(iter(open_calls or matching), None)


def _list_texts(instruction: types.ContentUnion | None) -> Iterable[str]:
    match instruction:
        case str():
            yield instruction
        case types.Part(text=str(text)):
            yield text
        case types.Content():
            for part in instruction.parts or ():
                yield from _list_texts(part)
        case list():
            for item in instruction:
                yield from _list_texts(item)


def _convert_part(part: types.Part) -> Part | None:
    signature = part.thought_signature
    if part.inline_data is not None:
        return Media(
            part.inline_data.mime_type or "application/octet-stream",
            data=part.inline_data.data,
            name=part.inline_data.display_name or "",
            signature=signature,
        )
    if part.file_data is not None:
        return Media(
            part.file_data.mime_type or "application/octet-stream",
            uri=part.file_data.file_uri,
            name=part.file_data.display_name or "",
            signature=signature,
        )
    text = part_text(part)
    if not text and signature is None:
        return None
    kind = Thought if part.thought else Text
    return kind(clean_text(text), signature)


def _list_media(response: types.FunctionResponse) -> Iterable[Media]:
    for part in response.parts or ():
        if part.inline_data is not None:
            yield Media(part.inline_data.mime_type or "", data=part.inline_data.data)
        elif part.file_data is not None:
            yield Media(part.file_data.mime_type or "", uri=part.file_data.file_uri)


def wants_search(config: types.GenerateContentConfig) -> bool:
    """Return whether Gemini's search is on; Anthropic and OpenAI's own server then get the vendor's search."""
    return any(isinstance(tool, types.Tool) and tool.google_search is not None for tool in config.tools or ())


def list_tools(config: types.GenerateContentConfig) -> list[ToolSpec]:
    return [
        ToolSpec(declaration.name or "", declaration.description or "", parameter_schema(declaration))
        for declaration in _list_declarations(config)
    ]


def find_parameter_schema(config: types.GenerateContentConfig, tool: str) -> dict[str, Any] | None:
    """Return the JSON Schema of a tool's arguments; None if the model may not call it."""
    found = (declaration for declaration in _list_declarations(config) if declaration.name == tool)
    return next(map(parameter_schema, found), None)


def get_response_schema(config: types.GenerateContentConfig) -> dict[str, Any] | None:
    """Return the JSON Schema that the answer must match."""
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
    """Return the JSON Schema of a function's arguments; without one, that of an object without properties."""
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
