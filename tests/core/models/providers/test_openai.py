"""Provider for OpenAI's API and compatible servers, with their differences."""

import asyncio
import json
from typing import Any

import pytest
from google.adk.agents import LlmAgent
from google.adk.agents.run_config import RunConfig, StreamingMode
from google.adk.runners import InMemoryRunner
from google.genai import types
from hypothesis import given
from hypothesis import strategies as st

from chatrig.models import (
    CallTool,
    EndStream,
    Fail,
    Finish,
    Pause,
    RawChunk,
    ReceivedRequest,
    Say,
    ScriptedOpenAI,
    ScriptedResponse,
    Stall,
)
from core.errors import (
    ContentBlockedError,
    ContextLengthError,
    ModelNotFoundError,
    ProviderError,
    ProviderRateLimitError,
    ProviderRequestError,
    ProviderUnavailableError,
)
from core.models.adapter import ModelAdapter
from core.models.provider import Done, Media, ModelMessage, Text, Thought, ToolCall, ToolResult
from core.models.providers.openai import OpenAIProvider
from core.models.providers.tool_call_deltas import ToolCallBuilder
from core.models.tool_calls import MALFORMED_CALL_PREFIX
from core.usage.meter import Usage
from tests.core.models.conftest import ConnectedProvider


def delta(**delta: Any) -> RawChunk:
    return RawChunk({"id": "x", "choices": [{"index": 0, "delta": delta, "finish_reason": None}]})


def call_delta(arguments: Any = None, **kwargs: Any) -> RawChunk:
    function = {"arguments": arguments} | ({"name": kwargs.pop("name")} if "name" in kwargs else {})
    return delta(tool_calls=[{"function": function, **kwargs}])


async def collect_calls(wire: ConnectedProvider, *steps: Any) -> list[ToolCall]:
    wire.server.add_responses([*steps, Finish("tool_calls")])
    return [event for event in await wire.collect_events() if isinstance(event, ToolCall)]


@pytest.mark.parametrize("pieces", [1, 2, 7, 100])
async def test_arguments_may_be_split_anywhere(openai_wire: ConnectedProvider, pieces: int) -> None:
    arguments = {"city": "Zürich \N{CHEESE WEDGE}", "deep": {"list": [1, None, "}{"]}}
    assert await collect_calls(openai_wire, CallTool("weather", arguments, "c1", pieces=pieces)) == [
        ToolCall("c1", "weather", arguments)
    ]


async def test_deltas_of_several_calls_may_be_interleaved(openai_wire: ConnectedProvider) -> None:
    assert await collect_calls(
        openai_wire,
        call_delta('{"n"', index=0, id="a", name="f"),
        call_delta('{"n": ', index=1, id="b", name="g"),
        call_delta(": 1}", index=0),
        call_delta("2}", index=1),
    ) == [ToolCall("a", "f", {"n": 1}), ToolCall("b", "g", {"n": 2})]


async def test_a_server_may_send_no_index(openai_wire: ConnectedProvider) -> None:
    assert await collect_calls(
        openai_wire,
        call_delta('{"n":', id="a", name="f"),
        call_delta(" 1}"),
        call_delta('{"n": 2}', id="b", name="f"),
    ) == [ToolCall("a", "f", {"n": 1}), ToolCall("b", "f", {"n": 2})]


async def test_a_server_may_send_neither_index_nor_id(openai_wire: ConnectedProvider) -> None:
    assert await collect_calls(
        openai_wire, call_delta('{"n": 1}', name="f"), call_delta('{"n":', name="f"), call_delta(" 2}")
    ) == [
        ToolCall("", "f", {"n": 1}),
        ToolCall("", "f", {"n": 2}),
    ]


async def test_a_server_may_send_the_same_index_for_all(openai_wire: ConnectedProvider) -> None:
    assert await collect_calls(
        openai_wire,
        call_delta('{"n": 1}', index=0, id="a", name="f"),
        call_delta('{"n": 2}', index=0, id="b", name="g"),
    ) == [ToolCall("a", "f", {"n": 1}), ToolCall("b", "g", {"n": 2})]


async def test_a_server_may_repeat_id_and_name_with_each_delta(openai_wire: ConnectedProvider) -> None:
    same: dict[str, Any] = {"index": 0, "id": "a", "name": "f"}
    assert await collect_calls(openai_wire, call_delta('{"n"', **same), call_delta(": 1}", **same)) == [
        ToolCall("a", "f", {"n": 1})
    ]


async def test_a_server_may_send_arguments_as_an_object_or_not_at_all(openai_wire: ConnectedProvider) -> None:
    assert await collect_calls(
        openai_wire, call_delta({"n": 1}, index=0, id="a", name="f"), call_delta(None, index=1, id="b", name="g")
    ) == [ToolCall("a", "f", {"n": 1}), ToolCall("b", "g", {})]


