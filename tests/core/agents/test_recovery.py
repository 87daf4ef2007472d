"""Interrupted runs that resume at the right place, for each kind of root agent."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from typing import Any

import pytest
from google.adk.agents import LlmAgent, LoopAgent, ParallelAgent, SequentialAgent
from google.adk.agents.base_agent import BaseAgent
from google.adk.agents.invocation_context import InvocationContext
from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions
from google.adk.tools.base_tool import BaseTool
from google.adk.workflow import Workflow
from google.genai import types
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from core.models.provider import Done, Text, ToolCall, ToolResult
from core.sessions.history import INTERRUPTED_ERROR
from core.sessions.resume import resume_run
from core.sessions.service import SessionService
from core.sessions.writer import StoredSession
from core.tools.call_log import ToolCallLog
from core.tools.tool import Tool, to_adk_tool
from core.turns.automation.jobs import ToolInvocation
from tests.core.sessions.events import reset_session
from tests.fixtures.conversation import SESSION, Answer, Conversation, Converse, ScriptedProvider, adapter

pytestmark = [
    pytest.mark.filterwarnings("ignore:SequentialAgent is deprecated"),
    pytest.mark.filterwarnings("ignore:ParallelAgent is deprecated"),
    pytest.mark.filterwarnings("ignore:LoopAgent is deprecated"),
]

#: Seconds: longer than it takes to store an event.
LATE_SECONDS = 0.02


class HangingTool:
    """Tool that counts its calls, and hangs after the first `free` calls.

    Attributes:
        stuck: set when a call hangs.
    """

    def __init__(self, name: str, free: int = 100) -> None:
        self.calls = 0
        self.free = free
        self.stuck = asyncio.Event()
        self.tool = to_adk_tool(Tool(name, "Does it.", self._use))

    async def _use(self, _arguments: dict[str, Any]) -> str:
        self.calls += 1
        if self.calls > self.free:
            self.stuck.set()
            await asyncio.Event().wait()
        return f"used {self.calls}"


def calls(name: str, id_: str, *before: Text) -> list[Any]:
    return [*before, ToolCall(id_, name, {}), Done()]


def agent(name: str, provider: ScriptedProvider, *tools: HangingTool) -> LlmAgent:
    return LlmAgent(name=name, model=adapter(provider), tools=[used.tool for used in tools])


@pytest.fixture(
    ids=["agents first", "store first"],
    params=[(SessionService, "append_event"), (BaseAgent, "_handle_before_agent_callback")],
)
def delayed_store_or_agents(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Delay the session store, then the agents: no result may depend on their order."""
    owner, name = request.param
    do = getattr(owner, name)

    async def do_late(*args: Any, **kwargs: Any) -> Any:
        await asyncio.sleep(LATE_SECONDS)
        return await do(*args, **kwargs)

    monkeypatch.setattr(owner, name, do_late)


in_either_order = pytest.mark.usefixtures("delayed_store_or_agents")


async def interrupt_run(conversation: Conversation, *stuck: HangingTool) -> None:
    """Start a run, wait until the given tools hang, and cancel the run."""
    running = asyncio.create_task(conversation.events("go", run_id="run-1"))
    async with asyncio.timeout(30):
        for used in stuck:
            await used.stuck.wait()
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running


async def resume(conversation: Conversation) -> str:
    async with conversation.database.write() as connection:
        await resume_run(connection, SESSION, "run-1")
    async with asyncio.timeout(30):
        return (await conversation.events("go", run_id="run-1"))[-1].text


