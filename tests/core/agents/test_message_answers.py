"""Messages that answer an agent's question: the run resumes where it waits."""

from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from google.adk.agents import LlmAgent, ParallelAgent
from google.adk.agents.base_agent import BaseAgent
from google.adk.agents.context import Context
from google.adk.apps import App
from google.adk.events.request_input import RequestInput
from google.adk.tools import LongRunningFunctionTool, request_input
from google.adk.tools.get_user_choice_tool import get_user_choice_tool
from google.adk.workflow import FunctionNode, Workflow
from google.genai import types

from core.agents.events import StreamEvent
from core.agents.runtime import AgentRuntime
from core.models.provider import Done, ToolCall
from core.sessions.resume import NOT_ANSWERED_ERROR, discard_run
from core.tools.adk_requests import Answer, MessageAnswer, QuestionRequest
from tests.fixtures.conversation import SESSION, Conversation, Converse, ScriptedProvider, adapter


@dataclass
class Dialog:
    """Conversation in which a message answers the open question of the former reply.

    Attributes:
        answers: the messages so far that answered questions of the current run.
        question: the open question; None without one.
        runs: the number of messages.
    """

    conversation: Conversation
    answers: list[MessageAnswer] = field(default_factory=list)
    question: QuestionRequest | None = None
    runs: int = 0

    async def say(self, text: str) -> str:
        """Send a message, as an answer if a question is open.

        Returns:
            The text of the reply, or of the next question.
        """
        self.runs += 1
        run = str(self.runs)
        if self.question is None:
            self.answers = []
        else:
            self.answers.append(MessageAnswer(run, self.question.run, self.question.call_id))
        return self._read(await self.conversation.events(text, run_id=run, answers=tuple(self.answers)))

    async def repeat(self, text: str) -> str:
        """Run the last message again with the same run id, as after a crash.

        Returns:
            The text of the reply, or of the next question.
        """
        return self._read(await self.conversation.events(text, run_id=str(self.runs), answers=tuple(self.answers)))

    async def choose(self, value: Any, **kwargs: Any) -> str:
        """Answer the open question by a button.

        Args:
            value: the value of the chosen button.

        Returns:
            The text of the reply, or of the next question.
        """
        assert self.question is not None
        answer = Answer(self.question.call_id, self.question.tool, value, **kwargs)
        chain = tuple(self.answers) if self.answers and self.answers[-1].run == self.question.run else ()
        return self._read(
            await self.conversation.events("", run_id=self.question.run, decisions=(answer,), answers=chain)
        )

    def _read(self, events: list[StreamEvent]) -> str:
        last = events[-1]
        if last.error is not None:
            raise last.error
        self.question = last.questions[0] if last.questions else None
        return last.text if self.question is None else str(self.question.arguments.get("message", self.question.tool))


def shop(inputs: list[Any]) -> Workflow:
    """Return a workflow that asks for size and colour, and then orders.

    Args:
        inputs: the list to which each node appends its input.
    """

    async def size(node_input: types.Content) -> Any:
        inputs.append("size")
        yield RequestInput(message="Which size?", response_schema=None)

    async def colour(node_input: Any) -> Any:
        inputs.append(node_input)
        yield RequestInput(message="Which colour?", response_schema=None)

    async def order(node_input: Any) -> types.Content:
        inputs.append(node_input)
        return types.ModelContent(f"Ordered in {node_input}.")

    return Workflow(name="shop", edges=[("START", size, colour, order)])


async def test_buttons_and_messages_answer_the_same_workflow(converse: Converse) -> None:
    inputs: list[Any] = []
    dialog = Dialog(await converse(root=shop(inputs)))
    assert await dialog.say("a shirt") == "Which size?"
    assert await dialog.choose("XL") == "Which colour?"
    assert await dialog.say("red") == "Ordered in red."
    assert await dialog.say("a hat") == "Which size?"
    assert await dialog.say("S") == "Which colour?"
    assert await dialog.choose("blue") == "Ordered in blue."
    assert inputs == ["size", "XL", "red", "size", "S", "blue"]


async def test_a_repeated_run_of_an_answer_stores_it_once(converse: Converse) -> None:
    inputs: list[Any] = []
    dialog = Dialog(await converse(root=shop(inputs)))
    await dialog.say("a shirt")
    assert await dialog.say("XL") == "Which colour?"
    assert await dialog.repeat("XL") == "Which colour?"
    contents = [event.content for event in await dialog.conversation.history() if event.author == "user"]
    assert [part.text for content in contents for part in (content and content.parts) or ()] == ["a shirt", "XL"]


