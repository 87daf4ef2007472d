"""Resumed runs: their events are stored once, as the newest of their session."""

import pytest
from google.genai.types import FinishReason

from core.errors import ProviderRequestError
from core.models.provider import Done, ModelMessage, Text, ToolCall, ToolResult
from core.sessions.resume import resume_run
from tests.fixtures.conversation import SESSION, Conversation, Converse, ScriptedProvider

BROKEN = (Text("Well, I thi"), ProviderRequestError("no"))


async def resume(conversation: Conversation, text: str, run_id: str = "run-1") -> str:
    async with conversation.database.write() as connection:
        await resume_run(connection, SESSION, run_id)
    return (await conversation.events(text, run_id=run_id))[-1].text


def list_request_texts(provider: ScriptedProvider) -> list[tuple[str, str]]:
    """Return (role, text) of each message of the newest request, except system ones."""
    return [(message.role, get_text(message)) for message in provider.requests[-1].messages if message.role != "system"]


def get_text(message: ModelMessage) -> str:
    parts = []
    for part in message.parts:
        match part:
            case Text(text):
                parts.append(text)
            case ToolCall():
                parts.append(f"{part.name}()")
            case ToolResult():
                parts.append(str(dict(part.result)))
    return " ".join(parts)


async def stored_questions(conversation: Conversation) -> list[str]:
    return [row.content for row in await conversation.rows() if row.role == "user"]


async def test_later_messages_precede_the_prompt_of_a_resumed_run(converse: Converse) -> None:
    provider = ScriptedProvider(BROKEN, "Good.", "It is 42.")
    conversation = await converse(provider)
    await conversation.events("what is it?", run_id="run-1")
    await conversation.reply("how are you?")
    assert await resume(conversation, "what is it?") == "It is 42."
    assert list_request_texts(provider) == [("user", "how are you?"), ("assistant", "Good."), ("user", "what is it?")]


@pytest.mark.parametrize("finish", [FinishReason.MAX_TOKENS, FinishReason.MALFORMED_FUNCTION_CALL, FinishReason.SAFETY])
async def test_a_run_that_ended_without_an_answer_is_run_again(converse: Converse, finish: FinishReason) -> None:
    provider = ScriptedProvider([Done(finish_reason=finish)], "It is 42.")
    conversation = await converse(provider)
    assert (await conversation.events("what is it?", run_id="run-1"))[-1].type == "error"
    assert await resume(conversation, "what is it?") == "It is 42."
    assert await stored_questions(conversation) == ["what is it?"]


async def test_a_stored_reply_that_was_not_shown_is_generated_again(converse: Converse) -> None:
    provider = ScriptedProvider("It is 41.", "It is 42.")
    conversation = await converse(provider)
    await conversation.events("what is it?", run_id="run-1")
    assert await resume(conversation, "what is it?") == "It is 42."
    assert [row.content for row in await conversation.rows()] == ["what is it?", "It is 42."]