@in_either_order
async def test_a_sequence_resumes_at_the_interrupted_agent(converse: Converse) -> None:
    look, pay = HangingTool("look"), HangingTool("pay", free=0)
    one = ScriptedProvider(calls("look", "c1"), "Looked.")
    two = ScriptedProvider(calls("pay", "c2", Text("Now to pay.")), "Paid?")
    root = SequentialAgent(name="root", sub_agents=[agent("one", one, look), agent("two", two, pay)])
    conversation = await converse(root=root)
    await interrupt_run(conversation, pay)
    assert await resume(conversation) == "Looked.\n\nNow to pay.\n\nPaid?"
    assert (look.calls, pay.calls) == (1, 1)
    assert (len(one.requests), len(two.requests)) == (2, 2)
    assert await get_results(conversation) == {"c1": "used 1", "c2": INTERRUPTED_ERROR}


async def test_a_resumed_run_replays_its_events_before_it_continues(converse: Converse) -> None:
    look, pay = HangingTool("look"), HangingTool("pay", free=0)
    provider = ScriptedProvider(calls("look", "c1", Text("First I look.")), calls("pay", "c2"), "Paid?")
    conversation = await converse(root=agent("root", provider, look, pay))
    await interrupt_run(conversation, pay)
    async with conversation.database.write() as connection:
        await resume_run(connection, SESSION, "run-1")
    events = await conversation.events("go", run_id="run-1")
    assert [(event.type, event.call_id) for event in events] == [
        ("history", ""),
        ("text_delta", ""),
        ("tool_past", "c1"),
        ("tool_start", "c2"),
        ("error", "c2"),
        ("tool_end", "c2"),
        ("text_delta", ""),
        ("done", ""),
    ]
    assert events[-1].text == "First I look.\n\nPaid?"


@in_either_order
async def test_each_parallel_agent_resumes_by_itself(converse: Converse) -> None:
    look, pay = HangingTool("look", free=1), HangingTool("pay", free=0)
    one = ScriptedProvider(calls("look", "c1"), calls("look", "c3"), "Looked.")
    two = ScriptedProvider(calls("pay", "c2"), "Paid?")
    ended = asyncio.Event()
    two.answers[0] = [ended, *two.answers[0]]
    three = agent("three", greeter := ScriptedProvider("Hello."))
    three.after_agent_callback = lambda callback_context: ended.set()
    root = ParallelAgent(name="root", sub_agents=[agent("one", one, look), agent("two", two, pay), three])
    conversation = await converse(root=root)
    await interrupt_run(conversation, look, pay)
    text = await resume(conversation)
    assert sorted(text.split("\n\n")) == ["Hello.", "Looked.", "Paid?"]
    assert (look.calls, pay.calls, len(greeter.requests)) == (2, 1, 1)
    assert await get_results(conversation) == {"c1": "used 1", "c2": INTERRUPTED_ERROR, "c3": INTERRUPTED_ERROR}


@in_either_order
async def test_a_loop_resumes_in_its_interrupted_iteration(converse: Converse) -> None:
    look, pay = HangingTool("look"), HangingTool("pay", free=1)
    one = ScriptedProvider(calls("look", "c1"), "One.", calls("look", "c3"), "Three.")
    two = ScriptedProvider(calls("pay", "c2"), "Two.", calls("pay", "c4"), "Four.")
    root = LoopAgent(name="root", max_iterations=2, sub_agents=[agent("one", one, look), agent("two", two, pay)])
    conversation = await converse(root=root)
    await interrupt_run(conversation, pay)
    assert await resume(conversation) == "One.\n\nTwo.\n\nThree.\n\nFour."
    assert (look.calls, pay.calls) == (2, 2)
    assert await get_results(conversation) == {"c1": "used 1", "c2": "used 1", "c3": "used 2", "c4": INTERRUPTED_ERROR}


