"""Stream events of an agent's run, and the ways in which a run ends."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import aclosing

import pytest
from google.adk.agents import LlmAgent
from google.adk.agents.base_agent import BaseAgent
from google.adk.agents.parallel_agent import ParallelAgent
from google.adk.apps import App
from google.genai import types

from core.agents.config import AgentConfig
from core.agents.factory import create_app
from core.agents.runtime import warm_up
from core.errors import (
    ProviderError,
    ProviderRateLimitError,
    ProviderStreamError,
    ProviderUnavailableError,
    StepLimitError,
)
from core.messages.identity import User
from core.models.adapter import ModelAdapter
from core.models.finish_reasons import BLOCKED_NOTE, CUT_OFF_NOTE
from core.models.provider import Done, ProviderEvent, Text, Thought, ToolCall
from core.models.providers.coalescing import DeltaSchedule
from core.tools.tool import Tool, to_adk_tool
from core.usage.meter import Usage
from tests.fixtures.conversation import (
    Conversation,
    Converse,
    ScriptedProvider,
    adapter,
    apply_text_events,
    create_team_app,
    list_types,
)


def calls(name: str, id_: str = "c1", **arguments: object) -> ToolCall:
    return ToolCall(id_, name, arguments)


def make_tool(answer: object) -> Tool:
    return Tool("look", "Looks.", lambda _arguments: answer)


@pytest.mark.filterwarnings("ignore:ParallelAgent is deprecated")
async def test_parallel_agents_have_a_text_each(converse: Converse) -> None:
    of_ada, of_bob = asyncio.Event(), asyncio.Event()
    ada = ScriptedProvider([Text("Ada "), of_ada, Text("speaks."), Done()])
    bob = ScriptedProvider([of_bob, Text("Bob speaks."), Done()])
    agents: list[BaseAgent] = [
        LlmAgent(name="ada", model=adapter(ada)),
        LlmAgent(name="bob", model=adapter(bob)),
    ]
    conversation = await converse(app=App(name="both", root_agent=ParallelAgent(name="both", sub_agents=agents)))
    events = []
    async with aclosing(conversation.stream("Hi")) as stream:
        async for event in stream:
            events.append(event)
            if "Ada" in event.text:
                of_bob.set()
            if "Bob" in event.text:
                of_ada.set()
    assert [(event.type, event.text) for event in events] == [
        ("text_delta", "Ada "),
        ("text_delta", "\n\nBob speaks."),
        ("step_reset", "Ada speaks.\n\nBob speaks."),
        ("done", "Ada speaks.\n\nBob speaks."),
    ]


@pytest.mark.parametrize("streaming", [True, False])
async def test_thoughts_are_never_shown(converse: Converse, streaming: bool) -> None:
    provider = ScriptedProvider([Thought("He wants "), Thought("a number."), Text("4"), Text("2"), Done()])
    events = await (await converse(provider)).events("6 * 7?", streaming=streaming)
    assert apply_text_events(events) == events[-1].text == "42"
    assert not any("number" in event.text for event in events)


async def test_an_unknown_tool_is_an_error_of_its_call(converse: Converse) -> None:
    provider = ScriptedProvider([calls("fly"), Done()], "I cannot fly.")
    events = await (await converse(provider, tools=[make_tool("sky")])).events("Fly!")
    assert [(event.tool, event.call_id) for event in events if event.type == "error"] == [("fly", "c1")]
    assert events[-1].text == "I cannot fly."


async def test_a_model_that_calls_tools_without_end_is_ended(converse: Converse) -> None:
    endless: list[list[ProviderEvent]] = [[calls("look", f"c{number}"), Done()] for number in range(5)]
    provider = ScriptedProvider(*endless)
    conversation = await converse(provider, tools=[make_tool("sky")])
    conversation.runtime.max_llm_calls = 3
    events = await conversation.events("Look.")
    assert isinstance(events[-1].error, StepLimitError)
    assert len(provider.requests) == 3


@pytest.mark.parametrize("finish", ["MAX_TOKENS", "MALFORMED_FUNCTION_CALL", "OTHER"])
@pytest.mark.parametrize("before", [[], [[Text("Let me look."), calls("look"), Done()]]], ids=["at once", "at last"])
async def test_an_answer_cut_off_before_its_first_word_is_an_error(
    converse: Converse, before: Sequence[Sequence[ProviderEvent]], finish: str
) -> None:
    provider = ScriptedProvider(*before, [Thought("Hm."), Done(types.FinishReason(finish))])
    events = await (await converse(provider, tools=[make_tool("sky")])).events("Hi")
    assert list_types(events).count("error") == 1
    assert isinstance(events[-1].error, ProviderError)
    assert finish in str(events[-1].error)


@pytest.mark.parametrize("streaming", [True, False])
@pytest.mark.parametrize(
    ("finish", "sentence"), [(types.FinishReason.MAX_TOKENS, CUT_OFF_NOTE), (types.FinishReason.SAFETY, BLOCKED_NOTE)]
)
async def test_an_answer_cut_off_in_the_middle_is_the_reply_with_a_note(
    converse: Converse, finish: types.FinishReason, sentence: str, streaming: bool
) -> None:
    conversation = await converse(ScriptedProvider([Text("Once "), Text("upon"), Done(finish)]))
    events = await conversation.events("A story!", streaming=streaming)
    assert apply_text_events(events) == events[-1].text == f"Once upon\n\n{sentence}"
    assert "step_reset" not in list_types(events)
    assert [row.content for row in await conversation.rows()] == ["A story!", "Once upon"]


async def converse_with_retries(converse: Converse, provider: ScriptedProvider, *tools: Tool) -> Conversation:
    model = ModelAdapter(model="scripted", provider=provider, schedule=DeltaSchedule(), retry_delays=(0, 0))
    return await converse(app=create_app(AgentConfig(), model=model, tools=[to_adk_tool(tool) for tool in tools]))


def rate_limit_failure() -> ProviderError:
    return ProviderRateLimitError("busy", retry_after=0.01)


def overload_failure() -> ProviderError:
    return ProviderUnavailableError("overloaded")


def stall_failure() -> ProviderError:
    return ProviderStreamError("silent")


@pytest.mark.parametrize("streaming", [True, False])
@pytest.mark.parametrize("broken", [rate_limit_failure, overload_failure, stall_failure])
async def test_a_broken_step_restarts_and_its_text_appears_once(
    converse: Converse, broken: Callable[[], ProviderError], streaming: bool
) -> None:
    looked: list[object] = []
    look = Tool("look", "Looks.", looked.append)
    usage = Usage(10, 2, 1, 4)
    provider = ScriptedProvider(
        [Text("Let me look."), calls("look"), Done(usage=usage)],
        [Thought("Hm."), Text("The sky is gr"), calls("look", "c2"), broken()],
        [broken()],
        [Text("The sky "), Text("is blue."), Done(usage=usage)],
    )
    conversation = await converse_with_retries(converse, provider, look)
    events = await conversation.events("Look.", streaming=streaming)
    assert apply_text_events(events) == events[-1].text == "Let me look.\n\nThe sky is blue."
    assert [event.text for event in events if event.type == "step_reset"] == ["Let me look."] * streaming
    assert len(looked) == list_types(events).count("tool_start") == list_types(events).count("tool_end") == 1
    assert events[-1].usage == Usage(20, 4, 2, 8)
    rows = await conversation.rows()
    assert [(row.role, row.content) for row in rows if row.role != "tool"] == [
        ("user", "Look."),
        ("assistant", "Let me look."),
        ("assistant", "The sky is blue."),
    ]
    assert not any("gr" in str(row) or "retraction" in str(row) for row in rows)
    assert provider.requests[1].messages == provider.requests[2].messages == provider.requests[3].messages


async def test_a_new_attempt_may_have_nothing_to_say(converse: Converse) -> None:
    conversation = await converse_with_retries(converse, ScriptedProvider([Text("Hel"), overload_failure()], [Done()]))
    events = await conversation.events("Hi")
    assert list_types(events) == ["text_delta", "step_reset", "done"]
    assert apply_text_events(events) == events[-1].text == ""


def transfer_events(name: str, *before: ProviderEvent, id_: str = "c1") -> list[ProviderEvent]:
    return [*before, calls("transfer_to_agent", id_, agent_name=name), Done()]


@pytest.mark.parametrize(
    "words",
    [
        "failed to find agent: ghost",
        "Transfer target agent 'ghost' not found.",
        "Agent ghost not found in the agent tree.",
    ],
)
async def test_an_invented_agent_is_known_by_each_of_adks_words(converse: Converse, words: str) -> None:
    provider = ScriptedProvider([ValueError(words)], "Here I am.")
    assert await (await converse(app=create_team_app(provider, "billing"))).reply("Hi") == "Here I am."
    assert 'Agent "ghost" does not exist. Valid agents: billing.' in provider.requests[1].messages[-1].text


async def test_text_before_an_invented_agent_is_retracted(converse: Converse) -> None:
    provider = ScriptedProvider(transfer_events("ghost", Text("One moment.")), "Here I am.")
    events = await (await converse(app=create_team_app(provider, "billing", has_guard=False))).events("Hi")
    assert "error" not in list_types(events)
    assert apply_text_events(events) == events[-1].text == "Here I am."


async def test_the_retry_has_the_same_speaker(converse: Converse) -> None:
    questions: list[str] = []

    def instruction(context: object) -> str:
        questions.append(str(getattr(context, "state")["temp:speaker"]))  # noqa: B009 - mypy does not have ADK's type
        return "Help."

    provider = ScriptedProvider(transfer_events("ghost"), "Here I am.")
    app = create_team_app(provider, "billing", has_guard=False)
    assert isinstance(app.root_agent, LlmAgent)
    app.root_agent.instruction = instruction
    await (await converse(app=app)).events("Hi", speakers=[User("U1", "Ada")])
    assert questions == ["Ada", "Ada"]


async def test_the_agents_of_agents_are_named_too(converse: Converse) -> None:
    provider = ScriptedProvider(transfer_events("ghost"), "Here I am.")
    app = create_team_app(provider, "billing", "research", has_guard=False)
    assert isinstance(app.root_agent, LlmAgent)
    refunds = LlmAgent(name="refunds", model=adapter(provider))
    refunds.parent_agent = app.root_agent.sub_agents[0]
    app.root_agent.sub_agents[0].sub_agents.append(refunds)
    await (await converse(app=app)).events("Hi")
    assert "Valid agents: billing, refunds, research." in provider.requests[1].messages[-1].text


async def test_warming_up_leaves_no_tasks() -> None:
    before = asyncio.all_tasks()
    await warm_up()
    assert asyncio.all_tasks() == before
