"""Built-in tools that search the history and create files."""

import pytest

from core.models.provider import Done, ProviderEvent, ToolCall, ToolResult
from core.tools.builtin.make_file import MAX_CHARACTERS, make_file
from core.tools.builtin.search_history import search_history
from core.tools.tool import is_idempotent, load_tools
from tests.core.sessions.events import reset_session
from tests.fixtures.conversation import SESSION, USER, Converse, ScriptedProvider


async def test_earlier_messages_are_found_until_a_reset(converse: Converse) -> None:
    search: list[ProviderEvent] = [ToolCall("c1", "search_history", {"query": "HARBOUR blue%"}), Done()]
    nothing: list[ProviderEvent] = [ToolCall("c2", "search_history", {"query": "harbour"}), Done()]
    provider = ScriptedProvider("Noted.", "Fine.", search, "Found.", nothing, "Nothing.")
    conversation = await converse(provider, tools=[search_history])
    await conversation.reply(f"{'long ' * 200} the harbour is BLUE% today {'and so on ' * 100}")
    await conversation.reply("The harbour is green.")
    assert await conversation.reply("What did I say?") == "Found."
    result = provider.requests[-1].messages[-1].parts[0]
    assert isinstance(result, ToolResult)
    (found,) = result.result["found"]
    assert found["by"] == "user"
    assert "harbour is BLUE% today" in found["text"]
    assert len(found["text"]) < 600
    await reset_session(conversation.sessions, SESSION)
    await conversation.reply("And now?")
    result = provider.requests[-1].messages[-1].parts[0]
    assert isinstance(result, ToolResult)
    assert result.result == {"found": []}
    assert is_idempotent(load_tools(["core.tools:search_history"])[0])


async def test_the_excerpt_shows_the_word_in_its_own_spelling(converse: Converse) -> None:
    search: list[ProviderEvent] = [ToolCall("c1", "search_history", {"query": "STRASSE"}), Done()]
    provider = ScriptedProvider("Noted.", search, "Found.")
    conversation = await converse(provider, tools=[search_history])
    await conversation.reply(f"{'ß ﬃ ' * 2000} die Straße {'und so weiter ' * 500}")
    assert await conversation.reply("Where?") == "Found."
    result = provider.requests[-1].messages[-1].parts[0]
    assert isinstance(result, ToolResult)
    assert "Straße" in result.result["found"][0]["text"]


async def test_a_file_is_created_and_stored(converse: Converse) -> None:
    wrong = ["../x", "a/b", "a\\b", ".env", "", " ", "x\n", "x" * 101]
    calls = [ToolCall(f"w{i}", "make_file", {"name": name, "content": "x"}) for i, name in enumerate(wrong)]
    long = ToolCall("l", "make_file", {"name": "a.txt", "content": "x" * (MAX_CHARACTERS + 1)})
    good = ToolCall("g", "make_file", {"name": "report.csv", "content": "a,b\n1,\u00e9\n"})
    provider = ScriptedProvider([*calls, long, good, Done()], "Made.")
    conversation = await converse(provider, tools=[make_file])
    assert await conversation.reply("Make it.") == "Made."
    results = [part.result for part in provider.requests[-1].messages[-1].parts if isinstance(part, ToolResult)]
    assert [set(result) for result in results[:-1]] == [{"error"}] * (len(wrong) + 1)
    assert results[-1]["made"] == "report.csv"
    artifacts = conversation.runtime._runner.artifact_service
    assert artifacts is not None
    keys = await artifacts.list_artifact_keys(app_name=conversation.runtime.app.name, user_id=USER, session_id=SESSION)
    assert keys == ["report.csv"]


@pytest.mark.parametrize("name", ["core.tools:search_history", "core.tools:make_file", "core.tools:read_page"])
def test_each_is_named_in_tools(name: str) -> None:
    assert load_tools([name])[0].name == name.partition(":")[2]
