"""What a workflow asks for is answered by what is said next, and the run goes on where it waits."""

from dataclasses import replace
from typing import Any

from google.adk.agents.context import Context
from google.adk.apps import App
from google.adk.events.request_input import RequestInput
from google.adk.workflow import FunctionNode, Workflow
from google.genai import types

from core.agents.runtime import AgentRuntime
from core.sessions.resume import discard_run, resume_run
from tests.fixtures.conversation import SESSION, Converse


def shop(seen: list[Any]) -> Workflow:
    """Asks for two things, and orders."""

    async def size(node_input: types.Content) -> Any:
        seen.append("size")
        yield RequestInput(message="Which size?", response_schema=None)

    async def colour(node_input: Any) -> Any:
        seen.append(node_input)
        yield RequestInput(message="Which colour?", response_schema=None)

    async def order(node_input: Any) -> types.Content:
        seen.append(node_input)
        return types.ModelContent(f"Ordered in {node_input}.")

    return Workflow(name="shop", edges=[("START", size, colour, order)])


async def test_each_answer_goes_to_the_node_that_asked_for_it(converse: Converse) -> None:
    seen: list[Any] = []
    talk = await converse(root=shop(seen))
    told = [(await talk.events(said, run_id=said))[-1].text for said in ("a shirt", "XL", "red", "a hat", "S")]
    assert told == ["Which size?", "Which colour?", "Ordered in red.", "Which size?", "Which colour?"]
    assert seen == ["size", "XL", "red", "size", "S"]


async def test_an_answer_that_is_run_once_more_is_given_once_more(converse: Converse) -> None:
    seen: list[Any] = []
    talk = await converse(root=shop(seen))
    await talk.events("a shirt", run_id="1")
    await talk.events("XL", run_id="2")
    assert (await talk.events("XL", run_id="2"))[-1].text == "Which colour?"
    said = [event.content for event in await talk.history() if event.author == "user"]
    assert [part.text for content in said for part in (content and content.parts) or ()] == ["a shirt", "XL"]


async def test_a_node_that_runs_again_finds_each_answer_under_the_name_that_it_asks_by(converse: Converse) -> None:
    async def ask(ctx: Context, node_input: Any) -> Any:
        if "size" not in ctx.resume_inputs:
            yield RequestInput(message="Which size?", interrupt_id="size", response_schema=None)
        else:
            yield types.ModelContent(f"Ordered in {ctx.resume_inputs['size']}.")

    node = FunctionNode(func=ask, rerun_on_resume=True)
    talk = await converse(root=Workflow(name="shop", edges=[("START", node)]))
    told = [(await talk.events(said, run_id=said))[-1].text for said in ("a shirt", "XL", "a hat", "S")]
    assert told == ["Which size?", "Ordered in XL.", "Which size?", "Ordered in S."]


async def test_an_answer_that_does_not_fit_fails_and_what_is_said_instead_of_it_is_taken(converse: Converse) -> None:
    async def ask(node_input: Any) -> Any:
        yield RequestInput(message="How many?", response_schema=int)

    async def order(node_input: int) -> types.Content:
        return types.ModelContent(f"Ordered {node_input}.")

    talk = await converse(root=Workflow(name="shop", edges=[("START", ask, order)]))
    await talk.events("shirts", run_id="1")
    assert (await talk.events("some", run_id="2"))[-1].error is not None
    async with talk.database.write() as connection:  # as for a question that was edited
        await discard_run(connection, SESSION, "2", keep_prompt=False)
    assert (await talk.events("3", run_id="2"))[-1].text == "Ordered 3."


async def test_a_run_that_broke_off_behind_an_answer_goes_on_from_there(converse: Converse) -> None:
    seen = list[str]()

    async def ask(node_input: Any) -> Any:
        seen.append("asked")
        yield RequestInput(message="Which size?", response_schema=None)

    async def order(node_input: str) -> types.Content:
        seen.append(node_input)
        if len(seen) == 2:
            raise OSError("the shop is closed")
        return types.ModelContent(f"Ordered in {node_input}.")

    talk = await converse(root=Workflow(name="shop", edges=[("START", ask, order)]))
    await talk.events("a shirt", run_id="1")
    assert (await talk.events("XL", run_id="2"))[-1].error is not None
    async with talk.database.write() as connection:
        await resume_run(connection, SESSION, "2")
    assert (await talk.events("XL", run_id="2"))[-1].text == "Ordered in XL."
    assert seen == ["asked", "XL", "XL"]


async def test_what_one_workflow_has_asked_for_another_one_is_not_told(converse: Converse) -> None:
    talk = await converse(root=shop([]))
    await talk.events("a shirt", run_id="1")

    async def desk(node_input: types.Content) -> types.Content:
        return types.ModelContent("We are open.")

    app = App(name=talk.runtime.app.name, root_agent=Workflow(name="office", edges=[("START", desk)]))
    elsewhere = replace(talk, runtime=AgentRuntime(app, talk.sessions))
    assert (await elsewhere.events("XL", run_id="2"))[-1].text == "We are open."
    assert (await talk.events("a hat", run_id="3"))[-1].text == "Which size?"
