"""What a workflow asks for is answered by what is said next, and the run goes on where it waits."""

from typing import Any

from google.adk.events.request_input import RequestInput
from google.adk.workflow import Workflow
from google.genai import types

from tests.conversation import Converse


def shop(seen: list[Any]) -> Workflow:
    """Asks for two things, and orders."""

    async def size(node_input: types.Content) -> Any:
        seen.append("size")
        yield RequestInput(message="Which size?")

    async def colour(node_input: Any) -> Any:
        seen.append(node_input)
        yield RequestInput(message="Which colour?")

    async def order(node_input: Any) -> types.Content:
        seen.append(node_input)
        return types.ModelContent(f"Ordered in {node_input}.")

    return Workflow(name="shop", edges=[("START", size, colour, order)])


async def test_each_answer_goes_to_the_node_that_has_asked_and_the_next_message_begins_anew(converse: Converse) -> None:
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
    said = [event.content.parts[0].text for event in await talk.history() if event.author == "user"]
    assert said == ["a shirt", "XL"]
