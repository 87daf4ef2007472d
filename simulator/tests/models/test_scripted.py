"""Scripted models, called by the vendors' own client libraries."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import anthropic
import pytest
from anthropic.types import TextBlock, ThinkingBlock, ToolUseBlock
from google import genai
from google.genai import errors, types
from google.genai.client import AsyncClient
from hypothesis import given
from hypothesis import strategies as st
from openai import AsyncOpenAI, NotFoundError

from chatrig.models import (
    CallTool,
    DropConnection,
    Fail,
    Finish,
    Pause,
    ReceivedRequest,
    ReceivedToolResult,
    Say,
    ScriptedAnthropic,
    ScriptedGemini,
    ScriptedOpenAI,
    Stall,
    Step,
    Think,
)
from chatrig.models.script import split_text

Server = ScriptedGemini | ScriptedOpenAI | ScriptedAnthropic
each = pytest.mark.parametrize("kind", [ScriptedGemini, ScriptedOpenAI, ScriptedAnthropic])


async def post_request(server: Server, text: str = "Hi", *, stream: bool = False) -> tuple[int, str]:
    """Post a model request without a client library.

    Returns:
        The HTTP status and the body.
    """
    headers = {}
    body: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": text}], "stream": stream}
    if isinstance(server, ScriptedOpenAI):
        url = f"{server.base_url}/chat/completions"
    elif isinstance(server, ScriptedAnthropic):
        url = f"{server.base_url}/v1/messages"
        headers["anthropic-version"] = "2023-06-01"
        body["max_tokens"] = 100
    else:
        method = "streamGenerateContent?alt=sse" if stream else "generateContent"
        url = f"{server.base_url}/v1beta/models/m:{method}"
        body = {"contents": [{"role": "user", "parts": [{"text": text}]}]}
    async with aiohttp.ClientSession() as http, http.post(url, json=body, headers=headers) as response:
        return response.status, await response.text()


def create_openai_client(server: ScriptedOpenAI) -> AsyncOpenAI:
    return AsyncOpenAI(api_key="k", base_url=server.base_url, max_retries=0)


def create_anthropic_client(server: ScriptedAnthropic) -> anthropic.AsyncAnthropic:
    return anthropic.AsyncAnthropic(api_key="k", base_url=server.base_url, max_retries=0)


@asynccontextmanager
async def create_gemini_client(server: ScriptedGemini) -> AsyncIterator[AsyncClient]:
    options = types.HttpOptions(base_url=server.base_url)
    async with genai.Client(vertexai=False, api_key="k", http_options=options).aio as client:
        yield client


SCRIPT: list[Step] = [
    Think("Hm."),
    Say("Hello world", pieces=3),
    CallTool("add", {"a": 1}, "c1", pieces=2),
    Finish(input=9, output=4, thinking=2, cached=1),
]


async def test_openais_client_reads_a_complete_response() -> None:
    async with ScriptedOpenAI([SCRIPT]) as server, create_openai_client(server) as client:
        completion = await client.chat.completions.create(model="m", messages=[{"role": "user", "content": "Hi"}])
    [choice] = completion.choices
    assert choice.message.content == "Hello world"
    assert choice.finish_reason == "tool_calls"
    assert choice.message.tool_calls is not None
    assert choice.message.tool_calls[0].to_dict()["function"] == {"name": "add", "arguments": '{"a": 1}'}
    assert completion.usage is not None
    assert (completion.usage.prompt_tokens, completion.usage.completion_tokens) == (9, 6)


async def test_openais_client_reads_a_stream() -> None:
    async with ScriptedOpenAI([SCRIPT]) as server, create_openai_client(server) as client:
        stream = await client.chat.completions.create(
            model="m", messages=[{"role": "user", "content": "Hi"}], stream=True
        )
        chunks = [chunk async for chunk in stream]
    texts = [chunk.choices[0].delta.content for chunk in chunks if chunk.choices[0].delta.content]
    assert texts == ["Hell", "o wo", "rld"]
    assert chunks[-1].choices[0].finish_reason == "tool_calls"


async def test_openais_client_lists_the_models() -> None:
    async with ScriptedOpenAI(models=["a", "b/c"]) as server, create_openai_client(server) as client:
        assert [model.id async for model in client.models.list()] == ["a", "b/c"]
        assert (await client.models.retrieve("b/c")).id == "b/c"
        with pytest.raises(NotFoundError):
            await client.models.retrieve("d")


async def test_googles_client_reads_a_complete_response() -> None:
    async with ScriptedGemini([SCRIPT]) as server, create_gemini_client(server) as client:
        response = await client.models.generate_content(model="m", contents="Hi")
    assert response.text == "Hello world"
    assert response.function_calls == [types.FunctionCall(id="c1", name="add", args={"a": 1})]
    assert response.usage_metadata is not None
    assert response.usage_metadata.total_token_count == 15


async def test_gemini_answers_with_one_part_per_text_without_streaming() -> None:
    script: list[Step] = [
        Think("Let me see.", pieces=4),
        Say("Hello world", pieces=12),
        CallTool("add", {"a": 1}),
        CallTool("add", {"a": 2}),
        Say("signed", pieces=3, signature=b"s"),
        Say("Bye.", pieces=2),
    ]
    async with ScriptedGemini([script]) as server, create_gemini_client(server) as client:
        response = await client.models.generate_content(model="m", contents="Hi")
    assert response.parts == [
        types.Part(text="Let me see.", thought=True),
        types.Part(text="Hello world"),
        types.Part(function_call=types.FunctionCall(name="add", args={"a": 1})),
        types.Part(function_call=types.FunctionCall(name="add", args={"a": 2})),
        types.Part(text="signed", thought_signature=b"s"),
        types.Part(text="Bye."),
    ]


async def test_googles_client_reads_a_stream() -> None:
    async with ScriptedGemini([[Say("Hello world", pieces=3)]]) as server, create_gemini_client(server) as client:
        stream = await client.models.generate_content_stream(model="m", contents="Hi")
        texts = [chunk.text async for chunk in stream]
    assert [text for text in texts if text] == ["Hell", "o wo", "rld"]


async def test_googles_client_lists_the_models() -> None:
    async with ScriptedGemini(models=["a"]) as server, create_gemini_client(server) as client:
        assert [model.name async for model in await client.models.list()] == ["models/a"]
        assert (await client.models.get(model="a")).name == "models/a"
        with pytest.raises(errors.ClientError):
            await client.models.get(model="b")


async def test_anthropics_client_reads_a_complete_response() -> None:
    async with ScriptedAnthropic([SCRIPT]) as server, create_anthropic_client(server) as client:
        message = await client.messages.create(model="m", max_tokens=100, messages=[{"role": "user", "content": "Hi"}])
    thought, text, call = message.content
    assert isinstance(thought, ThinkingBlock)
    assert isinstance(text, TextBlock)
    assert isinstance(call, ToolUseBlock)
    assert (thought.thinking, text.text) == ("Hm.", "Hello world")
    assert (call.id, call.name, call.input) == ("c1", "add", {"a": 1})
    assert message.stop_reason == "tool_use"
    usage = message.usage
    assert (usage.input_tokens, usage.cache_read_input_tokens, usage.output_tokens) == (8, 1, 6)


async def test_anthropics_client_reads_a_stream() -> None:
    signed = [Think("Hm.", pieces=2, signature=b"sig="), Think("", signature=b"data=")]
    async with (
        ScriptedAnthropic([[*signed, *SCRIPT[1:]]]) as server,
        create_anthropic_client(server) as client,
        client.messages.stream(model="m", max_tokens=100, messages=[{"role": "user", "content": "Hi"}]) as stream,
    ):
        texts = [text async for text in stream.text_stream]
        message = await stream.get_final_message()
    assert texts == ["Hell", "o wo", "rld"]
    assert [block.to_dict() for block in message.content] == [
        {"type": "thinking", "thinking": "Hm.", "signature": "sig="},
        {"type": "redacted_thinking", "data": "data="},
        {"type": "text", "text": "Hello world"},
        {"type": "tool_use", "id": "c1", "name": "add", "input": {"a": 1}},
    ]
    assert message.stop_reason == "tool_use"
    assert message.usage.output_tokens == 6


async def test_anthropics_client_lists_the_models() -> None:
    async with ScriptedAnthropic(models=["a", "b"]) as server, create_anthropic_client(server) as client:
        assert [model.id async for model in client.models.list()] == ["a", "b"]
        assert (await client.models.retrieve("b")).id == "b"
        with pytest.raises(anthropic.NotFoundError):
            await client.models.retrieve("d")


async def test_anthropics_client_reads_an_overload_error_in_a_stream() -> None:
    async with ScriptedAnthropic([[Say("Hel"), Fail(529)]]) as server, create_anthropic_client(server) as client:
        stream = await client.messages.create(
            model="m", max_tokens=100, messages=[{"role": "user", "content": "Hi"}], stream=True
        )
        with pytest.raises(anthropic.APIStatusError) as raised:
            [_ async for _ in stream]
    assert raised.value.type == "overloaded_error"


@each
async def test_a_script_can_be_a_function_of_the_request(kind: Callable[..., Server]) -> None:
    def script(request: ReceivedRequest) -> str:
        return f"{request.text}!"

    async with kind(script) as server:
        answers = await asyncio.gather(post_request(server, "one"), post_request(server, "two", stream=True))
    assert "one!" in answers[0][1]
    assert "two!" in answers[1][1]
    assert sorted(request.text for request in server.received) == ["one", "two"]


@each
async def test_responses_are_played_in_order_and_can_be_added(kind: Callable[..., Server]) -> None:
    async with kind(["first"]) as server:
        server.add_responses("second", [Say("third")])
        for word in ("first", "second", "third"):
            assert word in (await post_request(server))[1]
        status, body = await post_request(server)
    assert status == 400
    assert "no turn" in body
    assert len(server.requests) == 4


@pytest.mark.parametrize(
    ("kind", "path", "body"),
    [
        (
            ScriptedOpenAI,
            "/chat/completions",
            {
                "messages": [
                    {"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "weather"}}]},
                    {"role": "tool", "tool_call_id": "c", "content": "sunny, 20°"},
                ]
            },
        ),
        (
            ScriptedAnthropic,
            "/v1/messages",
            {
                "messages": [
                    {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "weather", "input": {}}]},
                    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "sunny, 20°"}]},
                ]
            },
        ),
    ],
)
async def test_a_tool_result_may_be_text(kind: Callable[..., Server], path: str, body: dict[str, Any]) -> None:
    async with (
        kind(["ok"]) as server,
        aiohttp.ClientSession(headers={"anthropic-version": "2023-06-01"}) as http,
        http.post(server.base_url + path, json={"model": "m", **body}) as response,
    ):
        assert response.status == 200
    assert server.received[0].tool_results == (ReceivedToolResult("c", "weather", "sunny, 20°"),)


@each
async def test_only_the_api_key_is_accepted(kind: Callable[..., Server]) -> None:
    async with kind(["ok"], api_key="right") as server:
        status, body = await post_request(server)
    assert status in (400, 401)
    assert "key" in json.loads(body)["error"]["message"]
    assert server.requests == []


@each
async def test_an_error_has_the_vendors_format(kind: Callable[..., Server]) -> None:
    async with kind([Fail(503, "overloaded", retry_after=2), Fail(500, body="oops")]) as server:
        status, body = await post_request(server, stream=True)
        assert (status, json.loads(body)["error"]["message"]) == (503, "overloaded")
        assert await post_request(server) == (500, "oops")


@each
@pytest.mark.parametrize("stream", [False, True])
async def test_a_connection_can_be_dropped(kind: Callable[..., Server], stream: bool) -> None:
    async with kind([[Say("Hel"), DropConnection()]]) as server:
        with pytest.raises(aiohttp.ClientError):
            await post_request(server, stream=stream)


@each
async def test_a_disconnect_of_the_client_is_counted(kind: Callable[..., Server]) -> None:
    async with kind([[Say("Hel"), Stall()], "fine"]) as server:
        request = asyncio.create_task(post_request(server, stream=True))
        await server.wait_for_requests(1)
        request.cancel()
        await asyncio.wait([request])
        await server.wait_for_disconnects(1)
        await post_request(server)
    assert server.disconnects == 1


@each
async def test_a_stalled_response_does_not_delay_the_shutdown(kind: Callable[..., Server]) -> None:
    async with asyncio.timeout(30):
        async with kind([Stall()]) as server:
            request = asyncio.create_task(post_request(server))
            await server.wait_for_requests(1)
        await asyncio.wait([request])
        request.exception()
    assert server.disconnects == 0


@each
async def test_a_response_can_be_paused(kind: Callable[..., Server]) -> None:
    gate = asyncio.Event()
    async with kind([[Pause(gate), Say("at last")]]) as server:
        request = asyncio.create_task(post_request(server))
        await server.wait_for_requests(1)
        assert not request.done()
        gate.set()
        assert "at last" in (await request)[1]


@given(st.text(), st.integers(1, 9))
def test_split_text_loses_nothing(text: str, pieces: int) -> None:
    parts = split_text(text, pieces)
    assert "".join(parts) == text
    assert 1 <= len(parts) <= pieces