@given(st.dictionaries(st.text(), st.integers() | st.text()), st.data())
def test_arguments_are_complete_however_they_are_split(arguments: dict[str, Any], data: Any) -> None:
    text = json.dumps(arguments)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)))))
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    builder = ToolCallBuilder()
    for number, part in enumerate(pieces):
        name = "f" if number == 0 else None
        builder.add_delta({"index": 0, "id": "a", "function": {"name": name, "arguments": part}})
    assert builder.build({}, is_truncated=False) == [ToolCall("a", "f", arguments)]


@pytest.mark.parametrize("raw", ['{"city": "Par', "Paris", '["Paris"]', "{'city': 'Paris'}"])
async def test_malformed_arguments_become_a_call_of_no_tool(openai_wire: ConnectedProvider, raw: str) -> None:
    assert await collect_calls(openai_wire, CallTool("weather", id="c1", raw=raw)) == [
        ToolCall("c1", "malformed_call_to_weather", {"arguments": raw})
    ]


async def test_a_model_can_correct_a_malformed_call() -> None:
    """Check with ADK that a tool runs on corrected arguments only."""
    ran: list[str] = []

    def weather(city: str = "everywhere") -> str:
        ran.append(city)
        return "sunny"

    def script(request: ReceivedRequest) -> ScriptedResponse:
        if not request.tool_results:
            return CallTool("weather", id="c1", raw='{"city": "Par')
        result = request.tool_results[0]
        if result.name == MALFORMED_CALL_PREFIX + "weather":
            assert "weather" in result.content["error"]
            return CallTool("weather", {"city": "Paris"}, id="c2")
        return f"It is {result.content['result']}."

    async with ScriptedOpenAI(script) as server:
        provider = OpenAIProvider("key", server.base_url)
        agent = LlmAgent(name="bot", model=ModelAdapter(model="m", provider=provider), tools=[weather])
        runner = InMemoryRunner(agent, app_name="test")
        await runner.session_service.create_session(app_name="test", user_id="u", session_id="s")
        events = [
            event
            async for event in runner.run_async(
                user_id="u",
                session_id="s",
                new_message=types.UserContent("Weather in Paris?"),
                run_config=RunConfig(streaming_mode=StreamingMode.SSE),
            )
        ]
        await provider.aclose()
    assert ran == ["Paris"]
    assert events[-1].content is not None
    assert events[-1].content.parts is not None
    assert events[-1].content.parts[0].text == "It is sunny."


async def test_a_call_cut_off_by_the_token_limit_is_dropped(openai_wire: ConnectedProvider) -> None:
    openai_wire.server.add_responses([Say("Let me see."), CallTool("f", id="c1", raw='{"n": '), Finish("length")])
    text, done = await openai_wire.collect_events()
    assert text == Text("Let me see.")
    assert isinstance(done, Done)
    assert done.finish_reason is types.FinishReason.MAX_TOKENS


async def test_reasoning_under_its_other_name_is_thought(openai_wire: ConnectedProvider) -> None:
    openai_wire.server.add_responses([delta(reasoning="Hm."), Say("Yes.")])
    assert (await openai_wire.collect_events())[:2] == [Thought("Hm."), Text("Yes.")]


async def test_a_refusal_is_text_of_the_answer(openai_wire: ConnectedProvider) -> None:
    openai_wire.server.add_responses([delta(refusal="I'd rather not.")])
    assert (await openai_wire.collect_events())[0] == Text("I'd rather not.")


