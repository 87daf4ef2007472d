"""Messages that a run reads before its next model call, for each kind of agent."""

import asyncio
from contextlib import suppress
from typing import Any, Literal

import pytest
from google.adk.agents import LlmAgent, ParallelAgent, SequentialAgent
from google.adk.models import BaseLlm, LlmRequest, LlmResponse
from google.adk.tools.agent_tool import AgentTool
from google.adk.workflow import Workflow
from google.genai import types
from pydantic import Field

from core.models.provider import Done, ModelRequest, Text, ToolCall, ToolResult
from core.sessions.prompt_text import AttributedPrompt, SteeringPrompt
from core.sessions.resume import resume_run
from tests.fixtures.conversation import SESSION, Conversation, Converse, ScriptedProvider, adapter

pytestmark = [
    pytest.mark.filterwarnings("ignore:SequentialAgent is deprecated"),
    pytest.mark.filterwarnings("ignore:ParallelAgent is deprecated"),
]

ADA = {"U1": "Ada"}


class Inbox:
    """Messages for the next model call.

    Attributes:
        texts: the messages that wait.
        read_count: the number of times that they were read.
    """

    def __init__(self, *texts: str) -> None:
        self.texts = list(texts)
        self.read_count = 0

    async def read(self) -> list[SteeringPrompt]:
        self.read_count += 1
        texts, self.texts = self.texts, []
        return [SteeringPrompt(f"steering:{text}", AttributedPrompt((("U1", text),), ADA)) for text in texts]


def tool_that_posts(inbox: Inbox, *texts: str) -> Any:
    def look() -> str:
        """Look it up, while its user writes."""
        inbox.texts += texts
        return "found"

    return look


def call(name: str, id_: str = "c1", **arguments: Any) -> list[Any]:
    return [ToolCall(id_, name, arguments), Done()]


def describe(request: ModelRequest) -> list[str]:
    """Return the request's texts, calls and results in order, without names and the texts of other agents."""
    parts = (part for message in request.messages if message.role != "system" for part in message.parts)
    return [word for part in parts if (word := _describe_part(part))]


def _describe_part(part: Any) -> str:
    match part:
        case Text():
            return str(part.text)
        case ToolCall():
            return f"call {part.id}"
        case ToolResult():
            return f"result {part.id}"
    return ""


async def run(conversation: Conversation, inbox: Inbox, run_id: str = "run-1") -> str:
    async with asyncio.timeout(30):
        events = await conversation.events("go", run_id=run_id, read_messages=inbox.read)
    assert events[-1].type == "done", events[-1].error
    return events[-1].text


class Hang(asyncio.Event):
    """Item of an answer that does not end; `is_reached` is set when the model call hangs."""

    def __init__(self) -> None:
        super().__init__()
        self.is_reached = asyncio.Event()

    async def wait(self) -> Literal[True]:
        self.is_reached.set()
        return await super().wait()


async def interrupt(conversation: Conversation, inbox: Inbox, hang: Hang) -> None:
    """Run until a model call hangs, and cancel the run."""
    running = asyncio.create_task(run(conversation, inbox))
    async with asyncio.timeout(30):
        await hang.is_reached.wait()
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running
    async with conversation.database.write() as connection:
        await resume_run(connection, SESSION, "run-1")


async def list_roles(conversation: Conversation) -> list[str]:
    return [row.role for row in await conversation.rows() if row.role != "event"]


async def test_a_message_follows_the_results_in_this_and_later_calls(converse: Converse) -> None:
    inbox = Inbox()
    look = tool_that_posts(inbox, "with milk", "and sugar")
    provider = ScriptedProvider(call("look"), call("rest", "c2"), "Done.", "Bye.")
    conversation = await converse(provider, tools=[look, rest])
    assert await run(conversation, inbox) == "Done."
    read = ["go", "call c1", "result c1", "with milk", "and sugar"]
    assert describe(provider.requests[1]) == read
    assert describe(provider.requests[2]) == [*read, "call c2", "result c2"]
    await run(conversation, inbox, "run-2")
    assert describe(provider.requests[3]) == [*read, "call c2", "result c2", "Done.", "go"]
    rows = [row for row in await conversation.rows() if row.role == "steering"]
    assert [row.content for row in rows] == ["with milk", "and sugar"]
    assert rows[0].attribution == {"people": ADA, "parts": [["U1", 9]]}
    assert inbox.read_count == 4  # 3 calls, 1 in the next run


def rest() -> str:
    """Rest a while."""
    return "rested"


async def test_a_run_resumes_after_a_message_and_stores_it_once(converse: Converse) -> None:
    inbox = Inbox("with milk")
    provider = ScriptedProvider([hang := Hang()], "Done.")
    conversation = await converse(provider)
    await interrupt(conversation, inbox, hang)
    assert await run(conversation, Inbox()) == "Done."
    assert describe(provider.requests[0]) == describe(provider.requests[1]) == ["go", "with milk"]
    assert await list_roles(conversation) == ["user", "steering", "assistant"]


async def test_a_sequence_resumes_after_a_message(converse: Converse) -> None:
    inbox = Inbox()
    look = tool_that_posts(inbox, "with milk")
    one = ScriptedProvider("One.")
    two = ScriptedProvider(call("look"), [hang := Hang()], "Two.")
    first = LlmAgent(name="one", model=adapter(one))
    second = LlmAgent(name="two", model=adapter(two), tools=[look])
    conversation = await converse(root=SequentialAgent(name="root", sub_agents=[first, second]))
    await interrupt(conversation, inbox, hang)
    assert await run(conversation, inbox) == "One.\n\nTwo."
    assert len(one.requests) == 1
    assert describe(two.requests[1]) == describe(two.requests[2])
    assert describe(two.requests[2])[-3:] == ["call c1", "result c1", "with milk"]


