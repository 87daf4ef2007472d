"""Provider for Anthropic's API: features that other vendors lack."""

import json
from typing import Any

import pytest
from google.adk.models.llm_request import LlmRequest
from google.genai import types

from chatrig.models import CallTool, EndStream, Fail, RawChunk, Say, Think
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
    Media,
    ModelMessage,
    Part,
    Text,
    Thought,
    ToolCall,
    ToolResult,
    ToolSpec,
)
from core.models.providers.anthropic import DEFAULT_MAX_TOKENS
from core.usage.meter import Usage
from tests.core.models.conftest import ConnectedProvider


def assistant(*parts: Part) -> ModelMessage:
    return ModelMessage("assistant", parts)


def user(*parts: Part | str) -> ModelMessage:
    return ModelMessage("user", tuple(Text(part) if isinstance(part, str) else part for part in parts))


def results(*ids: str) -> ModelMessage:
    return ModelMessage("tool", tuple(ToolResult(id_, "f", {"ok": True}) for id_ in ids))


def call(id_: str, name: str = "f") -> ToolCall:
    return ToolCall(id_, name, {})


async def send(wire: ConnectedProvider, *messages: ModelMessage, **kwargs: Any) -> dict[str, Any]:
    """Send a request that the server answers, and return the request's JSON body.

    Args:
        kwargs: fields of the `ModelRequest`.
    """
    wire.server.add_responses("ok")
    assert isinstance((await wire.collect_events(*messages, **kwargs))[-1], Done)
    return wire.server.requests[-1]


async def block_types(wire: ConnectedProvider, *messages: ModelMessage) -> list[tuple[str, list[str]]]:
    """Send messages, and return (role, block types) of each message in the request."""
    body = await send(wire, *messages)
    return [(message["role"], [block["type"] for block in message["content"]]) for message in body["messages"]]


async def test_thinking_in_the_history_is_sent_back_unchanged(anthropic_wire: ConnectedProvider) -> None:
    """Check the thinking on its way from the API into ADK's history and back."""
    adapter = ModelAdapter(model="m", provider=anthropic_wire.provider)
    thinking = [Think("Let me see.", pieces=3, signature=b"sig1="), Think("", signature=b"data2=")]
    anthropic_wire.server.add_responses(
        [*thinking, Think("", signature=None), Say("Wait."), CallTool("f", {"n": 1}, "toolu_1")]
    )
    question = types.UserContent("1?")
    [answer] = [r async for r in adapter.generate_content_async(LlmRequest(contents=[question]))]
    assert answer.content is not None
    result = types.FunctionResponse(id="toolu_1", name="f", response={"n": 2})
    contents = [question, answer.content, types.UserContent(types.Part(function_response=result))]
    anthropic_wire.server.add_responses("ok")
    [_] = [r async for r in adapter.generate_content_async(LlmRequest(contents=contents))]
    assert anthropic_wire.server.requests[-1]["messages"][1:] == [
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "Let me see.", "signature": "sig1="},
                {"type": "redacted_thinking", "data": "data2="},
                {"type": "text", "text": "Wait."},
                {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {"n": 1}},
            ],
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "toolu_1",
                    "content": [{"type": "text", "text": '{"n": 2}'}],
                    "cache_control": {"type": "ephemeral"},
                }
            ],
        },
    ]


@pytest.mark.parametrize(
    ("given", "limit", "thinking"),
    [
        (None, DEFAULT_MAX_TOKENS, None),
        (
            types.ThinkingConfig(include_thoughts=True),
            DEFAULT_MAX_TOKENS,
            {"type": "adaptive", "display": "summarized"},
        ),
        (types.ThinkingConfig(thinking_budget=-1), DEFAULT_MAX_TOKENS, {"type": "adaptive", "display": "summarized"}),
        (types.ThinkingConfig(thinking_budget=0), DEFAULT_MAX_TOKENS, {"type": "disabled"}),
        (types.ThinkingConfig(thinking_budget=5), DEFAULT_MAX_TOKENS, {"type": "enabled", "budget_tokens": 1024}),
        (types.ThinkingConfig(thinking_budget=9000), 10024, {"type": "enabled", "budget_tokens": 9000}),
    ],
)
async def test_the_thinking_budget_becomes_anthropics_option(
    anthropic_wire: ConnectedProvider, given: types.ThinkingConfig | None, limit: int, thinking: dict[str, Any] | None
) -> None:
    config = types.GenerateContentConfig(thinking_config=given, temperature=0.5)
    body = await send(anthropic_wire, config=config)
    assert (body["max_tokens"], body.get("thinking")) == (limit, thinking)
    thinks = thinking is not None and thinking["type"] != "disabled"
    assert ("temperature" in body) is not thinks


