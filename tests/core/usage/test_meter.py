"""Usage meter: each model call of a run is counted, by any agent and with any end."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any

import pytest
from google.adk.agents import LlmAgent
from google.adk.agents.callback_context import CallbackContext
from google.adk.apps import App
from google.adk.models import BaseLlm, LlmRequest, LlmResponse
from google.adk.tools.agent_tool import AgentTool
from google.genai import types
from hypothesis import given
from hypothesis import strategies as st

from chatrig.models import Say, Stall
from core.agents.factory import create_plugins
from core.errors import ProviderUnavailableError, UserSpendingLimitError
from core.messages.identity import DEFAULT_AGENT_NAME
from core.models.adapter import ModelAdapter
from core.models.provider import Done, ModelRequest, ProviderEvent, Text, ToolCall
from core.models.tokens import estimate_tokens
from core.usage.file_estimates import PDF_PAGE_TOKENS
from core.usage.meter import CANCELLED, ModelCall, RunningCall, Usage, UsageMeter, parse_stored_calls
from tests.core.models.conftest import VENDORS, connect_provider
from tests.fixtures.conversation import Converse, ScriptedProvider, adapter
from tests.fixtures.files import create_pdf

REPORTED = Usage(10, 2, 1, 4, cache_write=3)


def token_counts(call: ModelCall) -> tuple[Any, ...]:
    return call.model, call.input, call.output, call.thinking, call.cached, call.error


class UsageReportingProvider(ScriptedProvider):
    """Scripted provider that reports seven tokens of usage before its answer."""

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ProviderEvent, None]:
        request.report_usage(Usage(7))
        async with aclosing(super().stream(request)) as events:  # type: ignore[type-var]  # it is a generator
            async for event in events:
                yield event


class AdkModel(BaseLlm):
    """ADK model without a `ModelAdapter` that reports its usage with each response."""

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        if "fail" in str(llm_request.contents):
            raise RuntimeError("no")
        usage = types.GenerateContentResponseUsageMetadata(prompt_token_count=30, candidates_token_count=5)
        content = types.ModelContent("brought")
        yield LlmResponse(content=content, partial=True, usage_metadata=usage)
        yield LlmResponse(content=content, partial=False, usage_metadata=usage)


async def test_failed_calls_and_calls_of_agent_tools_are_counted(
    converse: Converse,
) -> None:
    busy: list[ProviderEvent | asyncio.Event | Exception] = [Text("The"), ProviderUnavailableError("down")]
    provider = UsageReportingProvider(
        [ToolCall("c", "expert", {"request": "?"}), Done(usage=REPORTED)],
        busy,
        [Text("The sky."), Done(usage=REPORTED)],
    )
    expert = LlmAgent(name="expert", model=adapter(ScriptedProvider([Text("It is blue."), Done(usage=Usage(5, 3))])))
    model = ModelAdapter(model="openai/boss", provider=provider, retry_delays=(0,))
    root = LlmAgent(name=DEFAULT_AGENT_NAME, model=model, tools=[AgentTool(expert)])
    conversation = await converse(app=App(name=DEFAULT_AGENT_NAME, root_agent=root, plugins=create_plugins()))
    done = (await conversation.events("Which colour?"))[-1]
    assert done.type == "done"
    assert [token_counts(call) for call in done.calls] == [
        ("openai/boss", 10, 2, 1, 4, ""),
        ("scripted", 5, 3, 0, 0, ""),
        ("openai/boss", 7, 0, 0, 0, "ProviderUnavailableError"),
        ("openai/boss", 10, 2, 1, 4, ""),
    ]
    assert done.usage == Usage(32, 7, 2, 8, cache_write=6)


@pytest.mark.parametrize("says", ["Hi", "fail"])
async def test_an_agents_own_adk_model_is_counted(converse: Converse, says: str) -> None:
    app = App(
        name="own", root_agent=LlmAgent(name="own", model=AdkModel(model="their-model")), plugins=create_plugins()
    )
    last = (await (await converse(app=app)).events(says))[-1]
    failed = says == "fail"
    expected = ("their-model", 0, 0, 0, 0, "RuntimeError") if failed else ("their-model", 30, 5, 0, 0, "")
    assert [token_counts(call) for call in last.calls] == [expected]
    assert last.type == ("error" if failed else "done")


class ListedPrompts:
    """Prompt sink that lists the calls, and the turns whose prompts were awaited."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str, str, str]] = []
        self.awaited: list[str] = []

    def save(self, turn_id: str, model: str, agent: str, request: ModelRequest) -> None:
        self.calls.append((turn_id, model, agent, "|".join(message.text for message in request.messages)))

    async def wait(self, turn_id: str) -> None:
        self.awaited.append(turn_id)


