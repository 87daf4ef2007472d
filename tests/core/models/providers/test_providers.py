"""Common behaviour of all model providers."""

import asyncio
from contextlib import aclosing
from typing import Any

import pytest
from google.adk.models.llm_request import LlmRequest
from google.genai import types

from chatrig.models import (
    CallTool,
    Fail,
    Finish,
    Pause,
    Say,
    Stall,
)
from core.errors import (
    ModelNotFoundError,
    ProviderAuthError,
    ProviderError,
    ProviderRateLimitError,
    ProviderRequestError,
    ProviderStreamError,
    ProviderUnavailableError,
)
from core.models.adapter import ModelAdapter
from core.models.provider import (
    Done,
    ModelMessage,
    ModelRequest,
    Text,
    ToolCall,
    ToolResult,
    ToolSpec,
)
from tests.core.models.conftest import VENDORS, ConnectedProvider, connect_provider

ADD = ToolSpec(
    "add",
    "Adds two numbers.",
    {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}},
)


async def test_text_comes_delta_by_delta_and_ends_with_done(wire: ConnectedProvider) -> None:
    wire.server.add_responses([Say("Hello world", pieces=2), Finish(input=11, output=3, thinking=2, cached=4)])
    *texts, done = await wire.collect_events()
    assert [text.text for text in texts if isinstance(text, Text)] == ["Hello ", "world"]
    assert isinstance(done, Done)
    assert done.finish_reason is types.FinishReason.STOP
    assert (done.usage.input, done.usage.output, done.usage.thinking, done.usage.cached) == (11, 3, 2, 4)


async def test_a_delta_is_passed_on_before_the_next_one_comes(wire: ConnectedProvider) -> None:
    go_on = asyncio.Event()
    wire.server.add_responses([Say("first"), Pause(go_on), Say("second")])
    request = ModelRequest("the-model", [ModelMessage("user", (Text("Hi"),))])
    async with asyncio.timeout(30), aclosing(wire.stream(request)) as events:
        assert await anext(events) == Text("first")
        go_on.set()
        assert await anext(events) == Text("second")


async def test_parallel_calls_are_complete_and_in_order(wire: ConnectedProvider) -> None:
    calls = [CallTool("add", {"a": 1, "b": 2}, id="c1"), CallTool("add", {"a": 3, "b": 4}, id="c2")]
    wire.server.add_responses([Say("One moment."), *calls])
    text, first, second, done = await wire.collect_events(tools=[ADD])
    assert text == Text("One moment.")
    assert first == ToolCall("c1", "add", {"a": 1, "b": 2})
    assert second == ToolCall("c2", "add", {"a": 3, "b": 4})
    assert isinstance(done, Done)
    assert done.finish_reason is types.FinishReason.STOP


@pytest.mark.parametrize("vendor", ["anthropic", "openai"])
@pytest.mark.parametrize("pieces", [1, 2, 7, 100])
async def test_arguments_may_be_split_anywhere(wire: ConnectedProvider, pieces: int) -> None:
    arguments = {"city": "Zürich \N{CHEESE WEDGE}", "deep": {"list": [1, None, "}{"]}}
    wire.server.add_responses([CallTool("f", arguments, "c1", pieces=pieces), CallTool("g", {}, "c2")])
    first, second, _ = await wire.collect_events()
    assert (first, second) == (ToolCall("c1", "f", arguments), ToolCall("c2", "g", {}))


@pytest.mark.parametrize("vendor", ["anthropic", "openai"])
@pytest.mark.parametrize("raw", ['{"city": "Par', "Paris", '["Paris"]', "{'city': 'Paris'}"])
async def test_malformed_arguments_become_a_call_of_no_tool(wire: ConnectedProvider, raw: str) -> None:
    wire.server.add_responses([CallTool("weather", id="c1", raw=raw)])
    assert (await wire.collect_events())[0] == ToolCall("c1", "malformed_call_to_weather", {"arguments": raw})


