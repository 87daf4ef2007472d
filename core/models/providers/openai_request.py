"""A request in the words of OpenAI's chat completions."""

import base64
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from core.models.messages import safe_name, with_safe_ids
from core.models.provider import Media, Message, Part, Request, Text, ToolResult, ToolSpec
from core.models.schemas import answer_schema

#: OpenAI: the id of a call has at most so many characters.
_LONGEST_ID = 40

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
        "messages": [said for message in with_safe_ids(request.messages, _LONGEST_ID) for said in _message(message)],
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
                "function": {"name": safe_name(call.name), "arguments": _json(call.arguments)},
            }
            for call in message.tool_calls
        ]
        if message.text or calls:  # an answer of thoughts alone cannot be given back
            said: dict[str, Any] = {"role": "assistant", "content": message.text or None}
            yield {**said, "tool_calls": calls} if calls else said
    elif any(isinstance(part, Media) for part in message.parts):
        yield {"role": message.role, "content": list(_content(message.parts))}
    else:
        yield {"role": message.role, "content": message.text}


def _results(results: Sequence[ToolResult]) -> Iterable[dict[str, Any]]:
    """OpenAI: a tool message is text; what a tool shows comes behind, as if the user had shown it."""
    for result in results:
        yield {"role": "tool", "tool_call_id": result.id, "content": _json(result.result)}
    if media := [item for result in results for item in result.media]:
        yield {"role": "user", "content": list(_content(media))}


def _content(parts: Iterable[Part]) -> Iterable[dict[str, Any]]:
    for part in parts:
        if isinstance(part, Text):
            yield _text(part.text)
        elif isinstance(part, Media):
            yield _media(part)


def _media(media: Media) -> dict[str, Any]:
    kind, uri = media.mime_type, media.uri or ""
    if media.data is None:
        if kind.startswith("image/") and uri.startswith("http"):
            return {"type": "image_url", "image_url": {"url": uri}}
        return _text(f"[attachment: {kind} {uri}]")
    if kind.startswith("text/"):
        return _text(media.data.decode("utf-8", "replace").replace("\0", ""))
    encoded = base64.b64encode(media.data).decode()
    if kind in _AUDIO:
        return {"type": "input_audio", "input_audio": {"data": encoded, "format": _AUDIO[kind]}}
    url = f"data:{kind};base64,{encoded}"
    if kind.startswith("image/"):
        return {"type": "image_url", "image_url": {"url": url}}
    return {"type": "file", "file": {"filename": "attachment", "file_data": url}}


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _json(value: Mapping[str, Any]) -> str:
    return json.dumps(dict(value), ensure_ascii=False)
