"""Interrupted runs with a call that waits for an approval or a later result."""

import asyncio
from contextlib import aclosing
from dataclasses import replace
from typing import Any
from unittest.mock import ANY

import pytest
import sqlalchemy as sa
from google.adk.agents import LlmAgent
from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions
from google.adk.runners import Runner
from google.adk.tools.function_tool import FunctionTool
from google.adk.tools.long_running_tool import LongRunningFunctionTool
from google.adk.tools.tool_context import ToolContext
from google.genai import types

from core.models.provider import Done, ToolCall
from core.sessions.history import INTERRUPTED_ERROR
from core.sessions.resume import NOT_STARTED_ERROR, resume_run
from core.store.schema import messages
from core.tools.call_log import ToolCallLog
from core.turns.automation.jobs import ToolInvocation
from tests.fixtures.conversation import SESSION, USER, Answer, Conversation, Converse, ScriptedProvider, adapter

PAY: Answer = [ToolCall("c1", "pay", {}), Done()]


class HangingPaymentTools:
    """Tools that count their payments.

    Attributes:
        begun: set when a payment begins.
        sticks: while True, a payment never ends.
    """

    def __init__(self) -> None:
        self.paid = 0
        self.begun = asyncio.Event()
        self.sticks = False

    async def pay(self) -> str:
        """Pay, and hang while `sticks` is set."""
        self.paid += 1
        self.begun.set()
        if self.sticks:
            await asyncio.Event().wait()
        return "paid"

    async def pay_if_confirmed(self, tool_context: ToolContext) -> dict[str, Any]:
        """Pay only after a confirmation, which the first call requests."""
        self.paid += 1
        if tool_context.tool_confirmation is None:
            tool_context.request_confirmation(hint="Really?")
            tool_context.actions.skip_summarization = True
            return {"status": "asked"}
        return {"status": "paid" if tool_context.tool_confirmation.confirmed else "not paid"}


def create_agent(provider: ScriptedProvider, tool: FunctionTool) -> LlmAgent:
    tool.name = "pay"
    return LlmAgent(name="root", model=adapter(provider), tools=[tool])


async def decide(conversation: Conversation, *, confirmed: bool = True) -> None:
    """Send the decision on the open confirmation, and run the agent to its end."""
    [question] = await list_questions(conversation)
    answer = types.FunctionResponse(id=question.id, name=question.name, response={"confirmed": confirmed})
    content = types.Content(role="user", parts=[types.Part(function_response=answer)])
    runner = Runner(app=conversation.runtime.app, session_service=conversation.sessions)
    async with aclosing(runner.run_async(user_id=USER, session_id=SESSION, new_message=content)) as events:
        async for _ in events:
            pass


async def list_questions(conversation: Conversation) -> list[types.FunctionCall]:
    calls = [call for event in await conversation.history() for call in event.get_function_calls()]
    return [call for call in calls if call.name == "adk_request_confirmation"]


async def resume(conversation: Conversation) -> str:
    async with conversation.database.write() as connection:
        await resume_run(connection, SESSION, "run-1")
    async with asyncio.timeout(30):
        return (await conversation.events("go", run_id="run-1"))[-1].text


async def list_results(conversation: Conversation) -> list[Any]:
    answers = [answer for event in await conversation.history() for answer in event.get_function_responses()]
    return [next(iter((answer.response or {}).values())) for answer in answers if answer.name == "pay"]


async def test_a_tool_whose_confirmation_check_fails_has_failed(converse: Converse) -> None:
    def fail_to_decide() -> bool:
        raise ValueError("who knows")

    till = HangingPaymentTools()
    conversation = await converse(
        root=create_agent(ScriptedProvider(PAY, "Hm."), FunctionTool(till.pay, require_confirmation=fail_to_decide))
    )
    assert (await conversation.events("go", run_id="run-1"))[-1].text == "Hm."
    assert (till.paid, await list_results(conversation)) == (0, ["pay failed: ValueError: who knows"])


@pytest.mark.parametrize("dynamic", [False, True], ids=["the tool's declaration asks", "the tool asks"])
async def test_an_unstored_confirmation_is_requested_again_once(converse: Converse, dynamic: bool) -> None:
    till = HangingPaymentTools()
    tool = FunctionTool(till.pay_if_confirmed) if dynamic else FunctionTool(till.pay, require_confirmation=True)
    provider = ScriptedProvider(PAY, "Paid.")
    conversation = await converse(root=create_agent(provider, tool))
    await conversation.events("go", run_id="run-1")
    newest = sa.select(sa.func.max(messages.c.id)).scalar_subquery()
    async with conversation.database.write() as connection:
        await connection.execute(sa.delete(messages).where(messages.c.id == newest))
    await resume(conversation)
    assert len(await list_questions(conversation)) == 1
    assert till.paid == int(dynamic)
    await decide(conversation)
    assert (await list_results(conversation))[-1] == "paid"


