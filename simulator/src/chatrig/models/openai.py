"""Scripted model with OpenAI's chat completions API and Responses API.

OpenAI: https://platform.openai.com/docs/api-reference/chat
"""

import base64
import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from typing import Any

from aiohttp import web

from chatrig.models.openai_responses import (
    SYSTEM_ROLES,
    Item,
    ResponsesWireFormat,
    join_text,
    list_input_items,
    parse_responses_request,
)
from chatrig.models.script import (
    CallTool,
    Cite,
    Fail,
    Finish,
    RawChunk,
    ReceivedRequest,
    ReceivedToolResult,
    Say,
    Script,
    SendFile,
    Step,
    Think,
    decode_tool_result,
    split_text,
)
from chatrig.models.server import Chunk, ScriptedServer, WireFormat

_ERROR_TYPES = {
    400: "invalid_request_error",
    401: "invalid_request_error",
    404: "invalid_request_error",
    429: "requests",
}


class ScriptedOpenAI(ScriptedServer):
    """Scripted model server with OpenAI's chat completions API and Responses API.

        async with ScriptedOpenAI(["Hello!"]) as openai:
            openai.add_responses([CallTool("weather", {"city": "Oslo"})], "Sunny.")
            start_bot(OPENAI_BASE_URL=openai.base_url)
            ...
            assert openai.received[0].text == "hi"

    One script serves both APIs. The server knows `POST chat/completions`, `POST responses`, `GET models` and
    `GET models/{id}`, and answers other paths with 404.

    Attributes:
        base_url: the client's base URL, with `/v1`: `OpenAI(base_url=...)` or the variable `OPENAI_BASE_URL`.
        requests: JSON bodies of the accepted generation requests, in order.
        received: the same requests as `ReceivedRequest` objects, the same for both APIs and all vendors.
        disconnects: number of responses that the client aborted.
    """

    url_variable, key_variable = "OPENAI_BASE_URL", "OPENAI_API_KEY"

    def __init__(
        self,
        script: Script = (),
        *,
        api_key: str | None = None,
        models: Sequence[str] | None = None,
        port: int = 0,
    ) -> None:
        super().__init__(script, api_key=api_key, models=models, port=port)
        self._response_numbers = count()
        #: Input and output of each stored response of the Responses API, by its id.
        self._stored_items: dict[str, list[Item]] = {}

    @property
    def base_url(self) -> str:
        return f"{self._origin}/v1"

    def list_routes(self) -> list[web.RouteDef]:
        return [
            web.post("/v1/chat/completions", self._handle_completion),
            web.post("/v1/responses", self._handle_response),
            web.get("/v1/models", self._list_models),
            web.get("/v1/models/{model:.+}", self._get_model),
        ]

    def error_body(self, fail: Fail) -> Chunk:
        kind = _ERROR_TYPES.get(fail.status, "server_error" if fail.status >= 500 else "invalid_request_error")
        return {"error": {"message": fail.message, "type": kind, "param": None, "code": fail.code}}

    def event_name(self, chunk: Chunk) -> str | None:
        return chunk.get("type")

    async def _handle_completion(self, request: web.Request) -> web.StreamResponse:
        body = await self.read_body(request, "model", "messages")
        if (error := self._check_request(request, body["model"])) is not None:
            return error
        received = _parse_request(body, request.headers)
        usage = bool((body.get("stream_options") or {}).get("include_usage"))
        return await self.play(request, received, _OpenAIWireFormat(received.model, usage), b"data: [DONE]\n\n")

    async def _handle_response(self, request: web.Request) -> web.StreamResponse:
        body = await self.read_body(request, "model")
        if (error := self._check_request(request, body["model"])) is not None:
            return error
        previous_id = body.get("previous_response_id") or ""
        if previous_id and previous_id not in self._stored_items:
            message = f"Previous response with id '{previous_id}' not found."
            return self.error_response(Fail(400, message, "previous_response_not_found"))
        items = [*self._stored_items.get(previous_id, ()), *list_input_items(body)]
        received = parse_responses_request(body, items, request.headers)
        response_id = f"resp_scripted_{next(self._response_numbers)}"
        wire_format = ResponsesWireFormat(response_id, body)
        response = await self.play(request, received, wire_format, b"")
        if body.get("store", True):
            self._stored_items[response_id] = [*items, *wire_format.output]
        return response

    async def _list_models(self, request: web.Request) -> web.Response:
        if (error := self._check_request(request)) is not None:
            return error
        return web.json_response({"object": "list", "data": [_model_entry(name) for name in self._models or ()]})

    async def _get_model(self, request: web.Request) -> web.Response:
        name = request.match_info["model"]
        return self._check_request(request, name) or web.json_response(_model_entry(name))

    def _check_request(self, request: web.Request, model: str | None = None) -> web.Response | None:
        """Return the error response for a wrong key or an unknown model; None otherwise.

        Args:
            model: the requested model; None for a request without one.
        """
        if self._api_key is not None and request.headers.get("Authorization") != f"Bearer {self._api_key}":
            return self.error_response(Fail(401, "Incorrect API key provided.", "invalid_api_key"))
        if model is not None and self._models is not None and model not in self._models:
            return self.error_response(Fail(404, f"The model `{model}` does not exist.", "model_not_found"))
        return None


