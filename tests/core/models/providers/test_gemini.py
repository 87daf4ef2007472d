"""Provider for the Gemini API: features that other vendors lack."""

import base64
from contextlib import aclosing
from typing import Any

import pytest
from google.adk.models.llm_request import LlmRequest
from google.genai import types

from chatrig.models import CallTool, EndStream, Fail, RawChunk, Say, Think
from core.errors import (
    ContentBlockedError,
    ProviderAuthError,
    ProviderRateLimitError,
    ProviderRequestError,
)
from core.models.adapter import ModelAdapter
from core.models.provider import (
    Media,
    ModelMessage,
    ModelRequest,
    Text,
    Thought,
    ToolCall,
    ToolResult,
    ToolSpec,
)
from tests.core.models.conftest import ConnectedProvider


def parts(*parts: dict[str, Any], finish: str | None = None) -> RawChunk:
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": list(parts)}}
    return RawChunk({"candidates": [candidate | ({"finishReason": finish} if finish else {})]})


async def test_signatures_are_read_from_their_part(gemini_wire: ConnectedProvider) -> None:
    gemini_wire.server.add_responses(
        [
            Think("Hm.", signature=b"t"),
            Say("Wait.", signature=b"s"),
            CallTool("f", {"n": 1}, "c1", signature=b"c"),
            CallTool("f", {"n": 2}, "c2"),
        ]
    )
    assert (await gemini_wire.collect_events())[:-1] == [
        Thought("Hm.", b"t"),
        Text("Wait.", b"s"),
        ToolCall("c1", "f", {"n": 1}, b"c"),
        ToolCall("c2", "f", {"n": 2}),
    ]


async def test_a_signature_without_text_is_kept(gemini_wire: ConnectedProvider) -> None:
    signature = base64.b64encode(b"late").decode()
    gemini_wire.server.add_responses([Say("Done."), parts({"text": "", "thoughtSignature": signature})])
    assert (await gemini_wire.collect_events())[:-1] == [Text("Done."), Text("", b"late")]


@pytest.mark.parametrize(
    ("model", "signatures"),
    [("gemini-2.5-flash", [b"", b""]), ("gemini-3-pro", [b"skip_thought_signature_validator", b""])],
)
async def test_calls_of_another_model_get_a_placeholder_signature(
    gemini_wire: ConnectedProvider, model: str, signatures: list[bytes]
) -> None:
    gemini_wire.server.add_responses("ok")
    history = [
        ModelMessage("user", (Text("Hi"),)),
        ModelMessage("assistant", (Text("Wait."), ToolCall("c1", "f", {}), ToolCall("c2", "f", {}))),
        ModelMessage("tool", (ToolResult("c1", "f", {}), ToolResult("c2", "f", {}))),
    ]
    async with aclosing(gemini_wire.stream(ModelRequest(model, history))) as events:
        assert await anext(events) == Text("ok")
    text, *calls = gemini_wire.server.requests[0]["contents"][1]["parts"]
    assert "thoughtSignature" not in text
    assert [base64.urlsafe_b64decode(call.get("thoughtSignature", "")) for call in calls] == signatures


async def test_signatures_in_the_history_are_sent_back_unchanged(gemini_wire: ConnectedProvider) -> None:
    """Check the signatures on their way from the API into ADK's history and back."""
    adapter = ModelAdapter(model="gemini-3-pro", provider=gemini_wire.provider)
    calls = [CallTool("f", {"n": 1}, signature=b"call"), CallTool("f", {"n": 2})]
    gemini_wire.server.add_responses(
        [Think("Let ", signature=None), Think("me see.", signature=b"t"), Say("Wait."), *calls]
    )
    question = types.UserContent("1?")
    [answer] = [r async for r in adapter.generate_content_async(LlmRequest(contents=[question]))]
    assert answer.content is not None
    gemini_wire.server.add_responses("ok")
    contents = [question, answer.content, types.UserContent("And?")]
    [_] = [r async for r in adapter.generate_content_async(LlmRequest(contents=contents))]
    sent_parts = gemini_wire.server.requests[-1]["contents"][1]["parts"]
    signatures = [base64.urlsafe_b64decode(part.get("thoughtSignature", "")) for part in sent_parts]
    assert [(part.get("text"), part.get("thought"), "functionCall" in part) for part in sent_parts] == [
        ("me see.", True, False),
        ("Wait.", None, False),
        (None, None, True),
        (None, None, True),
    ]
    assert signatures == [b"t", b"", b"call", b""]


async def test_an_invalid_request_is_not_an_error_of_the_response(gemini_wire: ConnectedProvider) -> None:
    _, error = await gemini_wire.collect_until_error(config=types.GenerateContentConfig(audio_timestamp=True))
    assert isinstance(error, ProviderRequestError)
    assert gemini_wire.server.requests == []


