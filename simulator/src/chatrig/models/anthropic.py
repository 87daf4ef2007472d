"""Scripted model with Anthropic's Messages API.

Anthropic: https://platform.claude.com/docs/en/api/messages and https://platform.claude.com/docs/en/build-with-claude/streaming
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from aiohttp import web

from chatrig.models.script import (
    CallTool,
    Cite,
    Fail,
    Finish,
    RawChunk,
    ReceivedRequest,
    ReceivedToolResult,
    Say,
    Step,
    Think,
    decode_tool_result,
    split_text,
)
from chatrig.models.server import Chunk, ScriptedServer, WireFormat

_ERROR_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}


class ScriptedAnthropic(ScriptedServer):
    """Scripted model server with Anthropic's Messages API.

        async with ScriptedAnthropic(["Hello!"]) as anthropic:
            anthropic.add_responses([CallTool("weather", {"city": "Oslo"})], "Sunny.")
            start_bot(ANTHROPIC_BASE_URL=anthropic.base_url)
            ...
            assert anthropic.received[0].text == "hi"

    The server knows `POST v1/messages`, `GET v1/models` and `GET v1/models/{id}`, and answers other paths with 404. The
    `signature` of a step is sent as ASCII text. A `Think` without text but with a signature is redacted thinking; the
    signature is its data.

    Attributes:
        base_url: the client's base URL: `Anthropic(base_url=...)` or the variable `ANTHROPIC_BASE_URL`.
        requests: JSON bodies of the accepted generation requests, in order.
        received: the same requests as `ReceivedRequest` objects, the same for all vendors.
        disconnects: number of responses that the client aborted.
    """

    url_variable, key_variable = "ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY"

    @property
    def base_url(self) -> str:
        return self._origin

    def list_routes(self) -> list[web.RouteDef]:
        return [
            web.post("/v1/messages", self._handle_message),
            web.get("/v1/models", self._list_models),
            web.get("/v1/models/{model:.+}", self._get_model),
        ]

    def error_body(self, fail: Fail) -> Chunk:
        kind = fail.code or _ERROR_TYPES.get(
            fail.status, "api_error" if fail.status >= 500 else "invalid_request_error"
        )
        return {"type": "error", "error": {"type": kind, "message": fail.message}, "request_id": "req_scripted"}

    def event_name(self, chunk: Chunk) -> str | None:
        return str(chunk.get("type", "content_block_delta"))

    async def _handle_message(self, request: web.Request) -> web.StreamResponse:
        body = await self.read_body(request, "model", "messages")
        if (error := self._check_request(request, body["model"])) is not None:
            return error
        received = _parse_request(body, request.headers)
        return await self.play(request, received, _AnthropicWireFormat(received.model), b"")

    async def _list_models(self, request: web.Request) -> web.Response:
        if (error := self._check_request(request)) is not None:
            return error
        return web.json_response({"data": [_model_entry(name) for name in self._models or ()], "has_more": False})

    async def _get_model(self, request: web.Request) -> web.Response:
        name = request.match_info["model"]
        return self._check_request(request, name) or web.json_response(_model_entry(name))

    def _check_request(self, request: web.Request, model: str | None = None) -> web.Response | None:
        """Return the error response for a wrong key, missing version or unknown model.

        It is None for a valid request.

        Args:
            model: the requested model; None for a request without one.
        """
        bearer = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if self._api_key is not None and self._api_key not in (bearer, request.headers.get("x-api-key")):
            return self.error_response(Fail(401, "invalid API key"))
        if "anthropic-version" not in request.headers:
            return self.error_response(Fail(400, "anthropic-version: header is required"))
        if model is not None and self._models is not None and model not in self._models:
            return self.error_response(Fail(404, f"model: {model}"))
        return None


class _AnthropicWireFormat(WireFormat):
    """Response as content blocks, each with a start event, deltas and a stop event."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._blocks: list[dict[str, Any]] = []
        self._has_message_start = self._has_open_block = False
        self._finish = Finish()

    def to_chunks(self, step: Step) -> Iterable[Chunk]:
        match step:
            case Say(text):
                yield from self._extend_block("text", text=text)
            case Think("", signature=bytes(data)):
                yield from self._add_complete_block({"type": "redacted_thinking", "data": data.decode()})
            case Think(text):
                yield from self._extend_block("thinking", thinking=text)
                if step.signature is not None:
                    yield self._delta("signature_delta", signature=step.signature.decode())
                    yield from self._stop_block()
            case CallTool():
                yield from self._add_tool_call(step)
            case Cite(url, title):
                if not self._has_open_block or self._blocks[-1]["type"] != "text":
                    yield from self._start_block({"type": "text", "text": ""})
                page = {"type": "web_search_result_location", "url": url, "title": title}
                citation = {**page, "cited_text": "", "encrypted_index": ""}
                yield self._delta("citations_delta", citation=citation)
            case Finish():
                yield from self._end_message(step)
            case RawChunk(chunk):
                yield from self._start_message()
                yield chunk
            case _:
                return

    def body(self) -> Chunk:
        return {**self._head, "content": self._blocks, **self._reason, "usage": self._usage}

    def _start_message(self) -> Iterable[Chunk]:
        if not self._has_message_start:
            self._has_message_start = True
            usage = {"input_tokens": 1, "output_tokens": 1}
            start_fields = {"stop_reason": None, "stop_sequence": None, "usage": usage}
            yield {"type": "message_start", "message": {**self._head, "content": [], **start_fields}}
            yield {"type": "ping"}

    def _extend_block(self, kind: str, **piece: str) -> Iterable[Chunk]:
        [(name, text)] = piece.items()
        if not self._has_open_block or self._blocks[-1]["type"] != kind:
            empty = {"type": kind, name: ""} | ({"signature": ""} if kind == "thinking" else {})
            yield from self._start_block(empty)
        self._blocks[-1][name] += text
        yield self._delta(f"{kind}_delta", **piece)

    def _add_complete_block(self, block: dict[str, Any]) -> Iterable[Chunk]:
        yield from self._start_block(block)
        yield from self._stop_block()

    def _add_tool_call(self, call: CallTool) -> Iterable[Chunk]:
        arguments = call.raw if call.raw is not None else json.dumps(call.arguments)
        id_ = call.id if call.id is not None else f"toolu_scripted_{len(self._blocks)}"
        yield from self._start_block({"type": "tool_use", "id": id_, "name": call.name, "input": {}})
        self._blocks[-1]["input"] = call.arguments
        for piece in ["", *split_text(arguments, call.pieces)]:
            yield self._delta("input_json_delta", partial_json=piece)
        yield from self._stop_block()

    def _start_block(self, block: dict[str, Any]) -> Iterable[Chunk]:
        yield from self._start_message()
        yield from self._stop_block()
        self._blocks.append(dict(block))
        self._has_open_block = True
        yield {"type": "content_block_start", "index": len(self._blocks) - 1, "content_block": block}

    def _delta(self, kind: str, **fields: Any) -> Chunk:
        if kind == "signature_delta":
            self._blocks[-1]["signature"] = fields["signature"]
        return {"type": "content_block_delta", "index": len(self._blocks) - 1, "delta": {"type": kind, **fields}}

    def _stop_block(self) -> Iterable[Chunk]:
        if self._has_open_block:
            self._has_open_block = False
            yield {"type": "content_block_stop", "index": len(self._blocks) - 1}

    def _end_message(self, finish: Finish) -> Iterable[Chunk]:
        self._finish = finish
        yield from self._start_message()
        yield from self._stop_block()
        yield {"type": "message_delta", "delta": self._reason, "usage": self._usage}
        yield {"type": "message_stop"}

    @property
    def _head(self) -> dict[str, Any]:
        return {"id": "msg_scripted", "type": "message", "role": "assistant", "model": self._model}

    @property
    def _reason(self) -> dict[str, Any]:
        called = any(block["type"] == "tool_use" for block in self._blocks)
        reason = self._finish.reason or ("tool_use" if called else "end_turn")
        return {"stop_reason": reason, "stop_sequence": None}

    @property
    def _usage(self) -> Chunk:
        """Token usage in Anthropic's JSON.

        `output_tokens` includes thinking, `input_tokens` excludes the prompt cache.
        """
        finish = self._finish
        return {
            "input_tokens": finish.input - finish.cached - finish.cache_write,
            "cache_creation_input_tokens": finish.cache_write,
            "cache_read_input_tokens": finish.cached,
            "output_tokens": finish.output + finish.thinking,
            "output_tokens_details": {"thinking_tokens": finish.thinking},
        }


