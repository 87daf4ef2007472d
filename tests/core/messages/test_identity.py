from typing import Any

import pytest
from google.adk.agents import LlmAgent
from google.adk.apps import App
from google.adk.plugins import BasePlugin
from google.adk.tools.agent_tool import AgentTool
from google.adk.tools.tool_context import ToolContext
from hypothesis import given
from hypothesis import strategies as st

from core.agents.factory import create_plugins
from core.messages.identity import (
    ADMINS,
    EVERYONE,
    INVISIBLE_CHARACTERS,
    User,
    intersect_rights,
    is_permitted,
    to_user_state,
)
from core.models.provider import Done, ToolCall
from core.tools.tool import Tool, restrict_to, to_adk_tool
from tests.fixtures.conversation import Converse, ScriptedProvider, adapter

ADA = User("U1", "Ada", frozenset({"S1", "S2"}), is_admin=True, platform="slack", workspace="T1")
GRACE = User("U2", "Grace", frozenset({"S2"}), is_admin=False, platform="slack", workspace="T1")


def calls(name: str, id_: str = "c1") -> list[Any]:
    return [ToolCall(id_, name, {}), Done()]


@pytest.mark.parametrize(
    ("rule", "may"),
    [
        ((EVERYONE,), "AG"),
        ((ADMINS,), "A"),
        (("U2",), "G"),
        (("S2",), "AG"),
        (("S1", "U2"), "AG"),
        ((), ""),
        (("",), ""),
    ],
)
def test_a_rule_names_people_roles_and_admins(rule: tuple[str, ...], may: str) -> None:
    assert "".join(person.name[0] for person in (ADA, GRACE) if is_permitted(rule, person)) == may
    assert is_permitted(rule, User("", "nobody")) == (EVERYONE in rule)


def test_several_speakers_have_only_the_rights_they_share() -> None:
    both = intersect_rights([ADA, GRACE])
    assert both == User("", "Ada, Grace", frozenset({"S2"}), is_admin=False, platform="slack", workspace="T1")
    assert not is_permitted(("U1", "U2", ADMINS), both)
    assert intersect_rights([ADA, ADA]) == ADA


async def test_a_restricted_tool_is_called_only_for_permitted_users(converse: Converse) -> None:
    seen = list[Any]()

    @restrict_to("S1")
    def restart(tool_context: ToolContext) -> str:
        """Append the user of the run to `seen`."""
        seen.append(dict(tool_context.state["temp:speaker"]))
        return "done"

    erase = Tool(
        "erase", "Erases it.", lambda _: seen.append("erased"), restrict_to=[ADMINS], require_confirmation=True
    )
    script = [calls("restart"), "1", calls("restart", "c2"), "2", calls("erase", "c3"), "3"]
    provider = ScriptedProvider(*script)
    conversation = await converse(provider, tools=[restart, erase])
    await conversation.events("Restart!", speakers=[ADA])
    await conversation.events("Restart!", speakers=[ADA, GRACE])
    events = await conversation.events("Erase!", speakers=[GRACE])
    assert seen == [
        {"id": "U1", "name": "Ada", "platform": "slack", "workspace": "T1", "roles": ["S1", "S2"], "is_admin": True}
    ]
    assert not events[-1].confirmations
    results = [str(request.messages[-1].parts[0]) for request in provider.requests[1::2]]
    assert ["may not be used by this user" in result for result in results] == [False, True, True]


async def test_an_instruction_shows_the_name_of_the_author(converse: Converse) -> None:
    provider = ScriptedProvider("Hello.")
    agent = LlmAgent(name="lango_agent", model=adapter(provider), instruction="You speak with {temp:speaker}.")
    conversation = await converse(root=agent)
    await conversation.events("Hi", speakers=[ADA])
    assert "You speak with Ada." in str(provider.requests[0])


@pytest.mark.parametrize("takes_plugins", [True, False], ids=["with the app's plugins", "with none of them"])
async def test_an_agent_as_a_tool_gets_the_author_and_their_rights(converse: Converse, takes_plugins: bool) -> None:
    seen, done, received = list[Any](), list[str](), list[str]()

    def restart(tool_context: ToolContext) -> str:
        """Append the user of the run to `seen`."""
        seen.append(tool_context.state["temp:speaker"])
        return "restarted"

    def climb(tool_context: ToolContext) -> str:
        """Put another user, with more rights, into the state of the run."""
        tool_context.state["temp:speaker"] = {"id": "U0", "name": "Root", "roles": ["S1"], "is_admin": True}
        return "done"

    class AgentRecorder(BasePlugin):
        async def before_agent_callback(self, *, agent: Any, callback_context: Any) -> None:
            received.append(agent.name)

    erase = to_adk_tool(Tool("erase", "Erases it.", lambda _: done.append("erased"), restrict_to=[ADMINS]))
    steps = [calls("restart"), calls("climb"), calls("erase"), "Done."]
    innermost = ScriptedProvider(*steps, *steps)
    hand = LlmAgent(
        name="hand",
        model=adapter(innermost),
        instruction="You work for {temp:speaker}.",
        tools=[restart, climb, erase],
    )
    outer = ScriptedProvider(calls("hand"), "Asked.", calls("hand"), "Asked.")
    foreman = LlmAgent(name="foreman", model=adapter(outer), tools=[AgentTool(hand, include_plugins=takes_plugins)])
    script = [calls("foreman"), "So it is.", calls("foreman"), "So it is."]
    root = LlmAgent(name="lango_agent", model=adapter(ScriptedProvider(*script)), tools=[AgentTool(foreman)])
    app = App(name="lango_agent", root_agent=root, plugins=[*create_plugins(), AgentRecorder("listening")])
    conversation = await converse(app=app)
    for speaker in (GRACE, ADA):
        assert (await conversation.events("Erase!", speakers=[speaker]))[-1].text == "So it is."
    assert [actor["name"] for actor in seen] == ["Grace", "Ada"]
    assert done == ["erased"]
    assert "You work for Grace." in str(innermost.requests[0])
    assert "may not be used by this user" in str(innermost.requests[3].messages[-1])
    assert ("hand" in received) is takes_plugins
    assert "temp:speaker" not in (await conversation.session()).state


@given(st.text(max_size=300), st.sampled_from(["U1", ""]))
def test_the_name_in_the_state_is_one_line_of_limited_length(name: str, id_: str) -> None:
    state = to_user_state(User(id_, name))
    assert str(state) == state["name"]
    assert len(state["name"]) <= (80 if id_ else 400)
    assert len(state["name"].splitlines()) <= 1
    assert INVISIBLE_CHARACTERS.search(state["name"]) is None


def test_an_ordinary_name_is_unchanged_in_the_state() -> None:
    assert to_user_state(User("U1", "Zoë O'Brien-김 (she/her)"))["name"] == "Zoë O'Brien-김 (she/her)"
