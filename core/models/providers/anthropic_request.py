"""A request in the words of Anthropic's Messages API."""

import base64
import json
from collections.abc import Iterable, Sequence
from typing import Any

from anthropic import transform_schema
from google.genai import types

from core.models.messages import safe_name, with_safe_ids
from core.models.provider import Media, Message, Part, Request, Text, Thought, ToolCall, ToolResult, ToolSpec
from core.models.schemas import answer_schema

Block = dict[str, Any]

#: What the signature of redacted thinking begins with; the rest is its data. No signature has a colon in it.
REDACTED = b"redacted:"

#: Anthropic wants a limit. What every model of these years can say in one answer.
MAX_TOKENS = 8192

#: Anthropic: thinking gets at least so many tokens.
_LEAST_BUDGET = 1024

_THINKING = ("thinking", "redacted_thinking")

_IMAGES = {"image/jpeg", "image/png", "image/gif", "image/webp"}
_LONGEST_ID = 64


def body(request: Request) -> dict[str, Any]:
    """What the SDK makes a message of, but for `stream`."""
    config = request.config
    messages = _messages(with_safe_ids(request.messages, _LONGEST_ID))
    limit = config.max_output_tokens or MAX_TOKENS
    thinking = _thinking(config.thinking_config) if _may_think(messages) else None
    if thinking is not None and "budget_tokens" in thinking:
        limit = max(limit, thinking["budget_tokens"] + _LEAST_BUDGET)
    system = "\n".join(message.text for message in request.messages if message.role == "system")
    schema = answer_schema(config)
    given = {
        "system": system if system.strip() else None,
        "thinking": thinking,
        "stop_sequences": [stop for stop in config.stop_sequences or () if stop.strip()] or None,
        "output_config": {"format": {"type": "json_schema", "schema": transform_schema(schema)}} if schema else None,
        "extra_body": _sampling(config) if thinking is None or thinking["type"] == "disabled" else None,
        **_tools(request),
    }
    return {
        "model": request.model,
        "max_tokens": limit,
        "messages": messages,
        **{name: value for name, value in given.items() if value},
    }


def _sampling(config: types.GenerateContentConfig) -> dict[str, Any]:
    """Anthropic: a temperature of at most 1.0, or `top_p`, not both; newer models, and so the SDK, know neither."""
    if config.temperature is not None:
        return {"temperature": min(config.temperature, 1.0)}
    return {} if config.top_p is None else {"top_p": config.top_p}


def _thinking(config: types.ThinkingConfig | None) -> Block | None:
    """Gemini's way to say it: a budget of 0 is none, one below 0 or none at all is up to the model."""
    if config is None:
        return None
    budget = config.thinking_budget
    if budget is None or budget < 0:
        return {"type": "adaptive", "display": "summarized"}
    return {"type": "enabled", "budget_tokens": max(budget, _LEAST_BUDGET)} if budget else {"type": "disabled"}


def _may_think(messages: Sequence[Block]) -> bool:
    """Anthropic: what began without thinking, and goes on with what tools gave back, is also finished without."""
    began = None
    for message in reversed(messages):
        first = message["content"][0]["type"]
        if message["role"] == "assistant":
            began = first
        elif first != "tool_result":
            break
    return messages[-1]["content"][0]["type"] != "tool_result" or began in _THINKING


def _tools(request: Request) -> dict[str, Any]:
    """Anthropic: calls in the history need the tools, even when there are none any more."""
    if request.tools:
        return {"tools": [_tool(spec) for spec in request.tools]}
    called = sorted({safe_name(call.name) for message in request.messages for call in message.tool_calls})
    if not called:
        return {}
    tools = [_tool(ToolSpec(name, "Not there any more.", {})) for name in called]
    return {"tools": tools, "tool_choice": {"type": "none"}}


def _tool(spec: ToolSpec) -> Block:
    return {"name": spec.name, "description": spec.description, "input_schema": {"type": "object", **spec.parameters}}


def _messages(messages: Iterable[Message]) -> list[Block]:
    """Anthropic: the user begins, and then they take turns; what tools gave back is said by the user.

    No text is blank, and no answer ends in thinking. A user who said nothing that can be told still has a turn.
    """
    told: list[Block] = []
    for message in messages:
        if message.role == "system":
            continue
        role = "assistant" if message.role == "assistant" else "user"
        blocks = [block for part in message.parts for block in _blocks(part, role)]
        while blocks and blocks[-1]["type"] in _THINKING:
            blocks.pop()
        if not blocks and role == "user":
            blocks = [_text("(nothing)")]
        if blocks and not told and role == "assistant":
            told.append({"role": "user", "content": [_text("(What came before is left out.)")]})
        if told and told[-1]["role"] == role:
            told[-1]["content"].extend(blocks)
        elif blocks:
            told.append({"role": role, "content": blocks})
    return told


def _blocks(part: Part, role: str) -> Iterable[Block]:
    match part:
        case Text(text) if text.strip():
            yield _text(text)
        case Thought(text, bytes(signature)):
            if signature.startswith(REDACTED):
                yield {"type": "redacted_thinking", "data": signature.removeprefix(REDACTED).decode()}
            else:
                yield {"type": "thinking", "thinking": text, "signature": signature.decode()}
        case Media():
            yield _media(part) if role == "user" else _placeholder(part)
        case ToolCall(id_, name, arguments):
            yield {"type": "tool_use", "id": id_, "name": safe_name(name), "input": dict(arguments)}
        case ToolResult(id_, _, result, media):
            content = [_text(json.dumps(dict(result), ensure_ascii=False)), *map(_media, media)]
            failed = {"is_error": True} if "error" in result else {}
            yield {"type": "tool_result", "tool_use_id": id_, "content": content, **failed}


def _media(media: Media) -> Block:
    kind, uri = media.mime_type, media.uri or ""
    if kind.startswith("text/") and media.data is not None:
        text = media.data.decode("utf-8", "replace").replace("\0", "")
        return _text(text) if text.strip() else _placeholder(media)
    shape = "image" if kind in _IMAGES else "document" if kind == "application/pdf" else None
    if shape is None:
        return _placeholder(media)
    if media.data:
        data = base64.b64encode(media.data).decode()
        return {"type": shape, "source": {"type": "base64", "media_type": kind, "data": data}}
    if uri.startswith("https://"):
        return {"type": shape, "source": {"type": "url", "url": uri}}
    return _placeholder(media)


def _placeholder(media: Media) -> Block:
    return _text(f"[attachment: {media.mime_type} {media.uri or ''}".rstrip() + "]")


def _text(text: str) -> Block:
    return {"type": "text", "text": text}
