"""Sessions whose agent is no longer configured."""

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
from core.sessions.agent_routing import AgentProfile, AgentRouter
from core.sessions.lifecycle import reassign_sessions
from core.sessions.service import SessionService
from core.store.schema import sessions
from core.tools.call_log import ToolCallLog
from tests.fixtures.conversation import Conversation, Converse, ScriptedProvider, adapter


def clock() -> str:
    """Return the time."""
    return "noon"


def app(name: str, provider: ScriptedProvider) -> App:
    return App(
        name=name, root_agent=LlmAgent(name=name, model=adapter(provider), tools=[clock]), plugins=create_plugins()
    )


async def test_messages_of_lango_agent_are_read_as_those_of_parley(
    converse: Converse, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    conversation = await converse(app=app("lango_agent", ScriptedProvider("It is noon.")), agent="lango_agent")
    await conversation.reply("What time is it?")
    await reassign_sessions(conversation.database, AgentRouter("parley", {"parley": AgentProfile("parley", ("one",))}))
    assert not [message for message in caplog.messages if "goes on with" in message]
    provider = ScriptedProvider("It was noon.")
    service = SessionService(conversation.database, TokenCounter(tmp_path), agent="parley")
    after = Conversation(AgentRuntime(app("parley", provider), service), service, conversation.database)
    await after.reply("And before that?")
    read = [(message.role, message.text) for message in provider.requests[0].messages[1:]]
    assert read == [("user", "What time is it?"), ("assistant", "It is noon."), ("user", "And before that?")]
    await after.runtime.aclose()


async def start_next_agent(conversation: Conversation, provider: ScriptedProvider) -> Conversation:
    """Return the same conversation after a restart with another agent, named "after"."""
    await reassign_sessions(conversation.database, AgentRouter("after"))
    after = app("after", provider).model_copy(update={"plugins": create_plugins(ToolCallLog(conversation.database))})
    return Conversation(AgentRuntime(after, conversation.sessions), conversation.sessions, conversation.database)


async def test_the_next_agent_reads_the_texts_of_the_former_as_anothers(
    converse: Converse, caplog: pytest.LogCaptureFixture
) -> None:
    before = ScriptedProvider([ToolCall("c1", "clock", {}), Done()], "It is noon.")
    conversation = await converse(app=app("before", before))
    await conversation.reply("What time is it?")
    provider = ScriptedProvider("It was noon.", "Still.")
    with caplog.at_level(logging.WARNING, "core.sessions.lifecycle"):
        conversation = await start_next_agent(conversation, provider)
    assert caplog.messages[-1:] == [
        "agent after takes over the conversations of before, which is not configured anymore"
    ]
    assert await conversation.reply("And before that?") == "It was noon."
    read = [(message.role, message.text) for message in provider.requests[0].messages[1:]]
    assert {role for role, _ in read} == {"user"}
    assert "What time is it?" in read[0][1]
    assert "It is noon." in "".join(text for _, text in read)
    assert await conversation.reply("Sure?") == "Still."
    assert provider.requests[1].messages[-2].role == "assistant"
    caplog.clear()
    await reassign_sessions(conversation.database, AgentRouter("after"))
    assert caplog.messages == []
    await conversation.runtime.aclose()


async def test_an_interrupted_run_continues_with_the_next_agent(converse: Converse) -> None:
    conversation = await converse(app=app("before", ScriptedProvider([ToolCall("c1", "clock", {}), Done()])))
    assert [event.type for event in await conversation.events("The time?", run_id="r1")][
        -1
    ] == "error"  # no second answer
    provider = ScriptedProvider("Noon it is.")
    conversation = await start_next_agent(conversation, provider)
    assert (await conversation.events("The time?", run_id="r1"))[-1].text == "Noon it is."
    assert [event.author for event in await conversation.history()][-1] == "after"
    assert sum("The time?" in message.text for message in provider.requests[0].messages) == 1
    await conversation.runtime.aclose()


async def test_a_missing_chosen_agent_is_logged_and_stays_chosen(
    converse: Converse, caplog: pytest.LogCaptureFixture
) -> None:
    conversation = await converse(app=app("third", ScriptedProvider("Hi.")))
    async with conversation.database.write() as connection:
        await connection.execute(sa.update(sessions).values(agent="weather"))
    with caplog.at_level(logging.WARNING, "core.sessions.lifecycle"):
        await reassign_sessions(conversation.database, AgentRouter("first", {"third": AgentProfile("third", ("one",))}))
    warning = "agent weather, chosen in 1 conversations, is not configured anymore: their places' agents answer"
    assert caplog.messages[-1:] == [warning]
    async with conversation.database.read() as connection:
        assert (await connection.execute(sa.select(sessions.c.app, sessions.c.agent))).one() == ("first", "weather")