async def test_a_run_that_waits_for_a_person_calls_no_model_again(converse: Converse) -> None:
    provider = ScriptedProvider(PAY, "Paid.")
    tool = FunctionTool(HangingPaymentTools().pay, require_confirmation=True)
    conversation = await converse(root=create_agent(provider, tool))
    waiting = (await conversation.events("go", run_id="run-1"))[-1]
    async with conversation.database.write() as connection:
        await resume_run(connection, SESSION, "run-1")
    assert (await conversation.events("go", run_id="run-1"))[-1] == replace(waiting, calls=ANY, usage=ANY)
    await decide(conversation)
    assert (await list_results(conversation))[-1] == "paid"


@pytest.mark.parametrize(
    ("states", "answered"),
    [
        ({}, []),
        ({"c1": "begun"}, [INTERRUPTED_ERROR]),
        ({"c1": "pending"}, []),
        ({"c1": "ended"}, ["ticket"]),
        ({"c2": "ended"}, [NOT_STARTED_ERROR, "looked"]),
        ({"c1": "pending", "c2": "begun"}, [INTERRUPTED_ERROR]),
    ],
    ids=["nothing begun", "begun", "answered later", "answered at once", "the other ended", "the other begun"],
)
async def test_a_long_running_call_is_made_once(
    converse: Converse, states: dict[str, str], answered: list[str]
) -> None:
    def pay() -> None:
        """Fail if called: the tool must not run twice."""
        raise AssertionError

    provider = ScriptedProvider("Done.")
    conversation = await converse(root=create_agent(provider, LongRunningFunctionTool(pay)))
    session = await conversation.session()
    calls = [types.Part(function_call=types.FunctionCall(id=id_, name="pay", args={})) for id_ in ("c1", "c2")]
    for content, author, long in (
        (types.UserContent("go"), "user", None),
        (types.ModelContent(calls if "c2" in states else calls[:1]), "root", {"c1"}),
    ):
        event = Event(invocation_id="run-1", author=author, content=content, long_running_tool_ids=long)
        await conversation.sessions.append_event(session, event)
    journal = ToolCallLog(conversation.database)
    for id_, state in states.items():
        call = ToolInvocation(session=SESSION, generation=1, run="run-1", id=id_, tool="pay", arguments={})
        await journal.begin(call)
        if state != "begun":
            result = None if state == "pending" else "ticket" if id_ == "c1" else "looked"
            await journal.end(call, result, EventActions())
    assert await resume(conversation) == "Done."
    assert await list_results(conversation) == answered
    step = ["assistant"] if states else []  # a step without a begun call is discarded
    assert [row.role for row in await conversation.rows()] == ["user", *step, *["tool"] * bool(answered), "assistant"]


async def test_the_state_change_of_a_partly_stored_step_is_applied_once(converse: Converse) -> None:
    provider = ScriptedProvider("Done.")
    conversation = await converse(root=create_agent(provider, FunctionTool(HangingPaymentTools().pay)))
    session = await conversation.session()
    calls = [types.Part(function_call=types.FunctionCall(id=id_, name="pay", args={})) for id_ in ("c1", "c2")]
    answer = types.FunctionResponse(id="c1", name="pay", response={"result": "paid"})
    changed = EventActions(state_delta={"user:paid": 1})
    for event in (
        Event(author="user", content=types.UserContent("go")),
        Event(author="root", content=types.ModelContent(calls)),
        Event(author="root", content=types.UserContent([types.Part(function_response=answer)]), actions=changed),
    ):
        event.invocation_id = "run-1"
        await conversation.sessions.append_event(session, event)
    journal = ToolCallLog(conversation.database)
    first, second = (ToolInvocation(SESSION, 1, "run-1", id_, "pay", {}) for id_ in ("c1", "c2"))
    await journal.begin(first)
    await journal.end(first, "paid", changed)
    await journal.begin(second)
    later = Event(author="root", invocation_id="elsewhere", actions=EventActions(state_delta={"user:paid": 2}))
    await conversation.sessions.append_event(session, later)
    assert await resume(conversation) == "Done."
    assert await list_results(conversation) == ["paid", INTERRUPTED_ERROR]
    assert (await conversation.session()).state == {"user:paid": 2}