async def test_an_agent_resumes_after_a_transfer_and_a_message(converse: Converse) -> None:
    inbox = Inbox()
    first = ScriptedProvider(call("transfer_to_agent", agent_name="till"))
    second = ScriptedProvider(call("look", "c2"), [hang := Hang()], "Paid.")
    till = LlmAgent(name="till", model=adapter(second), tools=[tool_that_posts(inbox, "with milk")])
    conversation = await converse(root=LlmAgent(name="root", model=adapter(first), sub_agents=[till]))
    await interrupt(conversation, inbox, hang)
    assert await run(conversation, inbox) == "Paid."
    assert len(first.requests) == 1
    assert describe(second.requests[2])[-3:] == ["call c2", "result c2", "with milk"]


async def test_one_of_two_parallel_agents_reads_a_message(converse: Converse) -> None:
    inbox = Inbox()
    may_return = asyncio.Event()

    async def wait() -> str:
        """Wait for the other agent."""
        await may_return.wait()
        return "waited"

    one = ScriptedProvider(call("wait", "c1"), "One.")
    two = ScriptedProvider(call("look", "c2"), call("release", "c3"), "Two.")
    last = ScriptedProvider("All.")

    def release() -> str:
        """Let the other agent go on."""
        may_return.set()
        return "released"

    parallel = ParallelAgent(
        name="both",
        sub_agents=[
            LlmAgent(name="one", model=adapter(one), tools=[wait]),
            LlmAgent(name="two", model=adapter(two), tools=[tool_that_posts(inbox, "with milk"), release]),
        ],
    )
    root = SequentialAgent(name="root", sub_agents=[parallel, LlmAgent(name="last", model=adapter(last))])
    conversation = await converse(root=root)
    assert (await run(conversation, inbox)).endswith("All.")
    assert describe(one.requests[1]) == ["go", "call c1", "result c1"]
    assert describe(two.requests[2]) == ["go", "call c2", "result c2", "with milk", "call c3", "result c3"]
    assert describe(last.requests[0]).count("with milk") == 1
    results = [row for row in await conversation.rows() if row.role == "tool"]
    assert not any("interrupted" in row.content for row in results)


async def test_an_agent_that_runs_as_a_tool_reads_no_message(converse: Converse) -> None:
    inbox = Inbox()
    helper = ScriptedProvider(call("look", "c2"), "Helped.")
    root = ScriptedProvider(call("helper", request="help"), "Done.")
    agent = LlmAgent(name="helper", model=adapter(helper), tools=[tool_that_posts(inbox, "with milk")])
    conversation = await converse(root=LlmAgent(name="root", model=adapter(root), tools=[AgentTool(agent)]))
    assert await run(conversation, inbox) == "Done."
    assert "with milk" not in describe(helper.requests[1])
    assert describe(root.requests[1]) == ["go", "call c1", "result c1", "with milk"]


async def test_a_node_with_an_input_of_its_own_reads_no_message(converse: Converse) -> None:
    inbox = Inbox("with milk")
    one = ScriptedProvider("One.")
    root = Workflow(name="root", edges=[("START", LlmAgent(name="one", model=adapter(one)))])
    assert await run(await converse(root=root), inbox) == "One."
    assert (inbox.texts, describe(one.requests[0])) == (["with milk"], ["go"])


@pytest.mark.parametrize("with_sub_agent", [False, True])
async def test_messages_wait_for_agents_without_a_history(converse: Converse, *, with_sub_agent: bool) -> None:
    inbox = Inbox("with milk")
    forgetful = LlmAgent(name="forgetful", model=adapter(ScriptedProvider("Done.")), include_contents="none")
    team = LlmAgent(name="team", model=adapter(ScriptedProvider("Done.")), sub_agents=[forgetful])
    assert await run(await converse(root=team if with_sub_agent else forgetful), inbox) == "Done."
    assert inbox.texts == ["with milk"]


class OwnModel(BaseLlm):
    """Model of a user's agent, which is no `ModelAdapter`."""

    requests: list[list[str]] = Field(default_factory=list)

    async def generate_content_async(self, llm_request: LlmRequest, stream: bool = False) -> Any:
        self.requests.append([part.text or "" for content in llm_request.contents for part in content.parts or ()])
        part = types.Part(function_call=types.FunctionCall(id="c1", name="look", args={}))
        answer = part if len(self.requests) == 1 else types.Part(text="Done.")
        yield LlmResponse(content=types.Content(role="model", parts=[answer]))


async def test_a_model_of_a_users_agent_gets_a_message(converse: Converse) -> None:
    inbox = Inbox()
    model = OwnModel(model="own")
    root = LlmAgent(name="root", model=model, tools=[tool_that_posts(inbox, "with milk")])
    assert await run(await converse(root=root), inbox) == "Done."
    assert model.requests[1][-1] == "with milk"


async def test_a_search_finds_a_message_that_a_run_has_read(converse: Converse) -> None:
    inbox = Inbox("with milk")
    conversation = await converse(ScriptedProvider("Done."))
    await run(conversation, inbox)
    assert await list_roles(conversation) == ["user", "steering", "assistant"]
    found = await conversation.sessions.search_messages(await conversation.session(), ["milk"], limit=5)  # type: ignore[arg-type]
    assert [(message.role, message.text) for message in found] == [("user", "with milk")]
