"""Fallbacks to other models after errors of the first one."""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import aclosing
from typing import Any

import pytest
from google.adk.agents import LlmAgent
from google.adk.apps import App
from google.adk.models import LlmRequest
from google.genai import types

from core.agents.config import AgentConfig
from core.agents.factory import create_app, create_plugins
from core.concurrency import event_loop
from core.errors import (
    ContentBlockedError,
    ContextLengthError,
    ModelNotFoundError,
    ProviderAuthError,
    ProviderError,
    ProviderRateLimitError,
    ProviderRequestError,
    ProviderTimeoutError,
    ProviderUnavailableError,
    SettingsError,
)
from core.messages.identity import DEFAULT_AGENT_NAME
from core.models import retries_and_fallbacks as fallbacks
from core.models.adapter import ModelAdapter
from core.models.media import shorten_history
from core.models.provider import (
    Done,
    Media,
    ModelHandle,
    ModelMessage,
    ProviderEvent,
    SupportedFiles,
    Text,
    ToolCall,
)
from core.models.retries_and_fallbacks import Fallbacks
from core.models.selection import ModelRegistry
from core.models.vendors import VendorSettings
from core.usage.meter import Usage
from tests.fixtures.conversation import Converse, ScriptedProvider, apply_text_events, list_types

DOWN: list[ProviderEvent | asyncio.Event | Exception] = [ProviderUnavailableError("down")]


def make_adapter(first: ScriptedProvider, *others: ScriptedProvider, **kwargs: Any) -> ModelAdapter:
    """Return an adapter for the model `a/first`, with the fallbacks `b/1`, `b/2` ..."""
    offered = {f"b/{nth}": ModelHandle(other, str(nth)) for nth, other in enumerate(others, 1)}
    return ModelAdapter(model="a/first", provider=first, fallbacks=Fallbacks(offered), idle_seconds=1, **kwargs)