@pytest.mark.parametrize(
    ("steps", "thinks"),
    [
        ([assistant(Thought("Hm.", b"sig"), call("a")), results("a")], True),
        ([assistant(Thought("Hm.", b"sig"), call("a")), results("a"), assistant(call("b")), results("b")], True),
        ([assistant(call("a")), results("a")], False),
        ([assistant(call("a")), results("a"), user("b")], False),
        ([assistant(call("a")), results("a"), assistant(Text("b")), user("c")], True),
    ],
)
async def test_a_turn_that_began_without_thinking_continues_without(
    anthropic_wire: ConnectedProvider, steps: list[ModelMessage], thinks: bool
) -> None:
    config = types.GenerateContentConfig(thinking_config=types.ThinkingConfig(thinking_budget=2000))
    body = await send(anthropic_wire, user("a"), *steps, config=config)
    assert ("thinking" in body) is thinks


async def test_messages_of_one_role_are_merged_and_the_user_begins(anthropic_wire: ConnectedProvider) -> None:
    messages = [assistant(Text("a")), assistant(Text("b")), user("c"), user("d"), assistant(Text("e")), user("f")]
    assert await block_types(anthropic_wire, *messages) == [
        ("user", ["text"]),
        ("assistant", ["text", "text"]),
        ("user", ["text", "text"]),
        ("assistant", ["text"]),
        ("user", ["text"]),
    ]


async def test_each_type_of_file_has_its_block(anthropic_wire: ConnectedProvider) -> None:
    body = await send(
        anthropic_wire,
        user(
            "Look:",
            Media("image/png", b"png"),
            Media("image/webp", uri="https://example.com/cat.webp"),
            Media("application/pdf", b"pdf"),
            Media("application/pdf", uri="https://example.com/paper.pdf"),
            Media("text/csv", b"a,b\n1,2"),
            Media("image/svg+xml", b"<svg/>"),
            Media("video/mp4", uri="gs://bucket/film.mp4"),
        ),
    )
    assert body["messages"][0]["content"][1:] == [
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "cG5n"}},
        {"type": "image", "source": {"type": "url", "url": "https://example.com/cat.webp"}},
        {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "cGRm"}},
        {"type": "document", "source": {"type": "url", "url": "https://example.com/paper.pdf"}},
        {"type": "text", "text": "a,b\n1,2"},
        {"type": "text", "text": "[attachment: image/svg+xml]"},
        {"type": "text", "text": "[attachment: video/mp4 gs://bucket/film.mp4]"},
    ]


async def test_a_tool_result_may_have_an_image_and_an_error(anthropic_wire: ConnectedProvider) -> None:
    result = ToolResult("a", "f", {"ok": "é"}, (Media("image/png", b"png"),))
    failed = ToolResult("b", "f", {"error": "no"})
    body = await send(
        anthropic_wire, user("a"), assistant(call("a"), call("b")), ModelMessage("tool", (result, failed))
    )
    first, second = body["messages"][2]["content"]
    assert [block["type"] for block in first["content"]] == ["text", "image"]
    assert json.loads(first["content"][0]["text"]) == {"ok": "é"}
    assert ("is_error" in first, second["is_error"]) == (False, True)


async def test_the_tools_of_the_request_are_sent_with_their_schemas(anthropic_wire: ConnectedProvider) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    body = await send(anthropic_wire, tools=[ToolSpec("f", "Does f.", schema), ToolSpec("g", "Does g.", {})])
    assert body["tools"] == [
        {"name": "f", "description": "Does f.", "input_schema": schema},
        {
            "name": "g",
            "description": "Does g.",
            "input_schema": {"type": "object"},
            "cache_control": {"type": "ephemeral"},
        },
    ]
    assert "tool_choice" not in body


async def test_removed_tools_are_declared_but_cannot_be_called(anthropic_wire: ConnectedProvider) -> None:
    body = await send(anthropic_wire, user("a"), assistant(call("a", "old tool")), results("a"), user("b"))
    assert [tool["name"] for tool in body["tools"]] == ["old_tool"]
    assert body["tool_choice"] == {"type": "none"}


async def test_only_one_kind_of_sampling_is_sent(anthropic_wire: ConnectedProvider) -> None:
    body = await send(anthropic_wire, config=types.GenerateContentConfig(temperature=1.7, top_p=0.9))
    assert body["temperature"] == 1.0
    assert "top_p" not in body


