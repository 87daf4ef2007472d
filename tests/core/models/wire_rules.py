"""Rules of each vendor's API for the messages of a request.

A breach raises `AssertionError`.
"""

import base64
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

Body = Mapping[str, Any]


def check_request(vendor: str, body: Body) -> None:
    {"anthropic": _check_anthropic, "gemini": _check_gemini, "openai": _check_openai}[vendor](body)


def list_signatures(vendor: str, body: Body) -> list[str]:
    """Return the signatures of thoughts, calls and texts in a request body, in order."""
    match vendor:
        case "anthropic":
            blocks = [block for message in body["messages"] for block in message["content"]]
            found = [block.get("signature") or block.get("data") for block in blocks]
            return [str(signature) for signature in found if signature]
        case "gemini":
            parts = [part for content in body["contents"] for part in content["parts"]]
            found = [part.get("thoughtSignature") for part in parts]
            return [base64.urlsafe_b64decode(signature).decode() for signature in found if signature]
        case _:
            return []


def _check_anthropic(body: Body) -> None:
    messages = body["messages"]
    assert body["max_tokens"] > 0
    assert [message["role"] for message in messages] == [("user", "assistant")[n % 2] for n in range(len(messages))]
    assert messages[-1]["role"] == "user"
    waiting: list[str] = []
    seen: set[str] = set()
    for message in messages:
        blocks = message["content"]
        assert blocks
        results = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        assert sorted(results) == sorted(waiting)
        assert all(block["type"] == "tool_result" for block in blocks[: len(results)])
        waiting = [block["id"] for block in blocks if block["type"] == "tool_use"]
        _check_new_ids(waiting, seen)
        assert all(re.fullmatch(r"[a-zA-Z0-9_-]+", id_) for id_ in waiting)
        for block in blocks:
            assert block["type"] != "text" or block["text"].strip()
            assert block["type"] != "thinking" or block["signature"]
            assert block["type"] != "tool_use" or _is_valid_name(block["name"])
        kinds = {block["type"] for block in blocks}
        if message["role"] == "assistant":
            assert kinds <= {"text", "thinking", "redacted_thinking", "tool_use"}
            assert blocks[-1]["type"] not in ("thinking", "redacted_thinking")
        else:
            assert kinds <= {"text", "image", "document", "tool_result"}
    if seen:
        assert body["tools"]


def _check_openai(body: Body) -> None:
    waiting: list[str] = []
    seen: set[str] = set()
    messages: Sequence[Body] = body["messages"]
    assert [message["role"] for message in messages[1:]].count("system") == 0
    assert messages[-1]["role"] in ("user", "tool")
    for message in messages:
        if message["role"] == "tool":
            waiting.remove(message["tool_call_id"])
            continue
        assert waiting == []
        calls = message.get("tool_calls") or []
        assert message["content"] or calls
        waiting = [call["id"] for call in calls]
        _check_new_ids(waiting, seen)
        assert all(0 < len(id_) <= 40 for id_ in waiting)
        for call in calls:
            assert _is_valid_name(call["function"]["name"])
            assert isinstance(json.loads(call["function"]["arguments"]), dict)
    assert waiting == []


def _check_gemini(body: Body) -> None:
    contents = body["contents"]
    assert contents[-1]["role"] == "user"
    waiting: list[str] = []
    seen: set[str] = set()
    role = "model"
    for content in contents:
        parts = content["parts"]
        assert parts
        results = [part["functionResponse"]["id"] for part in parts if "functionResponse" in part]
        assert results == waiting
        assert not results or len(results) == len(parts)
        calls = [part["functionCall"] for part in parts if "functionCall" in part]
        assert not calls or (role, content["role"]) == ("user", "model")
        assert all(re.fullmatch(r"[a-zA-Z0-9_.:-]{1,64}", call["name"]) for call in calls)
        if calls:  # required since Gemini 3
            assert next(part for part in parts if "functionCall" in part)["thoughtSignature"]
        waiting = [call["id"] for call in calls]
        _check_new_ids(waiting, seen)
        role = content["role"]
    assert waiting == []


def _check_new_ids(ids: Sequence[str], seen: set[str]) -> None:
    assert len(set(ids)) == len(ids)
    assert not seen & set(ids)
    seen.update(ids)


def _is_valid_name(name: str) -> bool:
    return re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", name) is not None