async def test_a_node_that_runs_again_finds_each_answer_under_the_name_that_it_asks_by(converse: Converse) -> None:
    async def ask(ctx: Context, node_input: Any) -> Any:
        if "size" not in ctx.resume_inputs:
            yield RequestInput(message="Which size?", interrupt_id="size", response_schema=None)
        else:
            yield types.ModelContent(f"Ordered in {ctx.resume_inputs['size']}.")

    node = FunctionNode(func=ask, rerun_on_resume=True)
    dialog = Dialog(await converse(root=Workflow(name="shop", edges=[("START", node)])))
    replies = [await dialog.say(text) for text in ("a shirt", "XL", "a hat", "S", "a coat")]
    assert replies == ["Which size?", "Ordered in XL.", "Which size?", "Ordered in S.", "Which size?"]
    assert await dialog.choose("M") == "Ordered in M."


async def test_an_answer_that_does_not_fit_fails_and_its_edit_is_taken(converse: Converse) -> None:
    async def ask(node_input: Any) -> Any:
        yield RequestInput(message="How many?", response_schema=int)

    async def order(node_input: int) -> types.Content:
        return types.ModelContent(f"Ordered {node_input}.")

    dialog = Dialog(await converse(root=Workflow(name="shop", edges=[("START", ask, order)])))
    await dialog.say("shirts")
    with pytest.raises(Exception, match="integer"):
        await dialog.say("some")
    async with dialog.conversation.database.write() as connection:  # as for a question that was edited
        await discard_run(connection, SESSION, "2", keep_prompt=False)
    assert await dialog.repeat("3") == "Ordered 3."


async def test_another_workflow_does_not_get_the_answer(converse: Converse) -> None:
    conversation = await converse(root=shop([]))
    await Dialog(conversation).say("a shirt")

    async def desk(node_input: types.Content) -> types.Content:
        return types.ModelContent("We are open.")

    app = App(name=conversation.runtime.app.name, root_agent=Workflow(name="office", edges=[("START", desk)]))
    other = replace(conversation, runtime=AgentRuntime(app, conversation.sessions))
    assert (await other.events("XL", run_id="2"))[-1].text == "We are open."


CHOICE = [ToolCall("c1", "get_user_choice", {"options": ["S", "M"]}), Done()]
INPUT = [ToolCall("c1", "adk_request_input", {"message": "Which size?"}), Done()]


def ask_manager(about: str) -> None:
    """Ask the manager, who answers later."""


def asker(name: str, step: Any, *, call_id: str = "c1") -> LlmAgent:
    """Return an agent that makes one call, and then says that it is ready.

    Args:
        step: the call of a question, and the end of the model's step, as a pair.
        call_id: the id of the call.
    """
    call, done = step
    provider = ScriptedProvider([replace(call, id=call_id), done], *([f"{name} is ready."] * 4))
    tools: list[Any] = [get_user_choice_tool, request_input, LongRunningFunctionTool(ask_manager)]
    return LlmAgent(name=name, description=f"Is {name}.", model=adapter(provider), tools=tools)


def single(step: Any) -> BaseAgent:
    return asker("asker", step)


async def read_answers(conversation: Conversation) -> list[Any]:
    """Return the responses of the call `c1` in the history, as the model gets them."""
    answers = [answer for event in await conversation.history() for answer in event.get_function_responses()]
    return [(answer.response or {}).get("result", answer.response) for answer in answers if answer.id == "c1"]


async def test_agents_that_run_in_parallel_each_get_their_answer(converse: Converse) -> None:
    agents: list[BaseAgent] = [asker("one", CHOICE, call_id="a"), asker("two", INPUT, call_id="b")]
    conversation = await converse(root=ParallelAgent(name="root", sub_agents=agents))
    questions = (await conversation.events("go", run_id="1"))[-1].questions
    assert [question.tool for question in questions] == ["get_user_choice", "adk_request_input"]
    answers = [Answer(question.call_id, question.tool, f"for {question.tool}") for question in questions]
    events = await conversation.events("", run_id="1", decisions=answers)
    assert (events[-1].type, events[-1].questions) == ("done", ())
    assert sorted(events[-1].text.split("\n\n")) == ["one is ready.", "two is ready."]
    given = {r.name: r.response for event in await conversation.history() for r in event.get_function_responses()}
    assert given == {name: {"result": f"for {name}"} for name in ("get_user_choice", "adk_request_input")}


async def test_the_model_gets_a_result_for_an_unanswered_question(converse: Converse) -> None:
    dialog = Dialog(await converse(root=single(CHOICE)))
    await dialog.say("a shirt")
    assert await dialog.choose(None, is_expired=True) == "asker is ready."
    assert await read_answers(dialog.conversation) == [{"error": NOT_ANSWERED_ERROR}]
