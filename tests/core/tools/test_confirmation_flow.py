"""Confirmations of tool calls, in each structure of ADK agents."""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, aclosing
from pathlib import Path
from typing import Any, Protocol

import pytest
import sqlalchemy as sa
from google.adk.agents import LlmAgent, LoopAgent, ParallelAgent, SequentialAgent
from google.adk.agents.base_agent import BaseAgent
from google.adk.apps import App
from google.adk.tools import LongRunningFunctionTool
from google.adk.tools.agent_tool import AgentTool
from google.adk.tools.function_tool import FunctionTool
from google.adk.tools.tool_context import ToolContext
from google.adk.workflow import JoinNode, Workflow

from core.agents.events import StreamEvent
from core.agents.factory import create_plugins
from core.agents.runtime import AgentRuntime
from core.models.provider import Done, ToolCall
from core.models.tokens import TokenCounter
from core.sessions.resume import resume_run
from core.sessions.service import SessionService
from core.store.schema import tool_calls
from core.tools.adk_confirmations import ConfirmationRequest
from core.tools.adk_requests import Answer, Decision
from core.tools.call_log import ToolCallLog
from tests.core.conftest import FailingDatabase
from tests.fixtures.conversation import SESSION, USER, Conversation, Converse, ScriptedProvider, adapter

Shape = Callable[["PaymentTools"], BaseAgent | Workflow]

#: Ids of two calls, as models choose them.
Ids = tuple[str, str]
Pair = Callable[["PaymentTools", Ids], BaseAgent | Workflow]


class PaymentTools:
    """Tools that record their calls.

    Attributes:
        paid: the payees of all payments.
        looked: the number of calls of `look`.
    """

    def __init__(self) -> None:
        self.paid = list[str]()
        self.looked = 0

    async def pay(self, to: str) -> str:
        """Pay."""
        self.paid.append(to)
        return f"paid {to}"

    async def look(self) -> str:
        """Look."""
        self.looked += 1
        return "seen"

    async def pay_if_confirmed(self, to: str, tool_context: ToolContext) -> str:
        """Pay only after a confirmation, which the first call requests."""
        if tool_context.tool_confirmation is None:
            tool_context.request_confirmation(hint="Really?")
            return "asked"
        return await self.pay(to)


def call(name: str, id_: str, **arguments: Any) -> list[Any]:
    return [ToolCall(id_, name, arguments), Done()]


LOOK, PAY = call("look", "l1"), call("pay", "p1", to="Ada")


def agent(name: str, till: PaymentTools, *answers: Any) -> LlmAgent:
    """Return an agent with scripted answers, and a last answer for further requests.

    Args:
        till: its tools.
    """
    script = ScriptedProvider(*answers, *(["That is all."] * 8))
    tools: list[Any] = [FunctionTool(till.pay, require_confirmation=True), till.look]
    return LlmAgent(name=name, description=f"Is {name}.", model=adapter(script), tools=tools)


def stages(till: PaymentTools) -> list[BaseAgent]:
    return [
        agent("first", till, LOOK, "I looked."),
        agent("payer", till, PAY),
        agent("last", till),
    ]


def make_root(*answers: Any, **kwargs: Any) -> LlmAgent:
    return LlmAgent(name="root", model=adapter(ScriptedProvider(*answers, *(["Hello."] * 4))), **kwargs)


def transfer(till: PaymentTools) -> BaseAgent:
    handed = call("transfer_to_agent", "t1", agent_name="payer")
    return make_root(handed, sub_agents=[agent("payer", till, LOOK, PAY)])


def sequence(till: PaymentTools) -> BaseAgent:
    return SequentialAgent(name="root", sub_agents=stages(till))


def parallel(till: PaymentTools) -> BaseAgent:
    return ParallelAgent(name="root", sub_agents=[agent("payer", till, PAY), agent("looker", till, LOOK)])


def loop(till: PaymentTools) -> BaseAgent:
    return LoopAgent(name="root", sub_agents=[agent("payer", till, LOOK, PAY)], max_iterations=2)


def nested_sequence(till: PaymentTools) -> BaseAgent:
    handed = call("transfer_to_agent", "t1", agent_name="stages")
    below = SequentialAgent(name="stages", description="Stages.", sub_agents=stages(till))
    return make_root(handed, sub_agents=[below])