async def test_built_in_tools_are_forwarded_beside_functions(gemini_wire: ConnectedProvider) -> None:
    gemini_wire.server.add_responses("ok")
    declared = types.FunctionDeclaration(name="not ours to send")
    config = types.GenerateContentConfig(
        tools=[types.Tool(google_search=types.GoogleSearch(), function_declarations=[declared])]
    )
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
    empty = {"type": "object", "properties": {}}
    await gemini_wire.collect_events(config=config, tools=[ToolSpec("f", "F.", schema), ToolSpec("g", "G.", empty)])
    search, functions = gemini_wire.server.requests[0]["tools"]
    assert search == {"googleSearch": {}}
    assert functions["functionDeclarations"] == [
        {"name": "f", "description": "F.", "parameters_json_schema": schema},
        {"name": "g", "description": "G."},
    ]


async def test_executed_code_is_part_of_the_text(gemini_wire: ConnectedProvider) -> None:
    gemini_wire.server.add_responses(
        [
            parts({"executableCode": {"language": "PYTHON", "code": "print(1)"}}),
            parts({"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1\n"}}),
            Say("One."),
        ]
    )
    events = await gemini_wire.collect_events()
    text = "".join(event.text for event in events if isinstance(event, Text))
    assert text == "\n```python\nprint(1)\n```\n\n```\n1\n```\nOne."


async def test_media_reach_the_wire_by_bytes_or_by_address(gemini_wire: ConnectedProvider) -> None:
    gemini_wire.server.add_responses("ok")
    await gemini_wire.collect_events(
        ModelMessage("user", (Media("application/pdf", b"pdf"), Media("video/mp4", uri="https://example.com/film"))),
        ModelMessage("assistant", (ToolCall("a", "draw", {}),)),
        ModelMessage("tool", (ToolResult("a", "draw", {}, (Media("image/png", b"png"),)),)),
    )
    user, _, tool = gemini_wire.server.requests[0]["contents"]
    assert user["parts"][0]["inlineData"] == {"mime_type": "application/pdf", "data": "cGRm"}
    assert user["parts"][1]["fileData"]["file_uri"] == "https://example.com/film"
    assert tool["parts"][0]["functionResponse"]["parts"][0]["inline_data"]["data"] == "cG5n"


async def test_an_invalid_key_is_an_auth_error_though_its_status_is_400(gemini_wire: ConnectedProvider) -> None:
    gemini_wire.server.add_responses(Fail(400, code="API_KEY_INVALID"))
    assert isinstance(await gemini_wire.get_error(), ProviderAuthError)


async def test_a_blocked_prompt_has_its_own_error(gemini_wire: ConnectedProvider) -> None:
    gemini_wire.server.add_responses([RawChunk({"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}})])
    error = await gemini_wire.get_error()
    assert isinstance(error, ContentBlockedError)
    assert "PROHIBITED_CONTENT" in str(error)


async def test_an_overload_in_the_middle_of_a_stream_is_a_limit(gemini_wire: ConnectedProvider) -> None:
    gemini_wire.server.add_responses([Say("Hel"), Fail(429, retry_after=1.5)])
    _, error = await gemini_wire.collect_until_error()
    assert isinstance(error, ProviderRateLimitError)
    assert error.retry_after == 1.5


@pytest.mark.filterwarnings("ignore:A_REASON_FROM_THE_FUTURE")
async def test_an_unknown_finish_reason_is_no_failure(gemini_wire: ConnectedProvider) -> None:
    gemini_wire.server.add_responses([parts({"text": "ok"}, finish="A_REASON_FROM_THE_FUTURE"), EndStream()])
    adapter = ModelAdapter(model="the-model", provider=gemini_wire.provider)
    request = LlmRequest(contents=[types.UserContent("Hi")])
    [response] = [response async for response in adapter.generate_content_async(request)]
    assert response.finish_reason is not None
    assert response.finish_reason.value == "A_REASON_FROM_THE_FUTURE"


async def test_adks_http_options_and_labels_are_not_sent(gemini_wire: ConnectedProvider) -> None:
    gemini_wire.server.add_responses("ok")
    options = types.HttpOptions(retry_options=types.HttpRetryOptions(attempts=5), headers={"x-own": "1"})
    await gemini_wire.collect_events(config=types.GenerateContentConfig(http_options=options, labels={"a": "b"}))
    assert "x-own" not in gemini_wire.server.received[0].headers
    assert gemini_wire.server.received[0].headers["x-goog-api-key"] == "key"
    assert "labels" not in gemini_wire.server.requests[0]


def test_the_repr_of_the_adapter_has_no_key() -> None:
    adapter = ModelAdapter(model="m", provider=object())  # type: ignore[arg-type]  # never used
    assert "provider" not in repr(adapter)
    assert "provider" not in adapter.model_dump()
