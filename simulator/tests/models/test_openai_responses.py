"""OpenAI's Responses API of `ScriptedOpenAI`, called by OpenAI's own client libraries."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import openai
import pytest
from openai import AsyncOpenAI, OpenAI
from openai.types.responses import Response, ResponseInputParam, ResponseStreamEvent

from chatrig.models import (
    CallTool,
    Cite,
    DropConnection,
    EndStream,
    Fail,
    Finish,
    Pause,
    ReceivedToolResult,
    Say,
    ScriptedOpenAI,
    SendFile,
    Stall,
    Step,
    Think,
)

SCRIPT: list[Step] = [
    Think("Hm.", pieces=2),
    Say("Hello world", pieces=3),
    Cite("https://example.com/", "Example"),
    CallTool("add", {"a": 1}, "c1", pieces=2),
    Finish(input=9, output=4, thinking=2, cached=1),
]
OUTPUT: list[dict[str, Any]] = [
    {"type": "reasoning", "status": "completed", "summary": [{"type": "summary_text", "text": "Hm."}]},
    {
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": [
            {
                "type": "output_text",
                "text": "Hello world",
                "logprobs": [],
                "annotations": [
                    {
                        "type": "url_citation",
                        "url": "https://example.com/",
                        "title": "Example",
                        "start_index": 0,
                        "end_index": 11,
                    }
                ],
            }
        ],
    },
    {"type": "function_call", "status": "completed", "call_id": "c1", "name": "add", "arguments": '{"a": 1}'},
]


@pytest.fixture
async def server() -> AsyncIterator[ScriptedOpenAI]:
    async with ScriptedOpenAI() as server:
        yield server


@pytest.fixture
async def client(server: ScriptedOpenAI) -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(api_key="k", base_url=server.base_url, max_retries=0) as client:
        yield client


def list_output(response: Response) -> list[dict[str, Any]]:
    return [{name: value for name, value in item.to_dict().items() if name != "id"} for item in response.output]


async def read_events(client: AsyncOpenAI, **fields: Any) -> list[ResponseStreamEvent]:
    stream = await client.responses.create(model="m", input="Hi", stream=True, **fields)
    return [event async for event in stream]


async def test_the_client_reads_a_complete_response(server: ScriptedOpenAI, client: AsyncOpenAI) -> None:
    server.add_responses(SCRIPT)
    response = await client.responses.create(model="m", input="Hi", instructions="Be brief.")
    assert response.output_text == "Hello world"
    assert list_output(response) == OUTPUT
    assert (response.status, response.error, response.incomplete_details) == ("completed", None, None)
    assert response.usage is not None
    assert response.usage.to_dict() == {
        "input_tokens": 9,
        "input_tokens_details": {"cached_tokens": 1, "cache_write_tokens": 0},
        "output_tokens": 6,
        "output_tokens_details": {"reasoning_tokens": 2},
        "total_tokens": 15,
    }
    [request] = server.received
    assert (request.text, request.system, request.is_streaming) == ("Hi", "Be brief.", False)


async def test_a_stream_has_the_events_of_each_item(server: ScriptedOpenAI, client: AsyncOpenAI) -> None:
    server.add_responses(SCRIPT)
    events = await read_events(client)
    assert [event.type.removeprefix("response.") for event in events] == [
        "created",
        "in_progress",
        "output_item.added",
        "reasoning_summary_part.added",
        "reasoning_summary_text.delta",
        "reasoning_summary_text.delta",
        "reasoning_summary_text.done",
        "reasoning_summary_part.done",
        "output_item.done",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.delta",
        "output_text.delta",
        "output_text.annotation.added",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
        "completed",
    ]
    assert [getattr(event, "sequence_number", None) for event in events] == list(range(len(events)))
    added = [event.item.to_dict() for event in events if event.type == "response.output_item.added"]
    assert [(item["type"], item["status"]) for item in added] == [
        ("reasoning", "in_progress"),
        ("message", "in_progress"),
        ("function_call", "in_progress"),
    ]
    assert [event.delta for event in events if event.type == "response.output_text.delta"] == ["Hell", "o wo", "rld"]
    assert server.received[0].is_streaming


async def test_the_events_have_the_fields_that_the_client_declares(server: ScriptedOpenAI, client: AsyncOpenAI) -> None:
    server.add_responses([*SCRIPT[:-1], SendFile("image/png", b"\x89PNG"), Finish()], [Say("Hel"), Fail(500)])
    for event in [*await read_events(client), *await read_events(client)]:
        type(event).model_validate(event.to_dict())


async def test_the_clients_stream_helper_collects_the_response(server: ScriptedOpenAI, client: AsyncOpenAI) -> None:
    server.add_responses(SCRIPT)
    async with client.responses.stream(model="m", input="Hi") as stream:
        response = await stream.get_final_response()
    assert response.output_text == "Hello world"
    assert [item.type for item in response.output] == ["reasoning", "message", "function_call"]


async def test_the_blocking_client_reads_responses_and_streams(server: ScriptedOpenAI) -> None:
    server.add_responses("one", Say("two", pieces=3))

    def ask() -> tuple[str, list[str]]:
        with OpenAI(api_key="k", base_url=server.base_url, max_retries=0) as client:
            text = client.responses.create(model="m", input="Hi").output_text
            with client.responses.create(model="m", input="Hi", stream=True) as stream:
                return text, [event.delta for event in stream if event.type == "response.output_text.delta"]

    assert await asyncio.to_thread(ask) == ("one", ["t", "w", "o"])


async def test_one_script_serves_both_apis(server: ScriptedOpenAI, client: AsyncOpenAI) -> None:
    server.add_responses("first", "second")
    response = await client.responses.create(model="m", input="Hi")
    completion = await client.chat.completions.create(model="m", messages=[{"role": "user", "content": "Hi"}])
    assert response.output_text == "first"
    assert completion.choices[0].message.content == "second"
    assert [request.text for request in server.received] == ["Hi", "Hi"]


@pytest.mark.parametrize("stored", [False, True], ids=["whole history", "previous_response_id"])
async def test_the_results_of_tools_are_received(server: ScriptedOpenAI, client: AsyncOpenAI, stored: bool) -> None:
    server.add_responses([Think("Hm."), CallTool("weather"), CallTool("time")], "Sunny.", "Bye.")
    question: ResponseInputParam = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": [{"type": "input_text", "text": "Weather?"}]},
    ]
    first = await client.responses.create(
        model="m",
        input=question,
        tools=[
            {"type": "function", "name": "weather", "parameters": {"type": "object"}, "strict": False},
            {"type": "web_search"},
        ],
    )
    calls = [item for item in first.output if item.type == "function_call"]
    results: ResponseInputParam = [
        {"type": "function_call_output", "call_id": calls[0].call_id, "output": "sunny, 20°"},
        {"type": "function_call_output", "call_id": calls[1].call_id, "output": '{"hour": 9}'},
    ]
    history: ResponseInputParam = [*question, *[item.to_dict() for item in first.output]]  # type: ignore[list-item]
    second = await (
        client.responses.create(model="m", input=results, previous_response_id=first.id)
        if stored
        else client.responses.create(model="m", input=[*history, *results])
    )
    received = server.received[1]
    assert received.tool_results == (
        ReceivedToolResult(calls[0].call_id, "weather", "sunny, 20°"),
        ReceivedToolResult(calls[1].call_id, "time", {"hour": 9}),
    )
    assert (received.text, received.system) == ("Weather?", "Be brief.")
    assert received.messages == (("user", "Weather?"),)
    assert server.received[0].tools == ("weather", "web_search")
    await client.responses.create(model="m", input="Thanks", previous_response_id=second.id)
    if stored:
        assert server.received[2].tool_results == ()
        assert server.received[2].messages == (("user", "Weather?"), ("assistant", "Sunny."), ("user", "Thanks"))


async def test_an_unknown_earlier_response_is_refused(server: ScriptedOpenAI, client: AsyncOpenAI) -> None:
    server.add_responses("Hello.")
    unstored = await client.responses.create(model="m", input="Hi", store=False)
    for response_id in ("resp_unknown", unstored.id):
        with pytest.raises(openai.BadRequestError) as raised:
            await client.responses.create(model="m", input="Hi", previous_response_id=response_id)
        assert raised.value.code == "previous_response_not_found"
    assert len(server.requests) == 1


@pytest.mark.parametrize("reason", ["max_output_tokens", "length"])
async def test_a_truncated_response_is_incomplete(server: ScriptedOpenAI, client: AsyncOpenAI, reason: str) -> None:
    server.add_responses([Say("Hel"), Finish(reason)], [Say("Hel"), Finish(reason)])
    response = await client.responses.create(model="m", input="Hi")
    last = (await read_events(client))[-1]
    assert last.type == "response.incomplete"
    for result in (response, last.response):
        assert result.status == "incomplete"
        assert result.incomplete_details is not None
        assert result.incomplete_details.reason == "max_output_tokens"
        assert result.output[0].to_dict()["status"] == "incomplete"
        assert result.output_text == "Hel"


async def test_an_error_within_a_stream_fails_the_response(server: ScriptedOpenAI, client: AsyncOpenAI) -> None:
    server.add_responses([Say("Hel"), Fail(429, "slow down")])
    events = await read_events(client)
    error, failed = events[-2:]
    assert error.type == "error"
    assert (error.code, error.message) == ("rate_limit_exceeded", "slow down")
    assert failed.type == "response.failed"
    assert failed.response.status == "failed"
    assert failed.response.error is not None
    assert failed.response.error.to_dict() == {"code": "rate_limit_exceeded", "message": "slow down"}


@pytest.mark.parametrize("stream", [False, True])
async def test_an_error_before_the_answer_is_an_http_error(
    server: ScriptedOpenAI, client: AsyncOpenAI, stream: bool
) -> None:
    server.add_responses(Fail(429, "no money", code="insufficient_quota", retry_after=2))
    with pytest.raises(openai.RateLimitError) as raised:
        await client.responses.create(model="m", input="Hi", stream=stream)
    assert raised.value.code == "insufficient_quota"
    assert raised.value.response.headers["Retry-After"] == "2"


async def test_a_stream_can_end_early_or_break(server: ScriptedOpenAI, client: AsyncOpenAI) -> None:
    server.add_responses([Say("Hel"), EndStream()], [Say("Hel"), DropConnection()])
    events = await read_events(client)
    assert events[-1].type == "response.output_text.delta"
    with pytest.raises(openai.APIConnectionError):
        await read_events(client)


@pytest.mark.parametrize("stream", [False, True])
async def test_an_aborted_response_is_counted(server: ScriptedOpenAI, client: AsyncOpenAI, stream: bool) -> None:
    gate = asyncio.Event()
    server.add_responses([Say("Hel"), Pause(gate), Stall()])
    request = asyncio.create_task(read_events(client) if stream else client.responses.create(model="m", input="Hi"))
    await server.wait_for_requests()
    gate.set()
    request.cancel()
    await asyncio.wait([request])
    await server.wait_for_disconnects()


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("responses", b"{"),
        ("responses", b"[]"),
        ("responses", b'{"input": "Hi"}'),
        ("chat/completions", b'{"model": "m"}'),
    ],
)
async def test_an_invalid_request_is_refused_with_a_reason(server: ScriptedOpenAI, path: str, body: bytes) -> None:
    async with aiohttp.ClientSession() as http, http.post(f"{server.base_url}/{path}", data=body) as response:
        assert response.status == 400
        assert (await response.json())["error"]["type"] == "invalid_request_error"
    assert server.requests == []
