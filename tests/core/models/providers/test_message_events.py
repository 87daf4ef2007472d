"""Answers in Anthropic's format in the shapes of compatible servers, and changed recordings of all vendors."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from google.genai import types
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from core.errors import ProviderError, ProviderRequestError, ProviderUnavailableError
from core.models.provider import (
    Done,
    Grounding,
    Media,
    ModelMessage,
    ModelRequest,
    Provider,
    ProviderEvent,
    Text,
    Thought,
    ToolCall,
)
from core.usage.meter import Usage
from tests.core.models.conftest import VENDORS
from tests.core.models.providers.test_completion_chunks import JSON
from tests.core.models.providers.test_completion_chunks import RECORDING as COMPLETION

REQUEST = ModelRequest("m", [ModelMessage("user", (Text("hi"),))], (), types.GenerateContentConfig())
STOP = types.FinishReason.STOP

PAGE = {"type": "web_search_result_location", "url": "https://a.example", "title": "A"}
SEARCH = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}


def start(index: int | None, block: Any) -> dict[str, Any]:
    return {"type": "content_block_start", "index": index, "content_block": block}


def delta(index: int | None, **fields: Any) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": fields}


def end(reason: str | None = "end_turn", usage: Any = None) -> list[dict[str, Any]]:
    return [{"type": "message_delta", "delta": {"stop_reason": reason}, "usage": usage}, {"type": "message_stop"}]


MESSAGE: list[dict[str, Any]] = [
    {"type": "message_start", "message": {"usage": {"input_tokens": 5, "output_tokens": 1}, "content": []}},
    {"type": "ping"},
    start(0, {"type": "thinking", "thinking": "", "signature": ""}),
    delta(0, type="thinking_delta", thinking="hm"),
    delta(0, type="signature_delta", signature="sig="),
    start(1, {"type": "redacted_thinking", "data": "data="}),
    start(2, SEARCH),
    delta(2, type="input_json_delta", partial_json='{"query": "x"}'),
    start(3, {"type": "web_search_tool_result", "tool_use_id": "s", "content": [{"encrypted_content": "x"}]}),
    start(4, {"type": "text", "text": ""}),
    delta(4, type="citations_delta", citation=PAGE),
    delta(4, type="text_delta", text="Hello"),
    {"type": "content_block_stop", "index": 4},
    start(5, {"type": "tool_use", "id": "c", "name": "f", "input": {}}),
    delta(5, type="input_json_delta", partial_json='{"n": 1}'),
    *end("pause_turn", {"output_tokens": 7, "output_tokens_details": {"thinking_tokens": 2}}),
]

CONTENT: list[dict[str, Any]] = [
    {
        "candidates": [
            {
                "content": {
                    "role": "model",
                    "parts": [
                        {"text": "hm", "thought": True, "thoughtSignature": "c2ln"},
                        {"text": "Hello"},
                        {"functionCall": {"id": "c", "name": "f", "args": {"n": 1}}},
                        {"inlineData": {"mimeType": "image/png", "data": "aaaa"}},
                        {"executableCode": {"code": "1", "language": "PYTHON"}},
                    ],
                },
                "finishReason": "STOP",
                "groundingMetadata": {"groundingChunks": [{"web": {"uri": "https://a.example", "title": "A"}}]},
                "urlContextMetadata": {"urlMetadata": [{"retrievedUrl": "https://a.example"}]},
                "safetyRatings": [{"category": "HARM_CATEGORY_HATE_SPEECH", "probability": "LOW"}],
            }
        ],
        "usageMetadata": {"promptTokenCount": 5, "candidatesTokenCount": 3, "thoughtsTokenCount": 1},
        "promptFeedback": {},
    }
]

RECORDINGS: Mapping[str, list[Any]] = {"anthropic": MESSAGE, "gemini": CONTENT, "openai": [COMPLETION]}


class RawServer:
    """Server that answers each request with the bytes in `body`."""

    def __init__(self) -> None:
        self.body = b""
        self.content_type = "text/event-stream"
        self.url = ""

    async def respond(self, _: web.Request) -> web.Response:
        return web.Response(body=self.body, content_type=self.content_type)


@asynccontextmanager
async def run_server(vendor: str) -> AsyncIterator[tuple[RawServer, Provider]]:
    server, app = RawServer(), web.Application()
    app.router.add_post("/{path:.*}", server.respond)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    provider = VENDORS[vendor][0]("key", f"http://127.0.0.1:{runner.addresses[0][1]}")
    try:
        yield server, provider
    finally:
        await provider.aclose()
        await runner.cleanup()


def encode(*events: Any) -> bytes:
    return "".join(f"data: {json.dumps(event)}\n\n" for event in events).encode()


async def collect(
    vendor: str, body: bytes | list[dict[str, Any]], content_type: str = "text/event-stream"
) -> list[ProviderEvent]:
    async with run_server(vendor) as (server, provider):
        server.body = body if isinstance(body, bytes) else encode(*body)
        server.content_type = content_type
        return [event async for event in provider.stream(REQUEST)]


HELLO = delta(0, type="text_delta", text="Hello")


@pytest.mark.parametrize(
    "events",
    [
        [HELLO, *end()],
        [start(None, {"type": "text", "text": ""}), delta(None, type="text_delta", text="Hello"), *end()],
        [start(0, {"type": "text", "text": "Hel"}), delta(0, type="text_delta", text="lo"), *end()],
        [start(0, {"type": "text", "text": None, "citations": 5}), HELLO, *end()],
        [start(0, {"type": "hologram"}), delta(0, type="hologram_delta"), HELLO, *end()],
        [{"type": "weather"}, HELLO, *end(None)],
        [{"type": "message", "content": [{"type": "text", "text": "Hello"}], "stop_reason": "end_turn"}],
    ],
    ids=["no start", "no index", "text in the start", "nulls", "unknown block", "no reason", "whole message"],
)
async def test_an_answer_is_read_in_any_shape(events: list[dict[str, Any]]) -> None:
    *texts, done = await collect("anthropic", events)
    assert "".join(event.text for event in texts if isinstance(event, Text)) == "Hello"
    assert done == Done(STOP, Usage())


async def test_a_whole_message_may_come_as_json() -> None:
    call = {"type": "tool_use", "id": "c", "name": "f", "input": {"n": 1}}
    body = {"type": "message", "content": [{"type": "text", "text": "Hello"}, call], "usage": {"output_tokens": "3"}}
    events = await collect("anthropic", json.dumps(body).encode(), "application/json")
    assert events == [Text("Hello"), ToolCall("c", "f", {"n": 1}), Done(STOP, Usage(0, 3))]


async def test_empty_events_and_comments_are_no_events() -> None:
    body = b": hi\n\ndata:\n\nevent: ping\n\n" + encode(HELLO) + b"data: \n\n" + encode(*end())
    assert await collect("anthropic", body) == [Text("Hello"), Done(STOP, Usage())]


async def test_calls_with_one_index_stay_two() -> None:
    calls = [
        event
        for name in ("f", "g")
        for event in (
            start(0, {"type": "tool_use", "id": name, "name": name}),
            delta(0, type="input_json_delta", partial_json="{}"),
        )
    ]
    assert (await collect("anthropic", [*calls, *end("tool_use")]))[:2] == [
        ToolCall("f", "f", {}),
        ToolCall("g", "g", {}),
    ]


@pytest.mark.parametrize(
    ("usage", "read"),
    [
        ({"input_tokens": "5", "output_tokens": "3"}, Usage(5, 3)),
        ({"input_tokens": 5.0, "output_tokens": None}, Usage(5, 0)),
        ({"input_tokens": "many", "output_tokens": [3]}, Usage()),
        ({"input_tokens": -5, "output_tokens": 3, "output_tokens_details": 7}, Usage(0, 3)),
        ("five", Usage()),
        (None, Usage()),
    ],
    ids=["texts", "float and null", "words", "negative", "text", "null"],
)
async def test_token_counts_that_cannot_be_read_cost_no_answer(usage: Any, read: Usage) -> None:
    assert await collect("anthropic", [HELLO, *end("end_turn", usage)]) == [Text("Hello"), Done(STOP, read)]
    counts = (
        {
            "promptTokenCount": usage.get("input_tokens"),
            "candidatesTokenCount": usage.get("output_tokens"),
        }
        if isinstance(usage, dict)
        else usage
    )
    chunk = {
        "candidates": [{"content": {"parts": [{"text": "Hello"}]}, "finishReason": "STOP"}],
        "usageMetadata": counts,
    }
    assert await collect("gemini", encode(chunk)) == [Text("Hello"), Done(STOP, read)]


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (b"data:\n\ndata: \n\n" + encode(*CONTENT) + b"data: [DONE]\n\n", "text/event-stream"),
        (json.dumps(CONTENT).encode(), "application/json"),
        (json.dumps(CONTENT[0]).encode(), "application/json"),
        (encode({**CONTENT[0], "candidates": CONTENT[0]["candidates"] + [5], "new": 1}), "text/event-stream"),
    ],
    ids=["empty events", "list", "object", "unknown fields"],
)
async def test_gemini_may_send_other_bodies(body: bytes, content_type: str) -> None:
    events = await collect("gemini", body, content_type)
    assert Text("Hello") in events
    assert ToolCall("c", "f", {"n": 1}) in events
    assert events[-1] == Done(STOP, Usage(5, 3, 1))


@pytest.mark.parametrize("metadata", ["x", [5], {"groundingChunks": 5}, {"groundingChunks": [{"web": {"uri": 4}}]}])
async def test_sources_of_an_unknown_shape_cost_no_answer(metadata: Any) -> None:
    candidate = {"content": {"parts": [{"text": "Hello"}]}, "finishReason": "STOP", "groundingMetadata": metadata}
    assert await collect("gemini", encode({"candidates": [candidate]})) == [Text("Hello"), Done(STOP, Usage())]
    citation = delta(0, type="citations_delta", citation=metadata)
    *events, done = await collect("anthropic", [HELLO, citation, *end()])
    assert [event for event in events if not isinstance(event, Grounding)] == [Text("Hello")]
    assert done == Done(STOP, Usage())


async def test_a_paused_answer_has_its_content() -> None:
    events = [event for event in MESSAGE if event.get("index") != 5]
    done = (await collect("anthropic", events))[-1]
    assert isinstance(done, Done)
    assert list(done.paused_content) == [
        {"type": "thinking", "thinking": "hm", "signature": "sig="},
        {"type": "redacted_thinking", "data": "data="},
        {**SEARCH, "input": {"query": "x"}},
        {"type": "web_search_tool_result", "tool_use_id": "s", "content": [{"encrypted_content": "x"}]},
        {"type": "text", "text": "Hello", "citations": [PAGE]},
    ]


@pytest.mark.parametrize("body", [{"type": "error", "error": None}, {"error": "oops"}, {"type": "error"}])
async def test_an_error_of_any_shape_ends_the_answer(body: dict[str, Any]) -> None:
    with pytest.raises(ProviderUnavailableError):
        await collect("anthropic", [HELLO, body])


def change(data: Any, events: list[Any]) -> bytes:
    """Return the bytes of a recording with one change, drawn from hypothesis' `data`."""
    events = json.loads(json.dumps(events))
    place: Any = events
    while isinstance(place, dict | list) and place:
        key = data.draw(st.sampled_from(list(place) if isinstance(place, dict) else range(len(place))))
        if not isinstance(place[key], dict | list) or not place[key] or data.draw(st.booleans()):
            if data.draw(st.booleans()):
                place[key] = data.draw(JSON)
            else:
                del place[key]
            break
        place = place[key]
    body = encode(*events) + b"data: [DONE]\n\n"
    return body if data.draw(st.booleans()) else body[: data.draw(st.integers(0, len(body)))]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("vendor", RECORDINGS)
def test_a_changed_recording_raises_nothing_but_provider_errors(vendor: str) -> None:
    with asyncio.Runner() as runner:
        connection = run_server(vendor)
        server, provider = runner.run(connection.__aenter__())

        async def read() -> list[ProviderEvent]:
            return [event async for event in provider.stream(REQUEST)]

        @settings(suppress_health_check=list(HealthCheck), deadline=None)
        @given(st.data())
        def check(data: Any) -> None:
            server.body = change(data, RECORDINGS[vendor])
            try:
                *events, done = runner.run(read())
            except ProviderRequestError as error:
                raise AssertionError("the request is no fault") from error
            except ProviderError:
                return
            assert isinstance(done, Done)
            for event in events:
                match event:
                    case Text(text) | Thought(text):
                        assert isinstance(text, str)
                    case ToolCall(id_, name, arguments):
                        assert isinstance(id_, str)
                        assert isinstance(name, str)
                        assert isinstance(arguments, dict)
                    case _:
                        assert isinstance(event, Media | Grounding)

        try:
            check()
        finally:
            runner.run(connection.__aexit__(None, None, None))
