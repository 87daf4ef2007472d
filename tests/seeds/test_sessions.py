"""Seeds: sessions, whose messages are visible at once and after loading."""

import json
import logging
from typing import Any

import pytest
from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions
from google.genai import types

from core.messages.identity import DEFAULT_AGENT_NAME
from core.models.provider import Done, ToolCall
from core.tools.tool import Tool
from tests.fixtures.conversation import Converse, ScriptedProvider


def create_user_event(text: str) -> Event:
    return Event(author="user", content=types.Content(role="user", parts=[types.Part(text=text)]))


def create_model_event(part: types.Part | str, **kwargs: Any) -> Event:
    part = types.Part(text=part) if isinstance(part, str) else part
    return Event(author=DEFAULT_AGENT_NAME, content=types.Content(role="model", parts=[part]), **kwargs)


def list_texts(events: list[Event]) -> list[str]:
    return [part.text or "" for event in events if event.content for part in event.content.parts or ()]


async def test_load_session(converse: Converse) -> None:
    """Load Session."""
    conversation = await converse()
    await conversation.insert_message("user", "Hi")
    await conversation.insert_message("assistant", "Hello!")
    loaded = await conversation.session()
    assert loaded.id == "s"
    assert [(event.author, event.content) for event in loaded.events] == [
        ("user", create_user_event("Hi").content),
        (DEFAULT_AGENT_NAME, create_model_event("Hello!").content),
    ]


async def test_save_session(converse: Converse) -> None:
    """Save Session."""
    conversation = await converse()
    session = await conversation.session()
    event = create_model_event("Hello!", actions=EventActions(state_delta={"mood": "good"}))
    await conversation.sessions.append_event(session, event)
    assert [(row.role, row.content) for row in await conversation.rows()] == [("assistant", "Hello!")]
    assert (session.events, session.state) == ([event], {"mood": "good"})
    stored = await conversation.session()
    assert (stored.events, stored.state) == ([event], {"mood": "good"})


async def test_user_message_visible_after_append_event(converse: Converse) -> None:
    """User message visible after AppendEvent."""
    conversation = await converse()
    session = await conversation.session()
    await conversation.sessions.append_event(session, create_user_event("Hi"))
    assert [(row.role, row.content) for row in await conversation.rows()] == [("user", "Hi")]
    assert list_texts(session.events) == ["Hi"]


async def test_multiple_events_accumulate_in_memory(converse: Converse) -> None:
    """Multiple events accumulate in memory."""
    conversation = await converse()
    session = await conversation.session()
    for event in (create_user_event("1"), create_model_event("2"), create_user_event("3"), create_model_event("4")):
        await conversation.sessions.append_event(session, event)
    assert list_texts(session.events) == ["1", "2", "3", "4"]
    assert list_texts(await conversation.history()) == ["1", "2", "3", "4"]


async def test_state_delta_only_events_skip_history(converse: Converse) -> None:
    """State-delta-only events skip history."""
    conversation = await converse()
    session = await conversation.session()
    event = Event(author=DEFAULT_AGENT_NAME, actions=EventActions(state_delta={"mood": "good"}))
    await conversation.sessions.append_event(session, event)
    assert session.events == []
    assert await conversation.rows() == []
    assert (await conversation.session()).state == session.state == {"mood": "good"}


async def test_function_call_with_original_id(converse: Converse) -> None:
    """FunctionCall with original ID."""
    conversation = await converse()
    call = types.FunctionCall(id="adk-uuid-123", name="exec", args={"cmd": "ls"})
    await conversation.sessions.append_event(
        await conversation.session(), create_model_event(types.Part(function_call=call))
    )
    [row] = await conversation.rows()
    assert [(stored["id"], stored["name"]) for stored in row.tool_calls] == [("adk-uuid-123", "exec")]


async def test_function_call_without_id(converse: Converse) -> None:
    """FunctionCall without ID."""
    conversation = await converse()
    call = types.FunctionCall(name="search", args={})
    await conversation.sessions.append_event(
        await conversation.session(), create_model_event(types.Part(function_call=call))
    )
    [row] = await conversation.rows()
    assert [(stored["id"], stored["name"]) for stored in row.tool_calls] == [("call_search", "search")]


async def test_function_response_with_full_metadata(converse: Converse) -> None:
    """FunctionResponse with full metadata."""
    conversation = await converse()
    answer = types.FunctionResponse(id="adk-uuid-123", name="exec", response={"output": "file.txt"})
    event = create_model_event(types.Part(function_response=answer))
    await conversation.sessions.append_event(await conversation.session(), event)
    [row] = await conversation.rows()
    [stored] = row.tool_calls
    assert (stored["id"], stored["name"]) == ("adk-uuid-123", "exec")
    assert json.loads(stored["output"]) == {"output": "file.txt"}
    assert stored["output"] in row.content


async def test_session_history_conversion(converse: Converse) -> None:
    """Session history conversion."""
    provider = ScriptedProvider([ToolCall("c1", "exec", {}), Done()], "One file.", "You are welcome.")
    conversation = await converse(provider, tools=[Tool("exec", "Runs.", lambda _arguments: {"output": "file.txt"})])
    await conversation.reply("What is there?")
    await conversation.reply("Thanks!")
    second_prompt = provider.requests[-1].messages[1:]  # after the system message
    assert [message.role for message in second_prompt] == ["user", "assistant", "tool", "assistant", "user"]
    assert [message.text for message in second_prompt] == ["What is there?", "", "", "One file.", "Thanks!"]


async def test_session_history_truncation(converse: Converse, caplog: pytest.LogCaptureFixture) -> None:
    """Session history truncation."""
    conversation = await converse()
    for turn in range(40):
        await conversation.insert_message("user", f"question {turn}")
        await conversation.insert_message("assistant", f"answer {turn}")
    with caplog.at_level(logging.WARNING, logger="core.sessions"):
        caplog.clear()
        assert len(await conversation.history()) == 80
        assert not caplog.records
        await conversation.insert_message("user", "question 40")
        await conversation.insert_message("assistant", "answer 40")
        remaining = list_texts(await conversation.history())
    assert remaining == [text for turn in range(21, 41) for text in (f"question {turn}", f"answer {turn}")]
    [record] = caplog.records
    assert record.levelno == logging.WARNING
    assert "cut" in record.getMessage()
