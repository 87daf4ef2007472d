"""Tools that recall stored data: only what all readers of the place may read."""

from typing import Any

import pytest
from google.adk.agents import LlmAgent
from google.adk.memory import InMemoryMemoryService
from google.adk.tools.load_memory_tool import load_memory_tool
from google.adk.tools.tool_context import ToolContext
from google.genai import types

from core.agents.runtime import AgentRuntime, RunRequest
from core.models.provider import Done, ToolCall
from core.sessions.artifacts import ArtifactService
from core.tools.builtin.search_history import search_history
from tests.fixtures.conversation import Converse, ScriptedProvider, adapter

HERE, THERE = ("slack:T1:C1", "slack:T1:C1:1.0"), ("slack:T1:D1", "slack:T1:D1:1.0")


def calls(name: str, **arguments: Any) -> list[Any]:
    return [ToolCall("c", name, arguments), Done()]


async def say(runtime: AgentRuntime, user_and_place: tuple[str, str], text: str) -> list[Any]:
    place, session = user_and_place
    app, sessions = runtime.app.name, runtime.sessions
    if await sessions.get_session(app_name=app, user_id=place, session_id=session) is None:
        await sessions.create_session(app_name=app, user_id=place, session_id=session)
    events = runtime.stream(RunRequest(user_id=place, session_id=session, text=text, run_id=f"{session} {text}"))
    return [event async for event in events]


async def remember(tool_context: ToolContext) -> str:
    """Store the session in memory, a secret in the state, and a secret file."""
    await tool_context.add_session_to_memory()
    tool_context.state["user:note"] = "the secret of the place"
    await tool_context.save_artifact("user:plan.txt", types.Part.from_text(text="the secret plan"))
    return "kept"


async def look(tool_context: ToolContext) -> dict[str, Any]:
    """Return what memory, state and files of earlier sessions the tool can read."""
    found = await tool_context.search_memory("secret")
    return {
        "memory": len(found.memories),
        "note": tool_context.state.get("user:note"),
        "files": await tool_context.list_artifacts(),
        "plan": str(await tool_context.load_artifact("user:plan.txt")),
    }


@pytest.mark.parametrize("where", [THERE, ("slack:T1:C2", "slack:T1:C2:1.0"), ("discord:1:2", "discord:1:2:3")])
async def test_memory_state_and_files_of_a_place_stay_there(converse: Converse, where: tuple[str, str]) -> None:
    provider = ScriptedProvider(calls("remember"), "kept", calls("look"), "seen", calls("look"), "seen")
    agent = LlmAgent(name="lango_agent", model=adapter(provider), tools=[remember, look, load_memory_tool])
    conversation = await converse(root=agent)
    runtime = AgentRuntime(
        conversation.runtime.app, conversation.sessions, artifacts=ArtifactService(conversation.database)
    )
    assert isinstance(runtime._runner.memory_service, InMemoryMemoryService)
    await say(runtime, where, "the secret is 42")
    await say(runtime, where, "What is kept?")
    seen = str(provider.requests[3].messages[-1].parts[0])
    assert "the secret of the place" in seen
    assert "plan.txt" in seen
    await say(runtime, HERE, "And here?")
    seen = str(provider.requests[5].messages[-1].parts[0])
    assert "secret" not in seen
    assert "plan.txt" not in seen


async def test_history_search_finds_nothing_of_other_sessions_of_the_place(
    converse: Converse,
) -> None:
    provider = ScriptedProvider("noted", calls("search_history", query="secret"), "nothing")
    agent = LlmAgent(name="lango_agent", model=adapter(provider), tools=[search_history])
    runtime = (await converse(root=agent)).runtime
    await say(runtime, HERE, "the secret is 42")
    await say(runtime, ("slack:T1:C1", "slack:T1:C1:2.0"), "What was it?")
    assert "42" not in str(provider.requests[2].messages[-1].parts[0])