def add_instruction(callback_context: CallbackContext, llm_request: LlmRequest) -> None:
    llm_request.append_instructions(["By the callback."])


async def test_prompts_of_all_agents_are_stored_as_callbacks_leave_them(converse: Converse) -> None:
    provider = ScriptedProvider([ToolCall("c", "expert", {"request": "Which sky?"}), Done()], "The sky is blue.")
    expert = LlmAgent(name="expert", instruction="Be exact.", model=AdkModel(model="theirs"))
    root = LlmAgent(
        name=DEFAULT_AGENT_NAME,
        instruction="Be kind.",
        model=adapter(provider),
        tools=[AgentTool(expert)],
        before_model_callback=add_instruction,
    )
    conversation = await converse(app=App(name=DEFAULT_AGENT_NAME, root_agent=root, plugins=create_plugins()))
    meter = UsageMeter("t")
    meter.prompts = stored = ListedPrompts()
    await conversation.events("Which colour?", meter=meter)
    assert [call[:3] for call in stored.calls] == [
        ("t", "scripted", DEFAULT_AGENT_NAME),
        ("t", "theirs", "expert"),
        ("t", "scripted", DEFAULT_AGENT_NAME),
    ]
    texts = [call[3] for call in stored.calls]
    assert texts[0].startswith("Be kind.")
    assert "By the callback." in texts[0]
    assert texts[0].endswith("Which colour?")
    assert texts[1].startswith("Be exact.")
    assert texts[1].endswith("Which sky?")
    assert stored.awaited == ["t"]


class SilentAdkModel(BaseLlm):
    """ADK model without a `ModelAdapter` that reports no usage.

    Attributes:
        ends: whether it ends its answer.
    """

    ends: bool

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        yield LlmResponse(content=types.ModelContent("well " * 100), partial=True)
        if not self.ends:
            await asyncio.Event().wait()
        yield LlmResponse(content=types.ModelContent("well " * 100), partial=False)


@pytest.mark.parametrize("ends", [True, False])
async def test_an_external_model_without_token_counts_is_estimated_with_its_files(
    converse: Converse, ends: bool
) -> None:
    model, meter, has_begun = SilentAdkModel(model="theirs", ends=ends), UsageMeter("t"), asyncio.Event()
    app = App(name="own", root_agent=LlmAgent(name="own", model=model), plugins=create_plugins())
    conversation = await converse(app=app)
    pdf = types.Part.from_bytes(data=create_pdf(20), mime_type="application/pdf")

    async def read() -> None:
        async with aclosing(conversation.stream("What?", run_id="t", media=[pdf], meter=meter)) as events:
            async for event in events:
                if event.type == "text_delta":
                    has_begun.set()

    reading = asyncio.create_task(read())
    await has_begun.wait()
    if not ends:
        reading.cancel()
    await asyncio.wait([reading])
    (call,) = meter.calls
    assert (call.model, call.error, call.output) == ("theirs", "" if ends else CANCELLED, 125)
    assert 20 * PDF_PAGE_TOKENS < call.input < 22 * PDF_PAGE_TOKENS
    assert meter.running == []


async def test_an_external_model_reserves_the_cost_of_its_files(converse: Converse) -> None:
    reserved = list[int]()
    app = App(name="own", root_agent=LlmAgent(name="own", model=AdkModel(model="theirs")), plugins=create_plugins())
    conversation, meter = await converse(app=app), UsageMeter("t")

    async def refuse(model: str, estimate_input: Callable[[], int], call: RunningCall | None = None) -> None:
        reserved.append(estimate_input())
        raise UserSpendingLimitError("no budget", limit="$1")

    meter.check_limits = refuse
    pdf = types.Part.from_bytes(data=create_pdf(20), mime_type="application/pdf")
    last = (await conversation.events("What?", media=[pdf], meter=meter))[-1]
    assert isinstance(last.error, UserSpendingLimitError)
    assert 20 * PDF_PAGE_TOKENS < reserved[0] < 22 * PDF_PAGE_TOKENS
    assert (meter.calls, meter.running) == ((), [])