@pytest.mark.parametrize(
    "error",
    [
        ProviderUnavailableError("down"),
        ProviderRateLimitError("overloaded"),
        ProviderAuthError("its key is refused"),
        ModelNotFoundError("it is gone"),
        ProviderTimeoutError("it says nothing"),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_a_fallback_answers_and_its_call_names_the_replaced_model(
    converse: Converse, error: ProviderError
) -> None:
    first, second = ScriptedProvider([error]), ScriptedProvider([error])
    third = ScriptedProvider([Text("Here I am."), Done(usage=Usage(1, 2))])
    conversation = await converse(app=create_app(AgentConfig(), model=make_adapter(first, second, third)))
    done = (await conversation.events("hi"))[-1]
    assert (done.type, done.text) == ("done", "Here I am.")
    assert [(call.model, call.instead_of, call.error) for call in done.calls] == [
        ("a/first", "", type(error).__name__),
        ("b/1", "a/first", type(error).__name__),
        ("b/2", "a/first", ""),
    ]
    assert [request.model for request in third.requests] == ["2"]


@pytest.mark.parametrize(
    "error", [ContentBlockedError("blocked"), ProviderRequestError("wrong"), ContextLengthError("long")]
)
async def test_a_fault_of_the_request_is_not_sent_to_a_fallback(converse: Converse, error: ProviderError) -> None:
    other = ScriptedProvider()
    conversation = await converse(app=create_app(AgentConfig(), model=make_adapter(ScriptedProvider([error]), other)))
    assert (await conversation.events("hi"))[-1].error is error
    assert other.requests == []


async def test_a_fallback_within_a_text_retracts_it_and_calls_tools_once(
    converse: Converse,
) -> None:
    broken: list[ProviderEvent | asyncio.Event | Exception] = [Text("The sky is gr"), *DOWN]
    first = ScriptedProvider([Text("Let me look. "), ToolCall("c", "current_time", {}), Done()], broken, broken)
    other = ScriptedProvider("The sky is blue.")
    conversation = await converse(app=create_app(AgentConfig(), model=make_adapter(first, other, retry_delays=(0,))))
    events = await conversation.events("hi")
    assert apply_text_events(events) == events[-1].text == "Let me look. \n\nThe sky is blue."
    assert list_types(events).count("step_reset") >= 1
    assert len(first.requests) == 3  # the first model has all its attempts
    assert [event.text for event in events if event.type == "step_reset"][-1] == "Let me look. "


async def test_if_all_models_fail_the_error_is_the_first_ones(converse: Converse) -> None:
    error = ProviderAuthError("its key is refused")
    model = make_adapter(ScriptedProvider([error]), ScriptedProvider(DOWN))
    assert (await (await converse(app=create_app(AgentConfig(), model=model))).events("hi"))[-1].error is error


async def test_a_failed_model_is_skipped_for_a_minute_and_then_tried_once(
    converse: Converse, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr(event_loop, "now", lambda: now)
    first, other = ScriptedProvider(*[DOWN] * 5), ScriptedProvider(*["Yes."] * 9)
    conversation = await converse(app=create_app(AgentConfig(), model=make_adapter(first, other, retry_delays=(0, 0))))

    async def count_calls(at: float) -> int:
        nonlocal now
        now = at
        before = len(first.requests)
        assert (await conversation.events("hi"))[-1].type == "done"
        return len(first.requests) - before

    assert [await count_calls(at) for at in (1000, 1001, 1059, 1061, 1120, 1122)] == [3, 0, 0, 1, 0, 1]
    first.answers = ["I am back."]
    assert [await count_calls(at) for at in (1181, 1183)] == [0, 1]
    first.answers = ["Still.", "And again."]
    assert [await count_calls(at) for at in (1184, 1185)] == [1, 1]


async def test_concurrent_failures_skip_a_model_once(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(event_loop, "now", lambda: now)
    gate = asyncio.Event()
    first, other = ScriptedProvider(*[[gate, *DOWN]] * 8, "I am back."), ScriptedProvider(*["Yes."] * 8)
    model = make_adapter(first, other)

    async def ask() -> str:
        request = LlmRequest(contents=[types.UserContent("hi")])
        responses = [response async for response in model.generate_content_async(request)]
        return "".join(part.text or "" for part in (responses[-1].content or types.Content()).parts or ())

    asking = [asyncio.create_task(ask()) for _ in range(8)]
    async with asyncio.timeout(30):
        while len(first.requests) < 8:  # noqa: ASYNC110 - all are under way
            await asyncio.sleep(0.01)
    gate.set()
    assert await asyncio.gather(*asking) == ["Yes."] * 8
    now += fallbacks.COOLDOWN_SECONDS + 1
    assert await ask() == "I am back."


async def test_a_fallback_gets_supported_files_and_a_shorter_history(
    converse: Converse, caplog: pytest.LogCaptureFixture
) -> None:
    class TextOnlyProvider(ScriptedProvider):
        def supported_files(self, model: str) -> SupportedFiles:
            return SupportedFiles({}, max_total_bytes=0)

    first = ScriptedProvider(*(f"Answer {n}." for n in range(6)), DOWN)
    long: list[ProviderEvent | asyncio.Event | Exception] = [ContextLengthError("too long")]
    blind = TextOnlyProvider(long, long, "I have read the end of it.")
    conversation = await converse(app=create_app(AgentConfig(), model=make_adapter(first, blind)))
    for n in range(6):
        await conversation.events(f"Question {n}?")
    picture = types.Part.from_bytes(data=b"png", mime_type="image/png")
    with caplog.at_level(logging.WARNING):
        done = (await conversation.events("And this?", media=[picture]))[-1]
    assert done.text == "I have read the end of it."
    assert any(isinstance(part, Media) for part in first.requests[-1].messages[-1].parts)
    assert not any(isinstance(part, Media) for request in blind.requests for part in request.messages[-1].parts)
    sizes = [len(request.messages) for request in blind.requests]
    assert sizes == sorted(sizes, reverse=True)
    assert len(set(sizes)) == 3
    for request in blind.requests:
        assert [message.role for message in request.messages[:2]] == ["system", "user"]
        assert request.messages[-1].text.startswith("And this?")
    assert "refused a request; a smaller one is sent" in caplog.text


async def test_an_agent_with_its_own_model_has_no_fallbacks(converse: Converse) -> None:
    choice = ModelRegistry("openai/one", [], VendorSettings(openai_api_key="secret-key"), fallbacks=["openai/two"])
    try:
        assert list(choice.selectable) == ["openai/one"]  # users cannot select a fallback
        assert list(choice.make_adapter("openai/one").fallbacks.models) == ["openai/two"]
        assert choice.make_adapter("openai/three").fallbacks.models == {}
    finally:
        await choice.aclose()


@pytest.mark.parametrize("name", ["nobody/model", "gemini-2.5-flash"])
def test_an_unusable_fallback_is_a_fault_at_the_start(name: str) -> None:
    with pytest.raises(SettingsError, match=f"MODEL_FALLBACKS={name}: "):
        ModelRegistry("openai/one", [], VendorSettings(openai_api_key="secret-key"), fallbacks=[name])


async def test_leaving_the_stream_of_a_fallback_closes_its_connection(converse: Converse) -> None:
    other = ScriptedProvider([Text("Well"), asyncio.Event()])
    app = App(
        name=DEFAULT_AGENT_NAME,
        root_agent=LlmAgent(name=DEFAULT_AGENT_NAME, model=make_adapter(ScriptedProvider(DOWN), other)),
        plugins=create_plugins(),
    )
    async with aclosing((await converse(app=app)).stream("hi")) as events:
        async for event in events:
            if event.text == "Well":
                break
    await asyncio.wait_for(other.stream_closed.wait(), 30)


def test_a_shortened_history_begins_with_a_users_message() -> None:
    def talk(roles: str) -> Sequence[ModelMessage]:
        names: dict[str, Any] = {"s": "system", "u": "user", "a": "assistant", "t": "tool"}
        return [ModelMessage(names[role], (Text(role),)) for role in roles]

    def shape(roles: str) -> str | None:
        shorter = shorten_history(talk(roles))
        return None if shorter is None else "".join(message.role[0] for message in shorter)

    long, shorter = ("suauauau", "uauau", "suatatat", "su", "suatatu"), ("suau", "uau", None, None, "su")
    assert tuple(map(shape, long)) == shorter
