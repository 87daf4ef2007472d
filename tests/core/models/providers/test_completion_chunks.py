"""Answers in the shapes of OpenAI-compatible servers, from the response to the events."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from google.genai import types
from hypothesis import strategies as st

from core.errors import ProviderError, ProviderUnavailableError
from core.models.provider import Done, ModelMessage, ModelRequest, ProviderEvent, Text, Thought, ToolCall
from core.models.providers.openai import OpenAIProvider, build_body
from core.usage.meter import Usage

REQUEST = ModelRequest("m", [ModelMessage("user", (Text("hi"),))], (), types.GenerateContentConfig())

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)

#: A recording of each known field.
RECORDING = {
    "choices": [
        {
            "finish_reason": "stop",
            "delta": {
                "content": [{"type": "text", "text": "Hello"}],
                "reasoning_content": "hm",
                "tool_calls": [{"index": 0, "id": "a", "function": {"name": "f", "arguments": "{}"}}],
                "images": [{"image_url": {"url": "data:image/png;base64,aaaa"}}],
                "annotations": [{"url_citation": {"url": "https://a.example", "title": "A"}}],
                "audio": {"data": "aaaa", "transcript": "hello"},
            },
        }
    ],
    "usage": {"prompt_tokens": 5, "prompt_tokens_details": {"cached_tokens": 1}, "completion_tokens": 3},
}


@asynccontextmanager
async def run_server(respond: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> AsyncIterator[OpenAIProvider]:
    app = web.Application()
    app.router.add_post("/v1/chat/completions", respond)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    provider = OpenAIProvider("key", f"http://127.0.0.1:{runner.addresses[0][1]}/v1")
    try:
        yield provider
    finally:
        await provider.aclose()
        await runner.cleanup()


async def collect(body: str, content_type: str = "text/event-stream") -> list[ProviderEvent]:
    async def respond(_: web.Request) -> web.StreamResponse:
        return web.Response(text=body, content_type=content_type)

    async with run_server(respond) as provider:
        return [event async for event in provider.stream(REQUEST)]


def stream(*chunks: Any, end: str = "data: [DONE]\n\n") -> str:
    return "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks) + end


def delta(finish: str | None = None, **fields: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": fields, "finish_reason": finish}]}


STOP = types.FinishReason.STOP


@pytest.mark.parametrize(
    "fields",
    [
        {"content": "Hello"},
        {"content": [{"type": "text", "text": "Hello"}]},
        {"content": {"type": "text", "text": "Hello"}},
        {"content": [{"type": "text", "text": {"value": "Hello"}}]},
        {"content": ["Hel", "lo"]},
        {"content": "Hello", "tool_calls": None, "images": None, "annotations": [None], "audio": None},
    ],
    ids=["text", "blocks", "block", "nested text", "texts", "null lists"],
)
async def test_a_text_may_have_any_form(fields: dict[str, Any]) -> None:
    *texts, done = await collect(stream(delta(**fields), delta("stop")))
    assert "".join(event.text for event in texts if isinstance(event, Text)) == "Hello"
    assert done == Done(STOP, Usage())


@pytest.mark.parametrize(
    "fields",
    [
        {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}]},
        {"content": [{"type": "thinking", "thinking": "hm"}]},
        {"content": [{"type": "reasoning", "text": "hm"}]},
        {"reasoning_content": "hm"},
        {"reasoning": [{"type": "text", "text": "hm"}]},
    ],
    ids=["blocks in a block", "block", "reasoning block", "field", "field of blocks"],
)
async def test_thoughts_in_blocks_are_no_text(fields: dict[str, Any]) -> None:
    events = await collect(stream(delta(**fields), delta("stop", content="Hello")))
    assert events == [Thought("hm"), Text("Hello"), Done(STOP, Usage())]


async def test_messages_may_come_in_place_of_deltas() -> None:
    chunk = {"choices": [{"message": {"role": "assistant", "content": "Hello"}, "finish_reason": "stop"}]}
    assert await collect(stream(chunk)) == [Text("Hello"), Done(STOP, Usage())]


async def test_an_answer_may_come_as_one_json_body() -> None:
    call = {"id": "a", "function": {"name": "f", "arguments": '{"n": 1}'}}
    body = {
        "choices": [{"message": {"content": "Hello", "tool_calls": [call]}, "finish_reason": "tool_calls"}],
        "usage": {"prompt_tokens": 5, "completion_tokens": 2},
    }
    events = await collect(json.dumps(body), "application/json")
    assert events == [Text("Hello"), ToolCall("a", "f", {"n": 1}), Done(STOP, Usage(5, 2))]


async def test_empty_events_and_comments_are_no_chunks() -> None:
    body = "data:\n\n: ping\n\n" + stream(delta(content="Hello"), end="data: \n\n") + stream(delta("stop"))
    assert await collect(body) == [Text("Hello"), Done(STOP, Usage())]


async def test_the_end_of_a_stream_may_stand_for_the_finish_reason() -> None:
    assert await collect(stream(delta(content="Hello"))) == [Text("Hello"), Done(STOP, Usage())]
    with pytest.raises(ProviderError, match="before the answer was complete"):
        await collect(stream(delta(content="Hello"), end=""))


@pytest.mark.parametrize(
    ("usage", "read"),
    [
        ({"prompt_tokens": "5", "completion_tokens": "3"}, Usage(5, 3)),
        ({"prompt_tokens": 5.0, "completion_tokens": None}, Usage(5, 0)),
        ({"prompt_tokens": "many", "completion_tokens": [3]}, Usage()),
        ({"prompt_tokens": -5, "completion_tokens": 1e400}, Usage()),
        ("five", Usage()),
        ([5, 3], Usage()),
    ],
    ids=["texts", "float and null", "words", "negative and infinite", "text", "list"],
)
async def test_token_counts_that_cannot_be_read_cost_no_answer(usage: Any, read: Usage) -> None:
    events = await collect(stream(delta("stop", content="Hello"), {"choices": [], "usage": usage}))
    assert events == [Text("Hello"), Done(STOP, read)]


@pytest.mark.parametrize(
    "chunk",
    [
        {"error": {"message": "overloaded", "code": 503}},
        {"error": "overloaded"},
        {"message": "overloaded", "code": 503},
        {"choices": [{"delta": {}, "finish_reason": "error", "error": {"code": 502, "message": "bad gateway"}}]},
        {"choices": [{"delta": {}, "finish_reason": "error"}]},
    ],
    ids=["error", "text", "message", "error of the choice", "finish reason"],
)
async def test_an_error_in_a_stream_ends_the_answer(chunk: dict[str, Any]) -> None:
    with pytest.raises(ProviderUnavailableError) as failed:
        await collect(stream(delta(content="Half of"), chunk))
    assert failed.value.retryable


@pytest.mark.parametrize(
    ("host", "limit", "searches"),
    [
        ("api.openai.com", "max_completion_tokens", True),
        ("eu.api.openai.com", "max_completion_tokens", True),
        ("mine.openai.azure.com", "max_completion_tokens", False),
        ("mine.services.ai.azure.com", "max_completion_tokens", False),
        ("openrouter.ai", "max_tokens", False),
        ("api.openai.com.example", "max_tokens", False),
        ("127.0.0.1", "max_tokens", False),
    ],
)
def test_the_parameters_follow_the_host(host: str, limit: str, searches: bool) -> None:
    tools: Any = [types.Tool(google_search=types.GoogleSearch())]
    config = types.GenerateContentConfig(max_output_tokens=9, tools=tools)
    body = build_body(ModelRequest("gpt-5", REQUEST.messages, (), config), host)
    assert {name for name in ("max_tokens", "max_completion_tokens") if name in body} == {limit}
    assert ("web_search_options" in body) is searches