def _model_entry(name: str) -> Chunk:
    return {"type": "model", "id": name, "display_name": name, "created_at": "2026-01-01T00:00:00Z"}


def _parse_request(body: dict[str, Any], headers: Mapping[str, str]) -> ReceivedRequest:
    messages = body["messages"]
    texts = [(message["role"], _join_text(message["content"])) for message in messages]
    return ReceivedRequest(
        model=body["model"],
        text=next((text for role, text in reversed(texts) if role == "user" and text), ""),
        system=_join_text(body.get("system") or ""),
        messages=tuple(texts),
        tools=tuple(tool["name"] for tool in body.get("tools") or ()),
        tool_results=tuple(_parse_tool_results(messages)),
        body=body,
        headers=headers,
        is_streaming=bool(body.get("stream")),
    )


def _parse_tool_results(messages: Sequence[dict[str, Any]]) -> list[ReceivedToolResult]:
    names: dict[str, str] = {}
    results: list[ReceivedToolResult] = []
    for message in messages:
        blocks = _to_blocks(message["content"])
        if message["role"] == "assistant":
            names = {block["id"]: block["name"] for block in blocks if block["type"] == "tool_use"}
            results = []
        for block in blocks:
            if block["type"] == "tool_result":
                id_ = block["tool_use_id"]
                results.append(
                    ReceivedToolResult(id_, names.get(id_), decode_tool_result(_join_text(block.get("content") or "")))
                )
    return results


def _join_text(content: Any) -> str:
    return "".join(block["text"] for block in _to_blocks(content) if block["type"] == "text")


def _to_blocks(content: Any) -> Sequence[dict[str, Any]]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content
