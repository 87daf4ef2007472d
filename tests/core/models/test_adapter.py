"""`ModelAdapter`: parts, signatures and ids of a response, and ends without an answer."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.genai import types

from core.errors import ContentBlockedError
from core.models.adapter import NO_CONTENT_ERROR_CODE, ModelAdapter
from core.models.provider import Done, ModelRequest, ProviderEvent, SupportedFiles, Text, Thought, ToolCall
from core.usage.meter import Usage

both_modes = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streaming"])
HELLO: list[ProviderEvent] = [Text("Hello "), Text("world"), Done(usage=Usage(input=3, output=2, thinking=4, cached=1))]


class FakeProvider:
    """Provider that yields the same events for each request.

    Args:
        events: the events; an exception is raised.
        stalls: True makes the stream hang at its end.

    Attributes:
        closed: the number of closed streams.
    """

    name = "fake"

    def __init__(self, events: Sequence[ProviderEvent | Exception], *, stalls: bool = False) -> None:
        self.events = events
        self.stalls = stalls
        self.requests: list[ModelRequest] = []
        self.closed = 0

    def supported_files(self, model: str) -> SupportedFiles:
        return SupportedFiles({"image/png": 1_000}, max_total_bytes=1_500)

    async def stream(self, request: ModelRequest) -> AsyncIterator[ProviderEvent]:
        self.requests.append(request)
        try:
            for event in self.events:
                if isinstance(event, Exception):
                    raise event
                yield event
            if self.stalls:
                await asyncio.Event().wait()
        finally:
            self.closed += 1

    async def aclose(self) -> None:
        pass


async def respond(
    events: Sequence[ProviderEvent | Exception], stream: bool = False, *, stalls: bool = False, **request: Any
) -> list[LlmResponse]:
    provider = FakeProvider(events, stalls=stalls)
    request.setdefault("contents", [types.UserContent("Hi")])
    adapter = ModelAdapter(model="m", provider=provider, idle_seconds=0.1 if stalls else 30)
    try:
        return [response async for response in adapter.generate_content_async(LlmRequest(**request), stream)]
    finally:
        assert provider.closed == 1


def parts(response: LlmResponse) -> list[types.Part]:
    assert response.content is not None
    assert response.content.role == "model"
    return response.content.parts or []


async def test_every_response_has_usage() -> None:
    [response] = await respond(HELLO)
    usage = response.usage_metadata
    assert usage is not None
    assert (usage.prompt_token_count, usage.candidates_token_count) == (3, 2)
    assert (usage.thoughts_token_count, usage.cached_content_token_count) == (4, 1)
    assert usage.total_token_count == 9
    [response] = await respond([Text("ok"), Done()])
    assert response.usage_metadata is not None


async def test_thoughts_are_separate_parts() -> None:
    events: list[ProviderEvent] = [Thought("Let "), Thought("me see."), Text("4"), Text("2"), Thought("Right."), Done()]
    *partials, final = await respond(events, stream=True)
    assert [(part.thought, part.text) for part in parts(final)] == [
        (True, "Let me see."),
        (None, "42"),
        (True, "Right."),
    ]
    assert [parts(partial)[0].thought for partial in partials] == [True, True, None, None, True]


async def test_text_is_not_joined_across_a_signature() -> None:
    events: list[ProviderEvent] = [
        Text("a"),
        Text("b", b"1"),
        Text("c"),
        Text("d"),
        ToolCall("c1", "f", {}, b"2"),
        Text("", b"3"),
        Done(),
    ]
    *partials, final = await respond(events, stream=True)
    assert [(part.text, part.thought_signature) for part in parts(final)] == [
        ("a", None),
        ("b", b"parley:fake:1"),
        ("cd", None),
        (None, b"parley:fake:2"),
        ("", b"parley:fake:3"),
    ]
    assert [parts(partial)[0].text for partial in partials] == ["a", "b", "c", "d"]


async def test_a_later_signature_joins_its_thought() -> None:
    events: list[ProviderEvent] = [
        Thought("Let "),
        Thought("me see."),
        Thought("", b"1"),
        Thought("", b"2"),
        Text("42"),
        Done(),
    ]
    *partials, final = await respond(events, stream=True)
    assert [(part.text, part.thought_signature) for part in parts(final)] == [
        ("Let me see.", b"parley:fake:1"),
        ("", b"parley:fake:2"),
        ("42", None),
    ]
    assert [parts(partial)[0].text for partial in partials] == ["Let ", "me see.", "42"]


@pytest.mark.parametrize(
    "events",
    [[], [Thought("I am lost.")], [Text(" \n")], [Text("")]],
    ids=["nothing", "thoughts", "blanks", "an empty delta"],
)
@both_modes
async def test_an_empty_answer_has_an_error_code(events: list[ProviderEvent], stream: bool) -> None:
    final = (await respond([*events, Done()], stream))[-1]
    assert final.error_code == NO_CONTENT_ERROR_CODE
    assert final.content is None or final.content.parts


@pytest.mark.parametrize("finish", ["MAX_TOKENS", "MALFORMED_FUNCTION_CALL", "OTHER"])
async def test_an_empty_answer_has_its_finish_reason_as_error_code(finish: str) -> None:
    [response] = await respond([Done(types.FinishReason(finish))])
    assert response.error_code == finish


@pytest.mark.parametrize("finish", ["MAX_TOKENS", "SAFETY", "OTHER"])
async def test_text_before_an_abnormal_end_is_kept(finish: str) -> None:
    [response] = await respond([Text("Once upon"), Done(types.FinishReason(finish))])
    assert parts(response)[0].text == "Once upon"
    assert response.error_code is None
    assert response.finish_reason is not None
    assert response.finish_reason.value == finish


@pytest.mark.parametrize("finish", ["SAFETY", "PROHIBITED_CONTENT", "RECITATION"])
@both_modes
async def test_a_blocked_answer_without_text_is_an_error(finish: str, stream: bool) -> None:
    with pytest.raises(ContentBlockedError, match=finish):
        await respond([Thought("Hm."), Done(types.FinishReason(finish))], stream)


async def test_calls_without_ids_get_new_ids() -> None:
    history = [
        types.UserContent("Hi"),
        types.ModelContent(types.Part(function_call=types.FunctionCall(id="call_t", name="t", args={}))),
        types.UserContent(types.Part(function_response=types.FunctionResponse(id="call_t", name="t", response={}))),
    ]
    events: list[ProviderEvent] = [ToolCall("", "t", {}), ToolCall("", "t", {}), ToolCall("call_t", "t", {}), Done()]
    [response] = await respond(events, contents=history)
    ids = [part.function_call.id for part in parts(response) if part.function_call]
    assert len({"call_t", *ids}) == 4
    assert all(id_ and id_.startswith("call_t_") for id_ in ids)


async def test_text_that_databases_refuse_is_cleaned() -> None:
    events: list[ProviderEvent] = [Text("a\0b \ud83d"), Text("\ude00"), ToolCall("c", "f", {"x": "\udc00"}), Done()]
    [response] = await respond(events)
    text, call = parts(response)
    assert text.text == "a\N{REPLACEMENT CHARACTER}b \N{GRINNING FACE}"
    assert call.function_call is not None
    assert call.function_call.args == {"x": "\N{REPLACEMENT CHARACTER}"}


async def test_the_request_has_the_system_first_and_the_tools_as_json_schemas() -> None:
    provider = FakeProvider(HELLO)
    old = types.Schema(type=types.Type.OBJECT, properties={"n": types.Schema(type=types.Type.NUMBER)})
    new = {"type": "object", "properties": {"n": {"type": "number"}}}
    config = types.GenerateContentConfig(
        system_instruction="Be brief.",
        tools=[
            types.Tool(
                function_declarations=[
                    types.FunctionDeclaration(name="f", description="F.", parameters=old),
                    types.FunctionDeclaration(name="g", parameters_json_schema=new),
                    types.FunctionDeclaration(name="h"),
                ]
            )
        ],
    )
    request = LlmRequest(model="other", contents=[types.UserContent("Hi")], config=config)
    adapter = ModelAdapter(model="m", provider=provider)
    [_] = [response async for response in adapter.generate_content_async(request)]
    [model_request] = provider.requests
    assert model_request.model == "other"
    assert [(message.role, message.text) for message in model_request.messages] == [
        ("system", "Be brief."),
        ("user", "Hi"),
    ]
    assert [(tool.name, tool.description) for tool in model_request.tools] == [("f", "F."), ("g", ""), ("h", "")]
    assert [tool.parameters for tool in model_request.tools] == [new, new, {"type": "object", "properties": {}}]


@pytest.mark.parametrize("contents", [[], [types.UserContent("a"), types.ModelContent("b")]])
async def test_a_request_ends_with_a_message_to_answer(contents: list[types.Content]) -> None:
    provider = FakeProvider(HELLO)
    adapter = ModelAdapter(model="m", provider=provider)
    [_] = [r async for r in adapter.generate_content_async(LlmRequest(contents=contents))]
    assert provider.requests[0].model == "m"
    assert provider.requests[0].messages[-1].role == "user"
