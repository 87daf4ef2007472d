"""Resumed runs: their events are stored once, as the newest of their session."""

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

import pytest
from google.genai.types import FinishReason

from core.errors import ProviderRequestError
from core.models.provider import Done, ModelMessage, Text, ToolCall, ToolResult
from core.sessions.history import INTERRUPTED_ERROR
from core.sessions.resume import resume_run
from core.tools.tool import Tool
from tests.fixtures.conversation import SESSION, Conversation, Converse, ScriptedProvider

BROKEN = (Text("Well, I thi"), ProviderRequestError("no"))
CALL = ToolCall("call_1", "pay", {"sum": 3})


class GatedPaymentTool:
    """Tool "pay" that records its calls.

    Args:
        gate: an event that each call waits for; None for no wait.

    Attributes:
        paid: the arguments of all calls.
        begun: set when a call begins.
    """

    def __init__(self, gate: asyncio.Event | None = None) -> None:
        self.paid: list[dict[str, Any]] = []
        self.begun = asyncio.Event()
        self._gate = gate
        self.tool = Tool("pay", "Pays.", self._pay)

    async def _pay(self, arguments: dict[str, Any]) -> str:
        self.paid.append(arguments)
        self.begun.set()
        if self._gate is not None:
            await self._gate.wait()
        return "paid"


async def interrupt(run: Coroutine[Any, Any, object], *, at: asyncio.Event) -> None:
    """Start a run, and cancel it as soon as the event `at` is set."""
    running = asyncio.create_task(run)
    async with asyncio.timeout(30):
        await at.wait()
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running


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


async def test_a_run_that_is_given_an_id_is_stored_under_it(converse: Converse) -> None:
    conversation = await converse(ScriptedProvider("Hello."))
    await conversation.events("hi", run_id="run-1")
    assert {row.invocation_id for row in await conversation.rows()} == {"run-1"}


async def test_the_question_is_stored_once_and_answered(converse: Converse) -> None:
    provider = ScriptedProvider(BROKEN, "It is 42.", "Yes.")
    conversation = await converse(provider)
    assert (await conversation.events("what is it?", run_id="run-1"))[-1].type == "error"
    assert await resume(conversation, "what is it?") == "It is 42."
    assert list_request_texts(provider) == [("user", "what is it?")]
    assert await stored_questions(conversation) == ["what is it?"]
    await conversation.reply("sure?")
    assert list_request_texts(provider) == [("user", "what is it?"), ("assistant", "It is 42."), ("user", "sure?")]


async def test_later_messages_precede_the_prompt_of_a_resumed_run(converse: Converse) -> None:
    provider = ScriptedProvider(BROKEN, "Good.", "It is 42.")
    conversation = await converse(provider)
    await conversation.events("what is it?", run_id="run-1")
    await conversation.reply("how are you?")
    assert await resume(conversation, "what is it?") == "It is 42."
    assert list_request_texts(provider) == [("user", "how are you?"), ("assistant", "Good."), ("user", "what is it?")]


async def test_a_tool_that_has_run_is_not_run_again(converse: Converse) -> None:
    till = GatedPaymentTool()
    provider = ScriptedProvider([Text("Let me pay."), CALL, Done()], BROKEN, "Good.", "Done.")
    conversation = await converse(provider, tools=[till.tool])
    await conversation.events("pay", run_id="run-1")
    await conversation.reply("how are you?")
    assert await resume(conversation, "pay") == "Let me pay.\n\nDone."
    assert len(till.paid) == 1
    assert [role for role, _ in list_request_texts(provider)] == ["user", "assistant", "user", "assistant", "tool"]
    assert list_request_texts(provider)[-1] == ("tool", "{'result': 'paid'}")


async def test_an_interrupted_tool_is_reported_and_not_run_again(converse: Converse) -> None:
    till = GatedPaymentTool(gate=asyncio.Event())
    provider = ScriptedProvider([CALL, Done()], "I do not know whether it was paid.")
    conversation = await converse(provider, tools=[till.tool])
    await interrupt(conversation.events("pay", run_id="run-1"), at=till.begun)
    assert await resume(conversation, "pay") == "I do not know whether it was paid."
    assert len(till.paid) == 1
    assert list_request_texts(provider)[-1] == ("tool", str({"error": INTERRUPTED_ERROR}))


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


async def test_a_run_without_stored_events_stores_its_prompt(converse: Converse) -> None:
    conversation = await converse(ScriptedProvider("It is 42."))
    assert await resume(conversation, "what is it?") == "It is 42."
    assert await stored_questions(conversation) == ["what is it?"]
