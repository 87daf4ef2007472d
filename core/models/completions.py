"""A request in the words of OpenAI's chat completions."""

import base64
import json
from collections.abc import Iterable, Sequence
from typing import Any

from core.models.provider import Media, Message, Request, Text, ToolResult, ToolSpec
from core.models.schemas import answer_schema

_AUDIO = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/mpeg": "mp3", "audio/mp3": "mp3"}


def body(request: Request, *, own_server: bool) -> dict[str, Any]:
    """The body of a chat completion.

    OpenAI's own models take `max_completion_tokens`, some of them nothing else; other servers know
    `max_tokens`. `own_server` says which it is.
    """
    config = request.config
    limit = "max_completion_tokens" if own_server else "max_tokens"
    given = {
        limit: config.max_output_tokens,
        "temperature": config.temperature,
        "top_p": config.top_p,
        "stop": config.stop_sequences or None,
        "seed": config.seed,
        "presence_penalty": config.presence_penalty,
        "frequency_penalty": config.frequency_penalty,
        "tools": [_function(spec) for spec in request.tools] or None,
        "response_format": _answer_format(request),
    }
    return {
        "model": request.model,
        "messages": [said for message in request.messages for said in _message(message)],
        **{name: value for name, value in given.items() if value is not None},
    }


def _function(spec: ToolSpec) -> dict[str, Any]:
    function = {"name": spec.name, "description": spec.description, "parameters": dict(spec.parameters)}
    return {"type": "function", "function": function}


def _answer_format(request: Request) -> dict[str, Any] | None:
    schema = answer_schema(request.config)
    if schema is not None:
        return {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
    if request.config.response_mime_type == "application/json":
        return {"type": "json_object"}
    return None


def _message(message: Message) -> Iterable[dict[str, Any]]:
    if message.role == "tool":
        yield from _results([part for part in message.parts if isinstance(part, ToolResult)])
    elif message.role == "assistant":
        calls = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": _json(call.arguments)},
            }
            for call in message.tool_calls
        ]
        if message.text or calls:  # an answer of thoughts alone cannot be given back
            said: dict[str, Any] = {"role": "assistant", "content": message.text or None}
            yield {**said, "tool_calls": calls} if calls else said
    elif all(isinstance(part, Text) for part in message.parts):
        yield {"role": message.role, "content": message.text}
    else:
        yield {"role": message.role, "content": [_content(part) for part in message.parts]}


def _results(results: Sequence[ToolResult]) -> Iterable[dict[str, Any]]:
    """OpenAI: a tool message is text; what a tool shows comes behind, as if the user had shown it."""
    for result in results:
        yield {"role": "tool", "tool_call_id": result.id, "content": _json(result.result)}
    if media := [_content(item) for result in results for item in result.media]:
        yield {"role": "user", "content": media}


def _content(part: object) -> dict[str, Any]:
    match part:
        case Text(text):
            return {"type": "text", "text": text}
        case Media(mime_type, bytes(data)) if mime_type.startswith("text/"):
            return {"type": "text", "text": data.decode("utf-8", "replace").replace("\0", "")}
        case Media(mime_type, bytes(data)) if mime_type in _AUDIO:
            encoded = base64.b64encode(data).decode()
            return {"type": "input_audio", "input_audio": {"data": encoded, "format": _AUDIO[mime_type]}}
        case Media(mime_type, bytes(data)):
            url = f"data:{mime_type};base64,{base64.b64encode(data).decode()}"
            if mime_type.startswith("image/"):
                return {"type": "image_url", "image_url": {"url": url}}
            return {"type": "file", "file": {"filename": "attachment", "file_data": url}}
        case Media(mime_type, _, str(uri)) if mime_type.startswith("image/") and uri.startswith("http"):
            return {"type": "image_url", "image_url": {"url": uri}}
        case Media(mime_type, _, uri):
            return {"type": "text", "text": f"[attachment: {mime_type} {uri or ''}]"}
        case _:
            raise TypeError(f"{type(part).__name__} is no part of a user's message")


def _json(value: Any) -> str:
    return json.dumps(dict(value), ensure_ascii=False)