@in_either_order
async def test_a_workflow_resumes_at_its_interrupted_node(converse: Converse) -> None:
    look, pay = HangingTool("look"), HangingTool("pay", free=0)
    one = ScriptedProvider(calls("look", "c1"), "Looked.")
    two = ScriptedProvider(calls("pay", "c2"), "Paid?")
    steps: list[str] = []

    def between(node_input: Any) -> str:
        steps.append(str(node_input))
        return "go on"

    root = Workflow(name="root", edges=[("START", agent("one", one, look), between, agent("two", two, pay))])
    conversation = await converse(root=root)
    await interrupt_run(conversation, pay)
    assert await resume(conversation) == "Looked.\n\nPaid?"
    assert (look.calls, pay.calls, len(steps)) == (1, 1, 1)
    assert (len(one.requests), len(two.requests)) == (2, 2)
    assert await get_results(conversation) == {"c1": "used 1", "c2": INTERRUPTED_ERROR}
    seen = [part for message in two.requests[1].messages for part in message.parts]
    assert seen == [Text("go on"), ToolCall("c2", "pay", {}), ToolResult("c2", "pay", {"error": INTERRUPTED_ERROR})]


class StatelessAgent(BaseAgent):
    """ADK agent that runs its sub-agents in order, and stores no progress."""

    async def _run_async_impl(self, ctx: InvocationContext) -> AsyncGenerator[Event, None]:
        for worker in self.sub_agents:
            async for event in worker.run_async(ctx):
                yield event


@in_either_order
async def test_an_agent_without_stored_progress_restarts_and_its_tools_do_not(converse: Converse) -> None:
    look, pay = HangingTool("look"), HangingTool("pay", free=0)
    one = ScriptedProvider(calls("look", "c1"), "Looked.", "Looked, as I said.")
    two = ScriptedProvider(calls("pay", "c2"), "Paid?")
    conversation = await converse(
        root=StatelessAgent(name="root", sub_agents=[agent("one", one, look), agent("two", two, pay)])
    )
    await interrupt_run(conversation, pay)
    assert await resume(conversation) == "Looked, as I said.\n\nPaid?"
    assert (look.calls, pay.calls) == (1, 1)
    assert await get_results(conversation) == {"c1": "used 1", "c2": INTERRUPTED_ERROR}


@in_either_order
async def test_an_agent_resumes_after_a_transfer(converse: Converse) -> None:
    pay = HangingTool("pay", free=0)
    first = ScriptedProvider(calls("transfer_to_agent", "c1"))
    first.answers = [[ToolCall("c1", "transfer_to_agent", {"agent_name": "till"}), Done()]]
    second = ScriptedProvider(calls("pay", "c2"), "Paid?")
    root = LlmAgent(name="root", model=adapter(first), sub_agents=[agent("till", second, pay)])
    conversation = await converse(root=root)
    await interrupt_run(conversation, pay)
    assert await resume(conversation) == "Paid?"
    assert pay.calls == 1
    assert (await get_results(conversation))["c2"] == INTERRUPTED_ERROR


async def test_a_run_resumes_after_the_correction_of_an_invented_agent(converse: Converse) -> None:
    pay = HangingTool("pay", free=0)
    ghost: Answer = [Text("One moment."), ValueError("Transfer target agent 'ghost' not found.")]
    provider = ScriptedProvider(ghost, calls("pay", "c1", Text("Then I do it.")), "Paid?")
    root = LlmAgent(
        name="root", model=adapter(provider), tools=[pay.tool], sub_agents=[agent("till", ScriptedProvider())]
    )
    conversation = await converse(root=root)
    await interrupt_run(conversation, pay)
    assert await resume(conversation) == "Then I do it.\n\nPaid?"
    assert (pay.calls, len(provider.requests)) == (1, 3)
    assert await get_results(conversation) == {"c1": INTERRUPTED_ERROR}
    assert [row.role for row in await conversation.rows()].count("user") == 2


async def get_results(conversation: Conversation) -> dict[str, Any]:
    """Return the result of each tool call in the history, by call id.

    Also checks that no call has two results.
    """
    results: dict[str, Any] = {}
    for event in await conversation.history():
        for answer in event.get_function_responses():
            assert answer.id not in results
            results[answer.id or ""] = next(iter((answer.response or {}).values()))
    return results


# Calls that were made at once