def graph(till: PaymentTools) -> Workflow:
    return Workflow(name="root", edges=[("START", *stages(till))])


def make_payers(till: PaymentTools, ids: Ids) -> list[BaseAgent]:
    first, second = ids
    return [
        agent("first_payer", till, call("pay", first, to="Ada"), "Ada has it."),
        agent("second_payer", till, call("pay", second, to="Bob"), "Bob has it."),
    ]


def both_in_parallel(till: PaymentTools, ids: Ids) -> BaseAgent:
    return ParallelAgent(name="both", description="Both.", sub_agents=make_payers(till, ids))


def both_in_sequence(till: PaymentTools, ids: Ids) -> BaseAgent:
    return SequentialAgent(name="root", sub_agents=[both_in_parallel(till, ids), agent("last", till)])


def both_in_loop(till: PaymentTools, ids: Ids) -> BaseAgent:
    return LoopAgent(name="root", sub_agents=[both_in_parallel(till, ids), agent("last", till)], max_iterations=2)


def nested_parallel(till: PaymentTools, ids: Ids) -> BaseAgent:
    handed = call("transfer_to_agent", "t1", agent_name="stages")
    below = SequentialAgent(
        name="stages", description="Stages.", sub_agents=[both_in_parallel(till, ids), agent("last", till)]
    )
    return make_root(handed, sub_agents=[below])


def both_in_fan_out(till: PaymentTools, ids: Ids) -> Workflow:
    first, second = make_payers(till, ids)
    edges: Any = [("START", (first, second), JoinNode(name="join"), agent("last", till))]
    return Workflow(name="root", edges=edges)


def both_in_one_step(till: PaymentTools, ids: Ids) -> BaseAgent:
    first, second = ids
    step = [ToolCall(first, "pay", {"to": "Ada"}), ToolCall(second, "pay", {"to": "Bob"}), Done()]
    handed = call("transfer_to_agent", "t1", agent_name="payer")
    return make_root(handed, sub_agents=[agent("payer", till, step)])


#: Agent structures in which two calls request a confirmation at the same time.
PAIRS: list[Pair] = [
    both_in_parallel,
    both_in_sequence,
    both_in_loop,
    nested_parallel,
    both_in_fan_out,
    both_in_one_step,
]


#: Agent structures, with the agent that answers last in the resumed run.
SHAPES: dict[Shape, str] = {
    transfer: "payer",
    sequence: "last",
    parallel: "payer",
    loop: "payer",
    nested_sequence: "last",
    graph: "last",
}


class ConversationFactory(Protocol):
    """Type of the fixture `conversation_factory`, which starts a conversation."""

    def __call__(self, root: BaseAgent | Workflow) -> Conversation: ...


@pytest.fixture
async def conversation_factory(database: FailingDatabase, tmp_path: Path) -> AsyncIterator[ConversationFactory]:
    """Yield a function that creates a conversation with an agent on the database."""
    async with AsyncExitStack() as stack:
        sessions = SessionService(database, TokenCounter(tmp_path))
        await sessions.create_session(app_name="asks", user_id=USER, session_id=SESSION)

        def create(root: BaseAgent | Workflow) -> Conversation:
            runtime = AgentRuntime(
                App(name="asks", root_agent=root, plugins=create_plugins(ToolCallLog(database))), sessions
            )
            stack.push_async_callback(runtime.aclose)
            return Conversation(runtime, sessions, database)

        yield create


def get_requests(events: list[StreamEvent]) -> tuple[ConfirmationRequest, ...]:
    assert events[-1].type == "done", events[-1].error
    return events[-1].confirmations


async def decide(conversation: Conversation, *asks: ConfirmationRequest, is_allowed: bool = True) -> list[StreamEvent]:
    decisions = [Decision(ask.call_id, ask.arguments_hash, is_allowed) for ask in asks]
    return await conversation.events("", run_id="run-1", decisions=decisions)


async def list_pay_results(conversation: Conversation) -> list[str]:
    """Return the results of all `pay` calls in the history, as text."""
    answers = [answer for event in await conversation.history() for answer in event.get_function_responses()]
    return [str(answer.response) for answer in answers if answer.name == "pay"]


