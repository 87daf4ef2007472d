"""Variables in instructions that a new session lacks."""

from collections.abc import Callable
from typing import Any

import pytest
from google.adk.agents import LlmAgent, SequentialAgent
from google.adk.agents.base_agent import BaseAgent
from google.adk.apps import App
from google.adk.plugins import BasePlugin
from google.adk.plugins.global_instruction_plugin import GlobalInstructionPlugin
from google.adk.plugins.logging_plugin import LoggingPlugin
from google.adk.tools import AgentTool
from google.adk.workflow import Workflow

from core.agents.factory import create_plugins
from core.agents.instructions import find_unknown_variables
from core.errors import InstructionError
from tests.fixtures.conversation import Converse, ScriptedProvider, adapter

pytestmark = pytest.mark.filterwarnings("ignore:.*is deprecated:DeprecationWarning")


def find(city: str) -> str:
    """Finds a city."""
    return city


def note(callback_context: Any) -> None:
    callback_context.state["city"] = "Oslo"


def agent(name: str = "x", instruction: Any = "In {city}.", **options: Any) -> LlmAgent:
    return LlmAgent(name=name, instruction=instruction, **options)


async def find_names(root: BaseAgent | Workflow, *plugins: BasePlugin) -> dict[str, bool]:
    """Return whether each unknown variable may be set, by agent and name."""
    app = App(name="app", root_agent=root, plugins=[*create_plugins(), *plugins])
    return {f"{found.agent} {found.name}": found.may_be_set for found in await find_unknown_variables(app)}


@pytest.mark.parametrize(
    ("instruction", "names"),
    [
        ("Be kind.", []),
        ("{city} and {app:zone}, {user:name}, {temp:day}, { city }", ["city", "app:zone", "user:name", "temp:day"]),
        ("{{city}}", ["city"]),
        ("{city?} {user:name?} {artifact.notes.txt?}", []),
        ("{artifact.notes.txt} {artifact.more.md}", ["artifact.notes.txt", "artifact.more.md"]),
        ("{temp:speaker} {temp:is_addressed}", []),
        ('{"a": 1} {} {two words} {other:city} ${city}', []),
        (lambda _context: "{city}", []),
    ],
)
async def test_each_variable_that_a_new_session_lacks_is_found(instruction: Any, names: list[str]) -> None:
    assert await find_names(agent(instruction=instruction)) == {f"x {name}": False for name in names}


class Notes(BasePlugin):
    """Plugin of an agent's author."""


def start(node_input: Any) -> Any:
    return node_input


@pytest.mark.parametrize(
    ("make_root", "found"),
    [
        (lambda: agent(tools=[find]), {"x city": False}),
        (lambda: agent(before_agent_callback=note), {"x city": True}),
        (lambda: agent(after_agent_callback=note), {"x city": False}),
        (lambda: agent(output_key="city"), {"x city": False}),
        (lambda: agent("root", "Hi", sub_agents=[agent()]), {"x city": False}),
        (lambda: agent("root", "Hi", sub_agents=[agent()], tools=[find]), {"x city": True}),
        (lambda: agent("root", "Hi", sub_agents=[agent()], after_model_callback=note), {"x city": True}),
        (lambda: agent("root", "Hi", output_key="city", sub_agents=[agent()]), {}),
        (lambda: agent("root", "Hi", tools=[AgentTool(agent())]), {"x city": True}),
        (lambda: SequentialAgent(name="s", sub_agents=[agent("w", "Hi", output_key="city"), agent()]), {}),
        (
            lambda: SequentialAgent(name="s", sub_agents=[agent(), agent("w", "Hi", output_key="city")]),
            {"x city": False},
        ),
        (
            lambda: SequentialAgent(name="s", sub_agents=[agent(tools=[find])], before_agent_callback=note),
            {"x city": True},
        ),
        (lambda: Workflow(name="w", edges=[("START", start, agent())]), {"x city": True}),
        (lambda: agent("root", "Hi", global_instruction="{zone}", sub_agents=[agent("y", "Hi")]), {"root zone": False}),
    ],
    ids=[
        *("own tools", "callback before", "callback after", "own key", "sub-agent", "earlier tool", "earlier callback"),
        *("earlier key", "agent as a tool", "in order", "in the wrong order", "callback around", "workflow", "global"),
    ],
)
async def test_a_variable_may_be_set_by_earlier_agents_and_code(
    make_root: Callable[[], Any], found: dict[str, bool]
) -> None:
    assert await find_names(make_root()) == found


async def test_only_plugins_of_the_author_may_set_variables() -> None:
    assert await find_names(agent(), LoggingPlugin()) == {"x city": False}
    assert await find_names(agent(), Notes("notes")) == {"x city": True}
    assert await find_names(agent(instruction="Hi"), GlobalInstructionPlugin("{zone}")) == {"x zone": False}


@pytest.mark.parametrize(("instruction", "name"), [("In {city}.", "`city`"), ("{artifact.notes.txt}", "'notes.txt'")])
async def test_a_run_with_an_unknown_variable_names_it_and_the_agent(
    converse: Converse, instruction: str, name: str
) -> None:
    root = agent(instruction=instruction, model=adapter(ScriptedProvider("never said")))
    events = await (await converse(root=root)).events("Hi")
    assert isinstance(events[-1].error, InstructionError)
    for word in (name, "'x'", "{name?}"):
        assert word in str(events[-1].error)