async def test_an_answer_that_ends_at_a_limit_counts_by_its_text(converse: Converse) -> None:
    provider, meter, text = ScriptedProvider([Text("So far. " * 600), Text("more"), Done()]), UsageMeter("t"), "Hi"
    checks = list[RunningCall]()

    async def check(model: str, estimate_input: Callable[[], int], call: RunningCall | None = None) -> None:
        assert call is not None
        checks.append(call)
        if call.reserved is not None:
            raise UserSpendingLimitError("no budget", limit="$1")
        call.reserved = ModelCall(model, input=estimate_input())

    meter.check_limits = check
    last = (await (await converse(provider)).events(text, meter=meter))[-1]
    assert isinstance(last.error, UserSpendingLimitError)
    (call,) = meter.calls
    assert (call.output, call.error) == (1_200, "UserSpendingLimitError")
    assert (len(checks), checks[0].expected_output, meter.running) == (2, 2_400, [])


async def test_a_resumed_run_counts_each_call_once(
    converse: Converse,
) -> None:
    look: list[ProviderEvent | asyncio.Event] = [ToolCall("c", "look", {}), Done(usage=REPORTED)]
    provider = UsageReportingProvider(
        look, [Text("Well"), asyncio.Event()], [Text("Well."), Done(usage=REPORTED)], [Text("!"), Done()]
    )
    conversation = await converse(provider)
    first, meters = UsageMeter("t1"), [UsageMeter("t1"), UsageMeter("t1", UsageMeter("t1").to_json()), UsageMeter("t2")]
    async with aclosing(conversation.stream("Hi", run_id="t1", meter=first)) as events:
        async for event in events:
            if event.text == "Well":
                break
    assert [token_counts(call) for call in first.calls] == [
        ("scripted", *(10, 2, 1, 4), ""),
        ("scripted", *(7, 1, 0, 0), CANCELLED),
    ]
    meters[1] = UsageMeter("t1", first.to_json())  # the turn was handed back with these stored calls
    meters[0].add_stored_answers(await conversation.history())  # the process died: only stored answers count
    meters[1].add_stored_answers(await conversation.history())
    meters[2].add_stored_answers(await conversation.history())  # a retry: the first attempt's usage is not its own
    assert [len(meter.calls) for meter in meters] == [1, 2, 0]
    assert token_counts(meters[0].calls[0]) == token_counts(first.calls[0])
    assert meters[0].usage.cache_write == 3  # ADK's usage metadata has no such field
    done = (await conversation.events("Hi", run_id="t1", meter=meters[1]))[-1]
    assert len(done.calls) == 3
    assert done.usage == Usage(27, 5, 2, 8, cache_write=6)


@pytest.mark.parametrize("vendor", VENDORS)
async def test_a_stopped_answer_is_counted_by_its_text(converse: Converse, vendor: str) -> None:
    answer, question = "So far so good. " * 20, "Tell me all about it. " * 20
    meter, has_begun = UsageMeter("t"), asyncio.Event()

    async def read() -> None:
        async with aclosing(conversation.stream(question, run_id="t", meter=meter)) as events:
            async for event in events:
                if event.type == "text_delta":
                    has_begun.set()

    async with connect_provider(vendor, [[Say(answer), Stall()]]) as wire:
        model = ModelAdapter(model="the-model", provider=wire.provider)
        conversation = await converse(
            app=App(name="own", root_agent=LlmAgent(name="own", model=model), plugins=create_plugins())
        )
        reading = asyncio.create_task(read())
        await has_begun.wait()
        reading.cancel()
        await asyncio.wait([reading])
    (call,) = meter.calls
    assert (call.model, call.error, call.output) == ("the-model", CANCELLED, estimate_tokens(answer))
    if vendor == "openai":
        assert call.input >= estimate_tokens(question)
    else:  # the first piece of the answer has the vendor's own count
        assert call.input == {"gemini": 7, "anthropic": 1}[vendor]
    assert parse_stored_calls(meter.to_json()) == [call]


@given(st.lists(st.builds(ModelCall, model=st.text(), input=st.integers(0), error=st.text(max_size=5))))
def test_stored_calls_are_read_unchanged(calls: list[ModelCall]) -> None:
    meter = UsageMeter("t")
    for call in calls:
        meter.add(call)
    assert parse_stored_calls(meter.to_json()) == calls
    assert list(UsageMeter("t", meter.to_json()).calls) == calls