class CallState(Enum):
    """State of a tool call when the process died."""

    NOT_BEGUN = "not begun"
    BEGUN = "begun"
    ENDED = "ended"
    ANSWERED = "ended, and its answer is stored"


@dataclass
class StoredCall:
    """Stored tool call, and the number of runs of its tool after the restart.

    Attributes:
        state: the state at the death of the process.
        runs: the number of later runs.
    """

    id: str
    state: CallState
    is_idempotent: bool
    runs: int = 0

    @property
    def runs_now(self) -> bool:
        return self.state is CallState.NOT_BEGUN or (self.state is CallState.BEGUN and self.is_idempotent)

    @property
    def response(self) -> dict[str, Any]:
        if self.runs_now:
            return {"result": f"new {self.id}"}
        return {"error": INTERRUPTED_ERROR} if self.state is CallState.BEGUN else {"result": f"old {self.id}"}

    @property
    def tool(self) -> BaseTool:
        return to_adk_tool(Tool(self.id, "Does it.", self._run, idempotent=self.is_idempotent))

    def _run(self, _arguments: object) -> str:
        self.runs += 1
        return f"new {self.id}"


steps = st.lists(st.tuples(st.sampled_from(CallState), st.booleans()), min_size=1, max_size=5)


@pytest.fixture
async def idle(converse: Converse) -> Conversation:
    """Return a conversation without messages."""
    return await converse(root=LlmAgent(name="root", model=adapter(ScriptedProvider())))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=15)
@given(step=steps, is_answered_in_full=st.booleans())
async def test_no_call_is_made_twice_in_any_state_of_a_step(
    idle: Conversation, step: list[tuple[CallState, bool]], is_answered_in_full: bool
) -> None:
    if is_answered_in_full:
        step = [(CallState.ANSWERED, is_idempotent) for _, is_idempotent in step]
    calls = [StoredCall(f"c{i}", state, is_idempotent) for i, (state, is_idempotent) in enumerate(step)]
    provider, root = ScriptedProvider("Done."), idle.runtime.app.root_agent
    assert isinstance(root, LlmAgent)
    root.model, root.tools = adapter(provider), [call.tool for call in calls]
    await reset_session(idle.sessions, SESSION)
    await store_run(idle, calls)
    assert await resume(idle) == "Done."
    assert [call.runs for call in calls] == [int(call.runs_now) for call in calls]
    results = [part for message in provider.requests[0].messages for part in message.parts]
    results_by_id = {part.id: dict(part.result) for part in results if isinstance(part, ToolResult)}
    assert results_by_id == {call.id: call.response for call in calls}
    assert (await get_results(idle)).keys() == results_by_id.keys()


async def store_run(conversation: Conversation, stored_calls: Sequence[StoredCall]) -> None:
    """Store the events and logged calls of a run that was interrupted in one step.

    Args:
        stored_calls: the tool calls of the step.
    """
    session = await conversation.session()
    assert isinstance(session, StoredSession)
    calls = [types.Part(function_call=types.FunctionCall(id=call.id, name=call.id, args={})) for call in stored_calls]
    answered = [
        types.Part(function_response=types.FunctionResponse(id=call.id, name=call.id, response=call.response))
        for call in stored_calls
        if call.state is CallState.ANSWERED
    ]
    for content, author in (
        (types.UserContent("go"), "user"),
        (types.ModelContent(calls), "root"),
        (types.Content(role="user", parts=answered), "root"),
    ):
        if content.parts:
            await conversation.sessions.append_event(
                session, Event(invocation_id="run-1", author=author, content=content)
            )
    journal = ToolCallLog(conversation.database)
    for call in stored_calls:
        row = ToolInvocation(
            session=SESSION, generation=session.generation, run="run-1", id=call.id, tool=call.id, arguments={}
        )
        if call.state is not CallState.NOT_BEGUN:
            assert await journal.begin(row) is None
        if call.state in (CallState.ENDED, CallState.ANSWERED):
            await journal.end(row, f"old {call.id}", EventActions())
