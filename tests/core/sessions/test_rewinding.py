"""Discarded runs: they start again from the same prompt, without their events."""

import time

import pytest
import sqlalchemy as sa
from google.adk.agents import LlmAgent, ParallelAgent, SequentialAgent
from google.adk.agents.base_agent import BaseAgent
from google.adk.workflow import Workflow

from core.models.provider import Done, Text, ToolCall
from core.sessions.resume import correction_run_id, discard_run
from core.store.schema import tool_calls
from core.tools.call_log import ToolCallLog
from core.tools.tool import Tool, to_adk_tool
from core.turns.automation.jobs import ToolInvocation
from tests.fixtures.conversation import (
    SESSION,
    Answer,
    Conversation,
    Converse,
    ScriptedProvider,
    adapter,
)

pytestmark = [
    pytest.mark.filterwarnings("ignore:SequentialAgent is deprecated"),
    pytest.mark.filterwarnings("ignore:ParallelAgent is deprecated"),
]


async def rerun(conversation: Conversation, text: str = "go", *, keeps_prompt: bool = True) -> str:
    async with conversation.database.write() as connection:
        await discard_run(connection, SESSION, "run-1", keep_prompt=keeps_prompt)
    return (await conversation.events(text, run_id="run-1"))[-1].text


async def list_history(conversation: Conversation) -> list[tuple[str, str]]:
    return [(row.role, row.content) for row in await conversation.rows() if row.role != "event"]


class CountingPaymentTool:
    """Tool "pay" that counts its calls."""

    def __init__(self) -> None:
        self.calls = 0
        self.tool = to_adk_tool(Tool("pay", "Pays.", self._pay))

    async def _pay(self, _arguments: object) -> str:
        self.calls += 1
        return f"paid {self.calls}"


CALL: Answer = [Text("To pay."), ToolCall("c1", "pay", {}), Done()]


@pytest.mark.parametrize("keeps_prompt", [True, False])
async def test_events_of_a_discarded_run_are_deleted_and_its_prompt_is_sent_once(
    converse: Converse, keeps_prompt: bool
) -> None:
    used = CountingPaymentTool()
    provider = ScriptedProvider("Hello.", CALL, "Paid one.", CALL, "Paid two.")
    conversation = await converse(root=LlmAgent(name="root", model=adapter(provider), tools=[used.tool]))
    await conversation.events("hi", run_id="run-0")
    await conversation.events("go", run_id="run-1")
    text = "go" if keeps_prompt else "come"
    assert await rerun(conversation, text, keeps_prompt=keeps_prompt) == "To pay.\n\nPaid two."
    assert used.calls == 2
    assert await list_history(conversation) == [
        ("user", "hi"),
        ("assistant", "Hello."),
        ("user", text),
        ("assistant", "To pay."),
        ("tool", '{"result": "paid 2"}'),
        ("assistant", "Paid two."),
    ]
    assert [message.text for message in provider.requests[3].messages if message.role == "user"] == ["hi", text]


def workflow(*agents: BaseAgent) -> Workflow:
    return Workflow(name="root", edges=[("START", *agents)])


@pytest.mark.parametrize("kind", ["sequence", "side by side", "workflow"])
async def test_agents_of_every_kind_restart(converse: Converse, kind: str) -> None:
    used = CountingPaymentTool()
    one, two = ScriptedProvider(CALL, "One.", CALL, "Three."), ScriptedProvider("Two.", "Four.")
    agents = [
        LlmAgent(name="first", model=adapter(one), tools=[used.tool]),
        LlmAgent(name="second", model=adapter(two)),
    ]
    match kind:
        case "sequence":
            conversation = await converse(root=SequentialAgent(name="root", sub_agents=list(agents)))
        case "side by side":
            conversation = await converse(root=ParallelAgent(name="root", sub_agents=list(agents)))
        case _:
            conversation = await converse(root=workflow(*agents))
    await conversation.events("go", run_id="run-1")
    text = await rerun(conversation)
    assert sorted(text.split("\n\n")) == ["Four.", "Three.", "To pay."]
    assert (used.calls, one.answers, two.answers) == (2, [], [])
    assert [content for role, content in await list_history(conversation) if role == "user"][:1] == ["go"]
    assert "One." not in str(await list_history(conversation))


async def test_discarding_a_run_deletes_its_correction_and_no_other_run(converse: Converse) -> None:
    provider = ScriptedProvider("One.", "Two.", "Three.")
    conversation = await converse(provider)
    for run_id in ("run-0", "run-1", correction_run_id("run-1")):
        await conversation.events(f"in {run_id}", run_id=run_id)
    journal = ToolCallLog(conversation.database)
    for run_id in ("run-0", "run-1", correction_run_id("run-1")):
        await journal.begin(ToolInvocation(SESSION, 1, run_id, "c", "pay", {}))
    async with conversation.database.write() as connection:
        await discard_run(connection, SESSION, "run-1", keep_prompt=True)
        await discard_run(connection, SESSION, "no such run", keep_prompt=True)
        run_ids = (await connection.execute(sa.select(tool_calls.c.run))).scalars().all()
    assert run_ids == ["run-0"]
    assert await list_history(conversation) == [("user", "in run-0"), ("assistant", "One."), ("user", "in run-1")]
    assert (await conversation.rows())[-1].created_at <= time.time()