@pytest.mark.parametrize("shape", SHAPES)
async def test_a_run_resumes_after_other_messages_and_repeats_no_call(
    conversation_factory: ConversationFactory, shape: Shape
) -> None:
    till = PaymentTools()
    conversation = conversation_factory(shape(till))
    asks = get_requests(await conversation.events("go", run_id="run-1"))
    assert [(ask.tool, ask.arguments) for ask in asks] == [("pay", {"to": "Ada"})]
    assert (till.paid, till.looked) == ([], 1)
    assert get_requests(await conversation.events("meanwhile", run_id="run-2")) == ()
    assert till.paid == []
    assert get_requests(await decide(conversation, *asks)) == ()
    assert (till.paid, till.looked) == (["Ada"], 1)
    assert (await list_pay_results(conversation))[-1] == "{'result': 'paid Ada'}"
    spoke = [event.author for event in await conversation.history() if event.invocation_id == "run-1" and event.content]
    assert spoke[-1] == SHAPES[shape]
    async with conversation.database.write() as connection:  # as a new process does after a crash
        await resume_run(connection, SESSION, "run-1")
    assert get_requests(await decide(conversation, *asks)) == ()
    assert (till.paid, till.looked) == (["Ada"], 1)
    assert get_requests(await conversation.events("and now?", run_id="run-3")) == ()


@pytest.mark.parametrize("shape", SHAPES)
async def test_a_denied_call_is_not_made_and_the_run_continues(converse: Converse, shape: Shape) -> None:
    till = PaymentTools()
    conversation = await converse(root=shape(till))
    asks = get_requests(await conversation.events("go", run_id="run-1"))
    assert get_requests(await decide(conversation, *asks, is_allowed=False)) == ()
    assert till.paid == []
    assert "rejected" in (await list_pay_results(conversation))[-1]
    spoke = [event.author for event in await conversation.history() if event.content]
    assert spoke[-1] == SHAPES[shape]


@pytest.mark.parametrize("together", [True, False], ids=["together", "one by one"])
@pytest.mark.parametrize("ids", [("p1", "p2"), ("", ""), ("p1", "p1")], ids=["ids", "no ids", "equal ids"])
@pytest.mark.parametrize("shape", PAIRS)
async def test_two_approved_calls_run_once_each(
    conversation_factory: ConversationFactory, shape: Pair, ids: Ids, together: bool
) -> None:
    till = PaymentTools()
    conversation = conversation_factory(shape(till, ids))
    asks = get_requests(await conversation.events("go", run_id="run-1"))
    assert sorted(ask.arguments["to"] for ask in asks) == ["Ada", "Bob"]
    for decided in [asks] if together else [[ask] for ask in asks]:
        assert get_requests(await decide(conversation, *decided)) == ()
    assert sorted(till.paid) == ["Ada", "Bob"]
    calls = [call.id for event in await conversation.history() for call in event.get_function_calls()]
    assert len(calls) == len(set(calls))


@pytest.mark.parametrize("shape", PAIRS)
async def test_one_of_two_calls_is_denied_and_the_other_runs(
    conversation_factory: ConversationFactory, shape: Pair
) -> None:
    till = PaymentTools()
    conversation = conversation_factory(shape(till, ("", "")))
    first, second = get_requests(await conversation.events("go", run_id="run-1"))
    decisions = [
        Decision(first.call_id, first.arguments_hash, False),
        Decision(second.call_id, second.arguments_hash, True),
    ]
    assert get_requests(await conversation.events("", run_id="run-1", decisions=decisions)) == ()
    assert till.paid == [second.arguments["to"]]


@pytest.mark.parametrize("shape", PAIRS)
async def test_two_approved_calls_run_once_over_a_restart(
    conversation_factory: ConversationFactory, shape: Pair
) -> None:
    till = PaymentTools()
    conversation = conversation_factory(shape(till, ("p1", "p1")))
    asks = get_requests(await conversation.events("go", run_id="run-1"))
    decisions = [Decision(ask.call_id, ask.arguments_hash, True) for ask in asks]
    async with aclosing(conversation.stream("", run_id="run-1", decisions=decisions)) as events:
        async for event in events:
            if event.type == "tool_end":  # the process dies after the first call
                break
    assert till.paid
    async with conversation.database.write() as connection:
        begun = await connection.execute(sa.select(tool_calls.c.arguments).where(tool_calls.c.state == "begun"))
        interrupted = {arguments["to"] for arguments in begun.scalars()} - set(till.paid)
        await resume_run(connection, SESSION, "run-1")
    assert get_requests(await decide(conversation, *asks)) == ()
    assert sorted(till.paid) == sorted({"Ada", "Bob"} - interrupted)  # a call that had begun is not repeated


