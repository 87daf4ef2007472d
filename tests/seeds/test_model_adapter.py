"""Seeds: requests and responses of the model adapter."""

import pytest
from google.adk.models import LlmRequest, LlmResponse
from google.genai import types

from core.errors import ProviderRateLimitError, ProviderStreamError
from core.models.messages import convert_messages
from core.models.provider import Done, ModelMessage, ProviderEvent, Text, ToolCall
from tests.fixtures.conversation import Answer, ScriptedProvider, adapter

both_modes = pytest.mark.parametrize("stream", [False, True], ids=["non-streaming", "streaming"])

HELLO: list[ProviderEvent] = [Text("Hello "), Text("world"), Done()]


async def respond(answer: Answer, *, stream: bool) -> list[LlmResponse]:
    request = LlmRequest(contents=[types.UserContent("Hi")])
    return [response async for response in adapter(ScriptedProvider(answer)).generate_content_async(request, stream)]


def get_parts(response: LlmResponse) -> list[types.Part]:
    assert response.content is not None
    return response.content.parts or []


async def test_non_streaming_mode_accumulates_complete_response() -> None:
    """Non-streaming mode accumulates complete response."""
    [response] = await respond(HELLO, stream=False)
    assert response.partial is False
    assert response.turn_complete is True
    assert get_parts(response)[0].text == "Hello world"


async def test_non_streaming_mode_accumulates_tool_calls() -> None:
    """Non-streaming mode accumulates tool calls."""
    [response] = await respond([ToolCall("c1", "exec", {"cmd": "ls"}), Done()], stream=False)
    assert response.partial is False
    assert response.turn_complete is True
    assert [part.function_call for part in get_parts(response)] == [
        types.FunctionCall(id="c1", name="exec", args={"cmd": "ls"})
    ]


async def test_streaming_mode_yields_partial_events_and_complete_final() -> None:
    """Streaming mode yields partial events and complete final."""
    first, second, final = await respond(HELLO, stream=True)
    assert (first.partial, get_parts(first)[0].text) == (True, "Hello ")
    assert (second.partial, get_parts(second)[0].text) == (True, "world")
    assert final.partial is False
    assert final.turn_complete is True
    assert get_parts(final)[0].text == "Hello world"


@both_modes
async def test_provider_error_propagates_correctly(stream: bool) -> None:
    """Provider error propagates correctly."""
    error = ProviderRateLimitError("busy")
    model = adapter(ScriptedProvider([Text("Hel"), error, Text("never said"), Done()]))
    responses = model.generate_content_async(LlmRequest(contents=[types.UserContent("Hi")]), stream)
    if stream:
        assert get_parts(await anext(responses))[0].text == "Hel"
    with pytest.raises(ProviderRateLimitError) as raised:
        await anext(responses)
    assert raised.value is error
    assert [response async for response in responses] == []


@both_modes
async def test_provider_emits_no_done_event(stream: bool) -> None:
    """Provider emits no done event."""
    with pytest.raises(ProviderStreamError, match="scripted ended its stream before the answer was complete"):
        await respond([Text("Hel")], stream=stream)


async def list_sent_messages(config: types.GenerateContentConfig) -> list[ModelMessage]:
    """Return the messages that the provider receives for a request "Hi"."""
    provider = ScriptedProvider("ok")
    request = LlmRequest(contents=[types.UserContent("Hi")], config=config)
    async for _ in adapter(provider).generate_content_async(request):
        pass
    return list(provider.requests[0].messages)


async def test_system_instruction_present_in_request() -> None:
    """SystemInstruction present in request."""
    instruction = types.Content(parts=[types.Part(text="Be brief.")])
    assert await list_sent_messages(types.GenerateContentConfig(system_instruction=instruction)) == [
        ModelMessage("system", (Text("Be brief."),)),
        ModelMessage("user", (Text("Hi"),)),
    ]


async def test_system_instruction_absent() -> None:
    """SystemInstruction absent."""
    assert await list_sent_messages(types.GenerateContentConfig()) == [ModelMessage("user", (Text("Hi"),))]
    assert convert_messages([types.UserContent("Hi")], None) == [ModelMessage("user", (Text("Hi"),))]


async def test_multi_part_system_instruction() -> None:
    """Multi-part SystemInstruction."""
    instruction = types.Content(parts=[types.Part(text="Be brief."), types.Part(text="Be kind.")])
    system, _ = await list_sent_messages(types.GenerateContentConfig(system_instruction=instruction))
    assert system == ModelMessage("system", (Text("Be brief.\nBe kind."),))


def test_function_call_with_original_id_in_convert_messages() -> None:
    """FunctionCall with original ID in convertMessages."""
    named = types.FunctionCall(id="adk-uuid-123", name="exec", args={"cmd": "ls"})
    nameless = types.FunctionCall(name="search", args={})
    contents = [types.ModelContent([types.Part(function_call=named), types.Part(function_call=nameless)])]
    assert [(call.id, call.name) for message in convert_messages(contents) for call in message.tool_calls] == [
        ("adk-uuid-123", "exec"),
        ("call_search", "search"),
    ]
