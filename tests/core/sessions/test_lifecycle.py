"""Sessions of agents that no longer run."""

import logging
from pathlib import Path

import pytest
import sqlalchemy as sa
from google.adk.agents import LlmAgent
from google.adk.apps import App

from core.agents.factory import create_plugins
from core.agents.runtime import AgentRuntime
from core.models.provider import Done, ToolCall
from core.models.tokens import TokenCounter
from core.sessions.lifecycle import reassign_sessions
from core.sessions.routing import AgentProfile, AgentRouter
from core.sessions.service import SessionService
from core.store.schema import sessions
from core.tools.call_log import ToolCallLog
from tests.fixtures.conversation import Conversation, Converse, ScriptedProvider, adapter


def clock() -> str:
    """The time."""
    return "noon"


def app(name: str, provider: ScriptedProvider) -> App:
    return App(
        name=name, root_agent=LlmAgent(name=name, model=adapter(provider), tools=[clock]), plugins=create_plugins()
    )


async def test_messages_of_lango_agent_are_read_as_those_of_parley(
    converse: Converse, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    talk = await converse(app=app("lango_agent", ScriptedProvider("It is noon.")), agent="lango_agent")
    await talk.reply("What time is it?")
    await reassign_sessions(talk.database, AgentRouter("parley", {"parley": AgentProfile("parley", ("one",))}))
    assert not [message for message in caplog.messages if "goes on with" in message]
    provider = ScriptedProvider("It was noon.")
    service = SessionService(talk.database, TokenCounter(tmp_path), agent="parley")
    after = Conversation(AgentRuntime(app("parley", provider), service), service, talk.database)
    await after.reply("And before that?")
    read = [(message.role, message.text) for message in provider.requests[0].messages[1:]]
    assert read == [("user", "What time is it?"), ("assistant", "It is noon."), ("user", "And before that?")]
    await after.runtime.aclose()


async def start_next_agent(talk: Conversation, provider: ScriptedProvider) -> Conversation:
    """Return the same conversation after a start with another agent."""
    await reassign_sessions(talk.database, AgentRouter("after"))
    after = app("after", provider).model_copy(update={"plugins": create_plugins(ToolCallLog(talk.database))})
    return Conversation(AgentRuntime(after, talk.sessions), talk.sessions, talk.database)


async def test_the_next_agent_reads_the_texts_of_the_former_as_anothers(
    converse: Converse, caplog: pytest.LogCaptureFixture
) -> None:
    before = ScriptedProvider([ToolCall("c1", "clock", {}), Done()], "It is noon.")
    talk = await converse(app=app("before", before))
    await talk.reply("What time is it?")
    provider = ScriptedProvider("It was noon.", "Still.")
    with caplog.at_level(logging.WARNING, "core.sessions.lifecycle"):
        talk = await start_next_agent(talk, provider)
    assert caplog.messages[-1:] == [
        "agent after takes over the conversations of before, which is not configured anymore"
    ]
    assert await talk.reply("And before that?") == "It was noon."
    read = [(message.role, message.text) for message in provider.requests[0].messages[1:]]
    assert {role for role, _ in read} == {"user"}
    assert "What time is it?" in read[0][1]
    assert "It is noon." in "".join(text for _, text in read)
    assert await talk.reply("Sure?") == "Still."
    assert provider.requests[1].messages[-2].role == "assistant"
    caplog.clear()
    await reassign_sessions(talk.database, AgentRouter("after"))
    assert caplog.messages == []
    await talk.runtime.aclose()


async def test_an_interrupted_run_continues_with_the_next_agent(converse: Converse) -> None:
    talk = await converse(app=app("before", ScriptedProvider([ToolCall("c1", "clock", {}), Done()])))
    assert [event.type for event in await talk.events("The time?", run_id="r1")][-1] == "error"  # no second answer
    provider = ScriptedProvider("Noon it is.")
    talk = await start_next_agent(talk, provider)
    assert (await talk.events("The time?", run_id="r1"))[-1].text == "Noon it is."
    assert [event.author for event in await talk.history()][-1] == "after"
    assert sum("The time?" in message.text for message in provider.requests[0].messages) == 1
    await talk.runtime.aclose()


async def test_a_missing_chosen_agent_is_logged_and_stays_chosen(
    converse: Converse, caplog: pytest.LogCaptureFixture
) -> None:
    talk = await converse(app=app("third", ScriptedProvider("Hi.")))
    async with talk.database.write() as connection:
        await connection.execute(sa.update(sessions).values(agent="weather"))
    with caplog.at_level(logging.WARNING, "core.sessions.lifecycle"):
        await reassign_sessions(talk.database, AgentRouter("first", {"third": AgentProfile("third", ("one",))}))
    gone = "agent weather, chosen in 1 conversations, is not configured anymore: their places' agents answer"
    assert caplog.messages[-1:] == [gone]
    async with talk.database.read() as connection:
        assert (await connection.execute(sa.select(sessions.c.app, sessions.c.agent))).one() == ("first", "weather")