async def test_input_tokens_include_the_cache(anthropic_wire: ConnectedProvider) -> None:
    start = {"input_tokens": 10, "cache_creation_input_tokens": 20, "cache_read_input_tokens": 40, "output_tokens": 1}
    head: dict[str, Any] = {
        "id": "m",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [],
        "stop_reason": None,
    }
    anthropic_wire.server.add_responses(
        [
            RawChunk({"type": "message_start", "message": {**head, "usage": start}}),
            RawChunk({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 9}}),
            RawChunk({"type": "message_stop"}),
            EndStream(),
        ]
    )
    usage = Usage(input=70, output=9, cached=40, cache_write=20)
    assert (await anthropic_wire.collect_events())[-1] == Done(types.FinishReason.STOP, usage)


def cache_marks(body: dict[str, Any]) -> list[str]:
    """Return the places of the cache marks in a request body.

    A place is `tool`, `system`, or the text of a user's message.
    """
    tools = ["tool" for tool in body.get("tools", ()) if "cache_control" in tool]
    system = ["system" for block in body.get("system", ()) if "cache_control" in block]
    blocks = [block for message in body["messages"] for block in message["content"]]
    texts = [block.get("text", block["type"]) for block in blocks if "cache_control" in block]
    assert all(block["cache_control"] == {"type": "ephemeral"} for block in blocks if "cache_control" in block)
    return [*tools, *system, *texts]


async def test_a_conversation_is_cached_up_to_its_two_newest_questions(anthropic_wire: ConnectedProvider) -> None:
    talk = [user("a"), assistant(Text("A")), user("b"), assistant(Text("B")), user("c")]
    assert cache_marks(await send(anthropic_wire, *talk)) == ["b", "c"]
    assert cache_marks(await send(anthropic_wire, ModelMessage("system", (Text("A"),)), *talk)) == ["system", "b", "c"]


async def test_a_first_question_is_not_cached_but_the_instruction_is(anthropic_wire: ConnectedProvider) -> None:
    assert cache_marks(await send(anthropic_wire, user("a"))) == []
    assert cache_marks(await send(anthropic_wire, ModelMessage("system", (Text("A"),)), user("a"))) == ["system"]


async def test_a_first_question_with_tools_is_cached(anthropic_wire: ConnectedProvider) -> None:
    tool = ToolSpec("f", "Does f.", {})
    assert cache_marks(await send(anthropic_wire, user("a"), tools=[tool])) == ["tool", "a"]
    steps = [user("a"), assistant(call("a")), results("a")]
    assert cache_marks(await send(anthropic_wire, *steps, tools=[tool])) == ["tool", "a", "tool_result"]


async def test_an_answer_without_a_stop_chunk_is_incomplete(anthropic_wire: ConnectedProvider) -> None:
    end = RawChunk({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 9}})
    anthropic_wire.server.add_responses([Say("ok"), end, EndStream()])
    _, error = await anthropic_wire.collect_until_error()
    assert isinstance(error, ProviderStreamError)


@pytest.mark.parametrize("before", [[], [Say("Hel")]], ids=["at once", "within the stream"])
@pytest.mark.parametrize(
    ("status", "code", "kind", "retryable"),
    [
        (400, "invalid_request_error", ProviderRequestError, False),
        (401, "authentication_error", ProviderAuthError, False),
        (402, "billing_error", ProviderRateLimitError, False),
        (403, "permission_error", ProviderAuthError, False),
        (404, "not_found_error", ModelNotFoundError, False),
        (413, "request_too_large", ProviderRequestError, False),
        (429, "rate_limit_error", ProviderRateLimitError, True),
        (500, "api_error", ProviderUnavailableError, True),
        (504, "timeout_error", ProviderUnavailableError, True),
        (529, "overloaded_error", ProviderUnavailableError, True),
    ],
)
async def test_each_error_type_is_recognized_before_and_within_a_stream(
    anthropic_wire: ConnectedProvider,
    before: list[Say],
    status: int,
    code: str,
    kind: type[ProviderError],
    retryable: bool,
) -> None:
    anthropic_wire.server.add_responses([*before, Fail(status, code=code)])
    error = await anthropic_wire.get_error()
    assert type(error) is kind
    assert isinstance(error, ProviderError)
    assert error.retryable is retryable
    assert "scripted failure" not in str(error)


async def test_a_too_long_prompt_has_its_own_error(anthropic_wire: ConnectedProvider) -> None:
    anthropic_wire.server.add_responses(Fail(400, "prompt is too long: 208310 tokens > 200000 maximum"))
    error = await anthropic_wire.get_error()
    assert isinstance(error, ProviderRequestError)
    assert str(error) == "the conversation is too long for 'the-model'"
