"""Seeds: truncation of the history, and messages stored in columns only."""

import logging

import pytest
from google.adk.events.event import Event
from google.genai import types

from core.sessions.history import HistoryEntry, token_budget_truncate
from tests.fixtures.conversation import Conversation, Converse, ScriptedProvider


async def keep_turns(conversation: Conversation, count: int, tokens: int) -> None:
    for turn in range(count):
        await conversation.insert_message("user", f"question {turn}", tokens=tokens)
        await conversation.insert_message("assistant", f"answer {turn}", tokens=tokens)


def list_texts(events: list[Event]) -> list[str]:
    return [part.text or "" for event in events if event.content for part in event.content.parts or ()]


async def test_history_truncation_with_explicit_budget(converse: Converse) -> None:
    """History Truncation with explicit budget."""
    provider = ScriptedProvider("ok")
    conversation = await converse(provider, budget=40)
    await keep_turns(conversation, 5, tokens=10)
    assert list_texts(await conversation.history()) == ["question 3", "answer 3", "question 4", "answer 4"]
    await conversation.reply("now?")
    [request] = provider.requests
    assert [message.text for message in request.messages[1:]] == [
        "question 3",
        "answer 3",
        "question 4",
        "answer 4",
        "now?",
    ]


async def test_default_token_budget(converse: Converse) -> None:
    """Default token budget."""
    conversation = await converse(budget=0)
    await keep_turns(conversation, 3, tokens=8_000)
    assert list_texts(await conversation.history()) == ["question 1", "answer 1", "question 2", "answer 2"]  # 32,000
    await conversation.insert_message("assistant", "one more", tokens=1)
    assert list_texts(await conversation.history()) == ["question 2", "answer 2", "one more"]


async def test_event_author_mapping(converse: Converse) -> None:
    """Event Author Mapping."""
    conversation = await converse(agent="helper")
    await conversation.insert_message("user", "Hi")
    await conversation.insert_message("assistant", "Hello!")
    assert [event.author for event in await conversation.history()] == ["user", "helper"]


@pytest.mark.parametrize(("agent", "author"), [("helper", "helper"), ("", "lango_agent")])
async def test_model_role_mapping(converse: Converse, agent: str, author: str) -> None:
    """Model role mapping."""
    conversation = await converse(agent=agent)
    await conversation.insert_message("user", "Hi")
    await conversation.insert_message("model", "Hello!")
    [_, reply] = await conversation.history()
    assert reply.author == author != "model"


@pytest.mark.parametrize(("agent", "author"), [("helper", "helper"), ("", "lango_agent")])
async def test_unknown_role_fallback(
    converse: Converse, agent: str, author: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Unknown role fallback."""
    conversation = await converse(ScriptedProvider("The end."), agent=agent)
    await conversation.insert_message("user", "Hi")
    await conversation.insert_message("narrator", "And so it went.")
    assert [event.author for event in await conversation.history()] == ["user", author]
    with caplog.at_level(logging.WARNING):
        await conversation.reply("And then?")
    assert "unknown agent" not in caplog.text


async def test_assistant_message_with_function_call_tool_calls(converse: Converse) -> None:
    """Assistant message with FunctionCall ToolCalls."""
    conversation = await converse()
    await conversation.insert_message("user", "List.")
    await conversation.insert_message("assistant", "", {"id": "adk-uuid-123", "name": "exec", "input": '{"cmd":"ls"}'})
    [_, event] = await conversation.history()
    assert event.get_function_calls() == [types.FunctionCall(id="adk-uuid-123", name="exec", args={"cmd": "ls"})]


async def test_tool_message_with_function_response_metadata_in_tool_calls(converse: Converse) -> None:
    """Tool message with FunctionResponse metadata in ToolCalls."""
    conversation = await converse()
    await conversation.insert_message("user", "List.")
    await conversation.insert_message("assistant", "", {"id": "adk-uuid-123", "name": "exec", "input": "{}"})
    output = '{"result":"ok"}'
    await conversation.insert_message("tool", output, {"id": "adk-uuid-123", "name": "exec", "output": output})
    event = (await conversation.history())[-1]
    assert event.get_function_responses() == [
        types.FunctionResponse(id="adk-uuid-123", name="exec", response={"result": "ok"})
    ]
    assert event.content is not None
    assert event.content.role == "function"


async def test_legacy_tool_message_without_tool_calls(converse: Converse) -> None:
    """Legacy tool message without ToolCalls."""
    conversation = await converse()
    await conversation.insert_message("user", "List.")
    await conversation.insert_message("assistant", "", {"id": "call_exec", "name": "exec", "input": "{}"})
    await conversation.insert_message("tool", '{"result":"file.txt"}')
    assert (await conversation.history())[-1].get_function_responses() == [
        types.FunctionResponse(id="call_exec", name="exec", response={"result": "file.txt"})
    ]


async def test_tool_message_with_no_context_for_function_response(converse: Converse) -> None:
    """Tool message with no context for FunctionResponse."""
    conversation = await converse()
    await conversation.insert_message("user", "List.")
    await conversation.insert_message("tool", "file.txt")
    event = (await conversation.history())[-1]
    assert event.content is not None
    assert event.content.parts == [types.Part(text="file.txt")]


CALL = types.Part(function_call=types.FunctionCall(id="c1", name="exec", args={}))
ANSWER = types.Part(function_response=types.FunctionResponse(id="c1", name="exec", response={"output": "file.txt"}))


def create_entries(*contents: types.Content) -> list[HistoryEntry]:
    return [
        HistoryEntry(Event(author="user" if content.role == "user" else "lango_agent", content=content), tokens=10)
        for content in contents
    ]


def test_truncation_cuts_before_tool_message() -> None:
    """Truncation cuts before tool message."""
    answer = types.Content(role="function", parts=[ANSWER])
    history = create_entries(
        types.UserContent("List."),
        types.ModelContent(CALL),
        answer,
        types.ModelContent("One file."),
        types.UserContent("Thanks!"),
        types.ModelContent("You are welcome."),
    )
    remaining = token_budget_truncate(history, 40)  # the budget ends directly before the tool message
    assert remaining == history[4:]
    assert token_budget_truncate(history, 50) == history[4:]  # the budget ends before the call


def test_no_truncation_preserves_trailing_function_call(caplog: pytest.LogCaptureFixture) -> None:
    """No truncation preserves trailing FunctionCall."""
    history = create_entries(types.UserContent("List."), types.ModelContent(CALL))
    with caplog.at_level(logging.WARNING):
        assert token_budget_truncate(history, 20) == history
    assert not caplog.records