@pytest.mark.parametrize(("vendor", "reason"), [("anthropic", "max_tokens"), ("openai", "length")])
async def test_a_call_cut_off_by_the_token_limit_is_dropped(wire: ConnectedProvider, reason: str) -> None:
    wire.server.add_responses([Say("Let me see."), CallTool("f", id="c1", raw='{"n": '), Finish(reason)])
    text, done = await wire.collect_events()
    assert text == Text("Let me see.")
    assert isinstance(done, Done)
    assert done.finish_reason is types.FinishReason.MAX_TOKENS


async def test_the_request_has_the_system_message_the_history_and_the_tools(wire: ConnectedProvider) -> None:
    wire.server.add_responses("3")
    await wire.collect_events(
        ModelMessage("system", (Text("Be brief."),)),
        ModelMessage("user", (Text("1 + 2?"),)),
        ModelMessage("assistant", (Text("Wait."), ToolCall("c1", "add", {"a": 1, "b": 2}))),
        ModelMessage("tool", (ToolResult("c1", "add", {"result": 3}),)),
        tools=[ADD],
    )
    request = wire.server.received[0]
    assert request.model == "the-model"
    assert request.system == "Be brief."
    assert request.text == "1 + 2?"
    assert request.tools == ("add",)
    result = request.tool_results[0]
    assert (result.id, result.name, result.content) == ("c1", "add", {"result": 3})


async def test_a_call_of_an_invalid_tool_name_does_not_break_later_requests(wire: ConnectedProvider) -> None:
    wire.server.add_responses("ok")
    name = "weather in\n'Paris'? " + "a" * 80
    await wire.collect_events(
        ModelMessage("user", (Text("Hi"),)),
        ModelMessage("assistant", (ToolCall("c1", name, {}), ToolCall("c2", "", {}))),
        ModelMessage("tool", (ToolResult("c1", name, {}), ToolResult("c2", "", {}))),
    )
    names = [result.name for result in wire.server.received[0].tool_results]
    assert names == [("weather_in__Paris___" + "a" * 80)[:64], "_"]


async def test_sampling_and_limits_reach_the_wire(wire: ConnectedProvider) -> None:
    wire.server.add_responses("ok")
    config = types.GenerateContentConfig(
        temperature=0.5, max_output_tokens=77, stop_sequences=["END"], labels={"adk": "bot"}
    )
    await wire.collect_events(config=config)
    body = wire.server.requests[0]
    generation_config = body.get("generationConfig", body)
    assert generation_config["temperature"] == 0.5
    assert generation_config.get("maxOutputTokens", generation_config.get("max_tokens")) == 77
    assert generation_config.get(
        "stopSequences", generation_config.get("stop", generation_config.get("stop_sequences"))
    ) == ["END"]
    assert "labels" not in body


async def test_nucleus_sampling_reaches_the_wire(wire: ConnectedProvider) -> None:
    wire.server.add_responses("ok")
    await wire.collect_events(config=types.GenerateContentConfig(top_p=0.9))
    body = wire.server.requests[0]
    assert body.get("generationConfig", {}).get("topP", body.get("top_p")) == 0.9


async def test_an_answer_schema_reaches_the_wire(wire: ConnectedProvider) -> None:
    wire.server.add_responses("{}")
    schema = types.Schema(type=types.Type.OBJECT, properties={"n": types.Schema(type=types.Type.INTEGER)})
    config = types.GenerateContentConfig(response_schema=schema, response_mime_type="application/json")
    await wire.collect_events(config=config)
    body = wire.server.requests[0]
    if "generationConfig" in body:
        assert body["generationConfig"]["responseSchema"]["properties"]["n"]["type"] == "INTEGER"
    elif "output_config" in body:
        sent_schema = body["output_config"]["format"]["schema"]
        assert sent_schema == {
            "type": "object",
            "properties": {"n": {"type": "integer"}},
            "additionalProperties": False,
        }
    else:
        sent_schema = body["response_format"]["json_schema"]["schema"]
        assert sent_schema == {"type": "object", "properties": {"n": {"type": "integer"}}}


