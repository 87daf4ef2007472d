"""Secrets of runs: the run itself reads them after each interruption, no other run does."""

import json
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
import sqlalchemy as sa
from google.adk.agents import LlmAgent
from google.adk.apps import App
from google.adk.events.request_input import RequestInput
from google.adk.tools import load_memory, request_input
from google.adk.workflow import Workflow
from google.genai import types

from core.agents.factory import create_plugins
from core.agents.runtime import AgentRuntime
from core.models.provider import Done, ModelRequest, Text, ToolCall, ToolResult
from core.observability.secret_redaction import MASK
from core.privacy.retention import CleanupService
from core.sessions.memory import MemoryService
from core.sessions.resume import discard_run, resume_run
from core.store.schema import memories, messages
from core.tools.call_log import ToolCallLog
from core.tools.tool import Tool
from tests.core.agents.test_message_answers import Dialog
from tests.fixtures.conversation import SESSION, Conversation, Converse, ScriptedProvider, adapter

SECRET = "hunter2-zq"

PASSWORD = {"type": "string", "format": "password"}


async def read_as_another_run(conversation: Conversation) -> str:
    """Return the history as another run loads it."""
    return "\n".join(event.model_dump_json() for event in await conversation.history())


async def list_masked_rows(conversation: Conversation) -> list[Any]:
    return [row for row in await conversation.rows() if row.unmasked is not None]


def list_results(request: ModelRequest) -> list[Any]:
    parts = [part for message in request.messages for part in message.parts]
    return [part.result for part in parts if isinstance(part, ToolResult)]


def login(inputs: list[Any], *schemas: Any) -> Workflow:
    """Return a workflow that asks by one question for each schema, and then fails once.

    Args:
        inputs: the list to which each node appends its input.
    """

    def create_question(number: int) -> Any:
        def ask(node_input: Any) -> Any:
            inputs.append(node_input)
            yield RequestInput(message=f"Question {number}?", response_schema=schemas[number])

        ask.__name__ = f"ask_{number}"
        return ask

    def log_in(node_input: Any) -> types.Content:
        inputs.append(node_input)
        if inputs.count(node_input) == 1:
            raise OSError("no connection")
        return types.ModelContent("Logged in.")

    return Workflow(name="shop", edges=[("START", *map(create_question, range(len(schemas))), log_in)])


@pytest.mark.parametrize("way", ["say", "choose"])
async def test_a_run_that_failed_has_its_secret_again(converse: Converse, way: str) -> None:
    inputs = list[Any]()
    dialog = Dialog(await converse(root=login(inputs, PASSWORD)))
    await dialog.say("log in")
    with suppress(OSError):
        await getattr(dialog, way)(SECRET)
    run = str(dialog.runs)
    assert SECRET not in await read_as_another_run(dialog.conversation)
    async with dialog.conversation.database.write() as connection:
        await resume_run(connection, SESSION, run)
    assert SECRET not in await read_as_another_run(dialog.conversation)
    again = dialog.repeat(SECRET) if way == "say" else dialog.conversation.events("", run_id=run)
    await again
    assert inputs[1:] == [SECRET, SECRET]
    assert SECRET not in await read_as_another_run(dialog.conversation)


async def test_a_message_that_continues_a_run_finds_its_earlier_secrets(converse: Converse) -> None:
    inputs = list[Any]()
    dialog = Dialog(await converse(root=login(inputs, PASSWORD, PASSWORD, {"type": "string"})))
    await dialog.say("log in")
    await dialog.choose(SECRET)
    await dialog.say("correct-horse")
    with suppress(OSError):
        await dialog.say("ada")
    assert inputs[1:] == [SECRET, "correct-horse", "ada"]
    await dialog.repeat("ada")
    other = await read_as_another_run(dialog.conversation)
    assert "ada" in other
    assert not any(secret in other for secret in (SECRET, "correct-horse"))


async def test_a_regenerated_answer_has_the_secret_in_its_message(converse: Converse) -> None:
    inputs = list[Any]()
    dialog = Dialog(await converse(root=login(inputs, PASSWORD)))
    await dialog.say("log in")
    with suppress(OSError):
        await dialog.say(SECRET)
    async with dialog.conversation.database.write() as connection:
        await discard_run(connection, SESSION, "2", keep_prompt=True)
    assert await dialog.repeat(SECRET) == "Logged in."
    assert inputs[1:] == [SECRET, SECRET]
    assert SECRET not in await read_as_another_run(dialog.conversation)


@pytest.mark.parametrize("answer", [f"it is {SECRET}, I think", '{"key": "hunter2-zq", "n": 1', "9", "[1]"])
async def test_a_text_that_does_not_fit_a_secret_form_is_secret(converse: Converse, answer: str) -> None:
    schema = {"type": "object", "properties": {"key": PASSWORD, "n": {"type": "integer"}}}
    call = ToolCall("c1", "adk_request_input", {"message": "Key?", "response_schema": schema})
    provider = ScriptedProvider([call, Done()], "Thanks.", "Hello.")
    dialog = Dialog(await converse(provider, tools=[request_input]))
    await dialog.say("log in")
    await dialog.say(answer)
    (result,) = list_results(provider.requests[1])
    assert result["result"] in (answer, json.dumps(answer))
    dialog.question = None
    await dialog.say("hello")
    contents = [part for message in provider.requests[2].messages for part in message.parts]
    assert [part.text for part in contents if isinstance(part, Text)][-4:] == ["log in", MASK, "Thanks.", "hello"]