class _OpenAIWireFormat(WireFormat):
    def __init__(self, model: str, include_usage: bool) -> None:
        self._model = model
        self._include_usage = include_usage
        self._text = self._reasoning = ""
        self._calls: list[CallTool] = []
        self._finish = Finish()

    def to_chunks(self, step: Step) -> Iterable[Chunk]:
        match step:
            case Say(text):
                self._text += text
                yield self._delta({"content": text})
            case Think(text):
                self._reasoning += text
                yield self._delta({"reasoning_content": text})
            case CallTool():
                yield from self._tool_call_chunks(step)
            case SendFile(mime_type, data):
                encoded = base64.b64encode(data).decode()
                if mime_type.startswith("audio/"):
                    yield self._delta({"audio": {"id": "audio_scripted", "data": encoded}})
                else:
                    image = {"type": "image_url", "image_url": {"url": f"data:{mime_type};base64,{encoded}"}}
                    yield self._delta({"images": [image]})
            case Cite(url, title):
                page = {"url": url, "title": title, "start_index": 0, "end_index": len(self._text)}
                yield self._delta({"annotations": [{"type": "url_citation", "url_citation": page}]})
            case Finish():
                self._finish = step
                yield self._delta({}, self._reason)
                if self._include_usage:
                    yield self._chunk([], usage=self._usage)
            case RawChunk(chunk):
                yield chunk
            case _:
                return

    def body(self) -> Chunk:
        message: dict[str, Any] = {"role": "assistant", "content": self._text or None, "refusal": None}
        if self._reasoning:
            message["reasoning_content"] = self._reasoning
        if self._calls:
            message["tool_calls"] = [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": _encode_arguments(call)},
                }
                for call in self._calls
            ]
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": self._reason}
        return {**self._chunk([choice], usage=self._usage), "object": "chat.completion"}

    def _tool_call_chunks(self, call: CallTool) -> Iterable[Chunk]:
        index = len(self._calls)
        self._calls.append(call)
        first, *rest = split_text(_encode_arguments(call), call.pieces)
        begin: dict[str, Any] = {
            "index": index,
            "type": "function",
            "function": {"name": call.name, "arguments": first},
        }
        if call.id is not None:
            begin["id"] = call.id
        yield self._delta({"tool_calls": [begin]})
        for piece in rest:
            yield self._delta({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})

    def _delta(self, delta: Chunk, finish: str | None = None) -> Chunk:
        return self._chunk([{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}])

    def _chunk(self, choices: list[Chunk], **fields: Any) -> Chunk:
        return {
            "id": "chatcmpl-scripted",
            "object": "chat.completion.chunk",
            "created": 1_700_000_000,
            "model": self._model,
            "choices": choices,
            **fields,
        }

    @property
    def _reason(self) -> str:
        return self._finish.reason or ("tool_calls" if self._calls else "stop")

    @property
    def _usage(self) -> Chunk:
        """Token usage in OpenAI's JSON.

        `completion_tokens` includes reasoning, `prompt_tokens` includes cached tokens.
        """
        finish = self._finish
        output = finish.output + finish.thinking
        return {
            "prompt_tokens": finish.input,
            "completion_tokens": output,
            "total_tokens": finish.input + output,
            "prompt_tokens_details": {"cached_tokens": finish.cached, "cache_write_tokens": finish.cache_write},
            "completion_tokens_details": {"reasoning_tokens": finish.thinking},
        }


def _encode_arguments(call: CallTool) -> str:
    return call.raw if call.raw is not None else json.dumps(call.arguments)


def _model_entry(name: str) -> Chunk:
    return {"id": name, "object": "model", "created": 1_700_000_000, "owned_by": "simulator"}


def _parse_request(body: dict[str, Any], headers: Mapping[str, str]) -> ReceivedRequest:
    messages = body["messages"]
    texts = [
        (message["role"], join_text(message.get("content")))
        for message in messages
        if message["role"] not in SYSTEM_ROLES
    ]
    return ReceivedRequest(
        model=body["model"],
        text=next((text for role, text in reversed(texts) if role == "user"), ""),
        system="\n".join(join_text(message["content"]) for message in messages if message["role"] in SYSTEM_ROLES),
        messages=tuple(texts),
        tools=tuple(tool["function"]["name"] for tool in body.get("tools") or ()),
        tool_results=tuple(_parse_tool_results(messages)),
        body=body,
        headers=headers,
        is_streaming=bool(body.get("stream")),
    )


def _parse_tool_results(messages: Sequence[dict[str, Any]]) -> list[ReceivedToolResult]:
    names: dict[str, str] = {}
    results: list[ReceivedToolResult] = []
    for message in messages:
        if message["role"] == "assistant":
            calls = message.get("tool_calls") or ()
            names = {call["id"]: call["function"]["name"] for call in calls}
            results = []
        elif message["role"] == "tool":
            id_ = message["tool_call_id"]
            results.append(ReceivedToolResult(id_, names.get(id_), decode_tool_result(join_text(message["content"]))))
    return results