@pytest.mark.parametrize(
    ("fail", "kind", "retryable"),
    [
        (Fail(401), ProviderAuthError, False),
        (Fail(403), ProviderAuthError, False),
        (Fail(404), ModelNotFoundError, False),
        (Fail(400), ProviderRequestError, False),
        (Fail(413, body="<html>too large</html>"), ProviderRequestError, False),
        (Fail(429, retry_after=7), ProviderRateLimitError, True),
        (Fail(500), ProviderUnavailableError, True),
        (Fail(502, body="<html>bad gateway</html>"), ProviderUnavailableError, True),
        (Fail(503, body=""), ProviderUnavailableError, True),
        (Fail(529, retry_after=3), ProviderUnavailableError, True),
    ],
)
async def test_a_refusal_has_its_own_error(
    wire: ConnectedProvider, fail: Fail, kind: type[ProviderError], retryable: bool
) -> None:
    wire.server.add_responses(fail)
    error = await wire.get_error()
    assert type(error) is kind
    assert isinstance(error, ProviderError)
    assert error.retryable is retryable
    assert error.retry_after == fail.retry_after
    assert "scripted failure" not in str(error)
    assert len(wire.server.requests) == 1


async def test_a_wrong_key_is_not_repeated_in_the_error(vendor: str) -> None:
    async with connect_provider(vendor, key="my-secret-key", api_key="right") as wire:
        error = await wire.get_error()
        assert wire.server.requests == []
    assert isinstance(error, ProviderAuthError)
    assert "my-secret-key" not in str(error)


async def test_an_unreachable_server_is_unavailable(vendor: str) -> None:
    async with connect_provider(vendor) as wire:
        pass
    provider = VENDORS[vendor][0]("key", wire.server.base_url)
    error = await ConnectedProvider(provider, wire.server).get_error()
    await provider.aclose()
    assert isinstance(error, ProviderUnavailableError)


@pytest.mark.parametrize(
    ("words", "finish"),
    [
        ({"gemini": "MAX_TOKENS", "openai": "length", "anthropic": "max_tokens"}, types.FinishReason.MAX_TOKENS),
        ({"gemini": "SAFETY", "openai": "content_filter", "anthropic": "refusal"}, types.FinishReason.SAFETY),
        ({"gemini": "OTHER", "openai": "who-knows", "anthropic": "pause_turn"}, types.FinishReason.OTHER),
    ],
)
async def test_the_finish_reason_is_passed_on(
    wire: ConnectedProvider, vendor: str, words: dict[str, str], finish: types.FinishReason
) -> None:
    wire.server.add_responses([Say("Half an ans"), Finish(words[vendor])])
    *_, done = await wire.collect_events()
    assert isinstance(done, Done)
    assert done.finish_reason is finish


@pytest.mark.parametrize("before", [[], [Say("Hel")]], ids=["before the answer", "within the answer"])
async def test_closing_the_stream_closes_the_connection(wire: ConnectedProvider, before: list[Say]) -> None:
    wire.server.add_responses([*before, Stall()])
    adapter = ModelAdapter(model="the-model", provider=wire.provider, idle_seconds=0.3)
    with pytest.raises(ProviderStreamError, match=r"sent nothing for 0\.3 seconds"):
        await _collect(adapter, stream=True)
    await wire.server.wait_for_disconnects(1)


async def test_a_cancelled_turn_closes_the_connection(wire: ConnectedProvider) -> None:
    wire.server.add_responses([Say("Hel"), Stall()])
    task = asyncio.create_task(wire.collect_events())
    await wire.server.wait_for_requests(1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await wire.server.wait_for_disconnects(1)


async def _collect(adapter: ModelAdapter, *, stream: bool = False) -> list[Any]:
    request = LlmRequest(contents=[types.UserContent("Hi")])
    async with aclosing(adapter.generate_content_async(request, stream)) as responses:
        return [response async for response in responses]