async def test_ids_and_signatures_of_masked_calls_stay(converse: Converse) -> None:
    used = list[Any]()

    async def use(arguments: dict[str, Any]) -> dict[str, Any]:
        used.append(arguments)
        return {"given": arguments["key"], "length": len(arguments["key"])}

    schema = {"type": "object", "properties": {"key": PASSWORD}}
    step: list[Any] = [Text("I use hunter2-zq."), ToolCall("c1", "use", {"key": SECRET}, b"signed"), Done()]
    provider = ScriptedProvider(step, "Done.", "Hello.")
    conversation = await converse(provider, tools=[Tool("use", "Uses.", use, schema)])
    await conversation.events("go", run_id="1")
    await conversation.events("hello", run_id="2")
    assert used == [{"key": SECRET}]
    own, other = provider.requests[1].messages, provider.requests[2].messages
    assert SECRET in str(own)
    assert SECRET not in str(other)
    (call,) = [part for message in other for part in message.parts if isinstance(part, ToolCall)]
    assert (call.id, call.signature, call.arguments) == ("c1", b"signed", {"key": MASK})
    assert f"I use {MASK}." in str(other)
    assert f"'given': '{MASK}'" in str(other)


async def test_arguments_that_are_no_json_are_secret_as_a_whole(converse: Converse) -> None:
    schema = {"type": "object", "properties": {"key": PASSWORD}}
    call = ToolCall("c1", "malformed_call_to_use", {"arguments": f'{{"key": "{SECRET}'})
    conversation = await converse(
        ScriptedProvider([call, Done()], "Sorry."), tools=[Tool("use", "Uses.", lambda _: "", schema)]
    )
    await conversation.events("go", run_id="1")
    assert SECRET not in await read_as_another_run(conversation)


async def test_a_crash_during_a_call_leaves_no_secret_to_other_runs(converse: Converse) -> None:
    schema = {"type": "object", "properties": {"key": PASSWORD}}
    ask = ToolCall("c1", "adk_request_input", {"message": "Key?", "response_schema": PASSWORD}), Done()
    steps: list[Any] = [[ToolCall(id_, "use", {"key": SECRET}), Done()] for id_ in ("c2", "c3")]

    async def use(arguments: dict[str, Any]) -> str:
        return f"used {arguments['key']}"

    provider = ScriptedProvider([*ask], steps[0], [OSError("gone")], steps[1], "Done.", "Hello.")
    conversation = await converse(provider, tools=[request_input, Tool("use", "Uses.", use, schema)])
    dialog = Dialog(conversation)
    await dialog.say("go")
    with suppress(OSError):
        await dialog.choose(SECRET)
    async with conversation.database.write() as connection:
        await resume_run(connection, SESSION, "1")
    await conversation.events("", run_id="1")
    assert SECRET in str(provider.requests[-1].messages)
    assert SECRET not in await read_as_another_run(conversation)
    assert SECRET not in str([{**row._mapping, "unmasked": None} for row in await conversation.rows()])


async def test_memories_have_no_secret(converse: Converse) -> None:
    call = ToolCall("c1", "adk_request_input", {"message": "Key?", "response_schema": PASSWORD})
    provider = ScriptedProvider([call, Done()], f"I remember {SECRET}.")
    conversation = await converse(ScriptedProvider())
    agent = LlmAgent(name="parley", model=adapter(provider), tools=[request_input, load_memory])
    app = App(name="parley", root_agent=agent, plugins=create_plugins(ToolCallLog(conversation.database)))
    runtime = AgentRuntime(app, conversation.sessions, memory=MemoryService(conversation.database))
    dialog = Dialog(replace(conversation, runtime=runtime))
    await dialog.say("go")
    await dialog.say(SECRET)
    async with conversation.database.read() as connection:
        texts = (await connection.execute(sa.select(memories.c.content).order_by(memories.c.id))).scalars().all()
    assert texts[-2:] == [MASK, f"I remember {MASK}."]


async def test_the_cleanup_deletes_the_stored_secrets_of_old_runs(converse: Converse) -> None:
    dialog = Dialog(await converse(root=login([], PASSWORD)))
    await dialog.say("log in")
    with suppress(OSError):
        await dialog.choose(SECRET)
    conversation = dialog.conversation
    assert await list_masked_rows(conversation) != []
    cleanup = CleanupService(conversation.database, days=1)
    assert await cleanup.delete_batch() == 0
    async with conversation.database.write() as connection:
        await connection.execute(sa.update(messages).values(created_at=1.0))
    assert await cleanup.delete_batch() > 0
    assert await list_masked_rows(conversation) == []