def ask_tailor(about: str) -> None:
    """Ask the tailor, who answers later."""


@pytest.mark.parametrize("is_node", [False, True], ids=["agent", "node"])
@pytest.mark.parametrize("is_interrupted", [False, True], ids=["at once", "after a crash"])
async def test_an_approval_and_an_answer_of_one_step_both_reach_the_model(
    conversation_factory: ConversationFactory, is_node: bool, is_interrupted: bool
) -> None:
    till = PaymentTools()
    clerk = agent(
        "clerk", till, [ToolCall("a1", "ask_tailor", {"about": "M"}), ToolCall("p1", "pay", {"to": "Ada"}), Done()]
    )
    clerk.tools.append(LongRunningFunctionTool(ask_tailor))
    conversation = conversation_factory(Workflow(name="root", edges=[("START", clerk)]) if is_node else clerk)
    events = await conversation.events("go", run_id="run-1")
    (ask,), (question,) = get_requests(events), events[-1].questions
    decisions = [Decision(ask.call_id, ask.arguments_hash, True), Answer(question.call_id, question.tool, "it fits")]
    if is_interrupted:
        async with aclosing(conversation.stream("", run_id="run-1", decisions=decisions)) as running:
            async for event in running:
                if event.type == "tool_end":
                    break
        async with conversation.database.write() as connection:
            await resume_run(connection, SESSION, "run-1")
    ended = await conversation.events("", run_id="run-1", decisions=decisions)
    assert (ended[-1].text, till.paid) == ("That is all.", ["Ada"])
    script: Any = clerk.canonical_model
    assert len(script.provider.requests) == 2
    for _ in range(1 if is_node else 2):  # in this run and in the next one; a workflow node has no earlier runs
        sent = str(script.provider.requests[-1].messages)
        assert sent.count("it fits") == sent.count("paid Ada") == 1
        assert "interrupted" not in sent
        await conversation.reply("and now?")


@pytest.mark.parametrize("dynamic", [False, True], ids=["the tool's declaration asks", "the tool asks"])
async def test_an_agent_as_a_tool_cannot_ask_and_both_models_get_an_error(converse: Converse, dynamic: bool) -> None:
    till = PaymentTools()
    payer = agent("payer", till, LOOK, PAY, "I could not pay.")
    if dynamic:
        pay = FunctionTool(till.pay_if_confirmed)
        pay.name, payer.tools = "pay", [till.look, pay]
    conversation = await converse(
        root=make_root(call("payer", "a1", request="pay Ada"), "Nothing was paid.", tools=[AgentTool(payer)])
    )
    events = await conversation.events("go", run_id="run-1")
    assert (get_requests(events), events[-1].text, till.paid) == ((), "Nothing was paid.", [])
    script: Any = payer.canonical_model
    assert "was not called: it needs an approval" in str(script.provider.requests[-1].messages[-1])
    assert await conversation.reply("and now?") == "Hello."


@pytest.mark.parametrize("is_allowed", [True, False])
async def test_a_tool_as_a_node_runs_only_if_it_is_approved(converse: Converse, is_allowed: bool) -> None:
    till = PaymentTools()

    def start(node_input: Any) -> dict[str, str]:
        return {"to": "Ada"}

    pay = FunctionTool(till.pay, require_confirmation=True)
    edges: Any = [("START", start, pay)]
    conversation = await converse(root=Workflow(name="root", edges=edges))
    events = await conversation.events("go", run_id="run-1")
    assert events[-1].questions == ()
    (ask,) = get_requests(events)
    assert (ask.tool, ask.arguments, ask.may_allow_always) == ("pay", {"to": "Ada"}, False)
    assert get_requests(await decide(conversation, ask, is_allowed=is_allowed)) == ()
    assert till.paid == (["Ada"] if is_allowed else [])