async def test_a_server_may_send_no_usage(openai_wire: ConnectedProvider) -> None:
    end = RawChunk({"id": "x", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    openai_wire.server.add_responses([Say("ok"), end, EndStream()])
    assert (await openai_wire.collect_events())[-1] == Done(types.FinishReason.STOP, Usage())


async def test_a_missing_usage_chunk_does_not_delay_the_end(
    openai_wire: ConnectedProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("core.models.providers.openai._USAGE_WAIT_SECONDS", 0.1)
    end = RawChunk({"id": "x", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    openai_wire.server.add_responses([Say("ok"), end, Stall()])
    async with asyncio.timeout(30):
        assert (await openai_wire.collect_events())[-1] == Done(types.FinishReason.STOP, Usage())


@pytest.mark.parametrize(
    ("fail", "kind"),
    [
        (Fail(400, code="model_not_found"), ModelNotFoundError),
        (Fail(400, code="content_filter"), ContentBlockedError),
        (Fail(400, code="context_length_exceeded"), ContextLengthError),
        (Fail(429, code="insufficient_quota"), ProviderRateLimitError),
    ],
)
async def test_openais_error_codes_are_recognized(
    openai_wire: ConnectedProvider, fail: Fail, kind: type[ProviderError]
) -> None:
    openai_wire.server.add_responses(fail)
    error = await openai_wire.get_error()
    assert type(error) is kind
    assert isinstance(error, ProviderError)
    assert not error.retryable


@pytest.mark.parametrize(
    ("error", "kind", "retryable"),
    [
        ({"code": "rate_limit_exceeded"}, ProviderRateLimitError, True),
        ({"type": "tokens"}, ProviderRateLimitError, True),
        ({"code": 429}, ProviderRateLimitError, True),
        ({"code": "insufficient_quota", "type": "insufficient_quota"}, ProviderRateLimitError, False),
        ({"code": 400}, ProviderRequestError, False),
        ({"code": "context_length_exceeded"}, ContextLengthError, False),
        ({"type": "invalid_request_error"}, ProviderRequestError, False),
        ({"type": "server_error"}, ProviderUnavailableError, True),
        ({"code": 502}, ProviderUnavailableError, True),
        ({}, ProviderUnavailableError, True),
    ],
    ids=str,
)
async def test_an_error_within_a_stream_is_recognized_by_code_or_type(
    openai_wire: ConnectedProvider, error: dict[str, Any], kind: type[ProviderError], retryable: bool
) -> None:
    body = json.dumps({"error": {"message": "scripted failure", **error}})
    openai_wire.server.add_responses([Say("Hel"), Fail(500, body=body)])
    failure = await openai_wire.get_error()
    assert type(failure) is kind
    assert isinstance(failure, ProviderError)
    assert failure.retryable is retryable
    assert "scripted failure" not in str(failure)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after-ms": "1500"}, 1.5),
        ({"retry-after-ms": "soon", "Retry-After": "2"}, 2.0),
        ({"Retry-After": "-3"}, 0.0),
        ({"Retry-After": "nan"}, None),
        ({"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0.0),
        ({"Retry-After": "soon"}, None),
    ],
)
async def test_every_form_of_retry_after_is_read(
    openai_wire: ConnectedProvider, headers: dict[str, str], seconds: float | None
) -> None:
    openai_wire.server.add_responses(Fail(429, headers=headers))
    error = await openai_wire.get_error()
    assert isinstance(error, ProviderRateLimitError)
    assert error.retry_after == seconds


async def test_thoughts_are_not_sent_back(openai_wire: ConnectedProvider) -> None:
    openai_wire.server.add_responses("ok")
    await openai_wire.collect_events(
        ModelMessage("user", (Text("a"),)),
        ModelMessage("assistant", (Thought("secret musing"), Text("b"))),
        ModelMessage("assistant", (Thought("only a musing"),)),
        ModelMessage("user", (Text("c"),)),
    )
    assert openai_wire.server.received[0].messages == (("user", "a"), ("assistant", "b"), ("user", "c"))
    assert "musing" not in json.dumps(openai_wire.server.requests[0])


async def test_each_type_of_file_has_its_block(openai_wire: ConnectedProvider) -> None:
    openai_wire.server.add_responses("ok")
    await openai_wire.collect_events(
        ModelMessage(
            "user",
            (
                Text("Look:"),
                Media("image/png", b"png"),
                Media("image/png", uri="https://example.com/cat.png"),
                Media("audio/wav", b"wav"),
                Media("application/pdf", b"pdf"),
                Media("text/csv", b"a,b\n1,2"),
                Media("video/mp4", uri="gs://bucket/film.mp4"),
            ),
        )
    )
    parts = openai_wire.server.requests[0]["messages"][0]["content"]
    assert [part["type"] for part in parts] == [
        "text",
        "image_url",
        "image_url",
        "input_audio",
        "file",
        "text",
        "text",
    ]
    assert parts[1]["image_url"]["url"] == "data:image/png;base64,cG5n"
    assert parts[4]["file"]["file_data"] == "data:application/pdf;base64,cGRm"
    assert parts[5]["text"] == "a,b\n1,2"


async def test_files_of_a_tool_follow_its_results(openai_wire: ConnectedProvider) -> None:
    openai_wire.server.add_responses("ok")
    await openai_wire.collect_events(
        ModelMessage("user", (Text("draw"),)),
        ModelMessage("assistant", (ToolCall("a", "draw", {}), ToolCall("b", "draw", {}))),
        ModelMessage(
            "tool",
            (
                ToolResult("a", "draw", {"ok": True}, (Media("image/png", b"png"),)),
                ToolResult("b", "draw", {"ok": False}),
            ),
        ),
    )
    roles = [message["role"] for message in openai_wire.server.requests[0]["messages"]]
    assert roles == ["user", "assistant", "tool", "tool", "user"]


async def test_a_pause_within_an_answer_does_not_end_it(openai_wire: ConnectedProvider) -> None:
    openai_wire.server.add_responses([Say("a"), Pause(0.05), Say("b")])
    assert (await openai_wire.collect_events())[:2] == [Text("a"), Text("b")]
