"""Plugins that turn errors of models and tools into results, so runs continue."""

import asyncio
import hashlib
import json
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Any

import pytest
import sqlalchemy as sa
from fastapi.openapi.models import OAuth2, OAuthFlowAuthorizationCode, OAuthFlows
from google.adk.agents import LlmAgent
from google.adk.auth.auth_credential import AuthCredential, AuthCredentialTypes, OAuth2Auth
from google.adk.auth.auth_tool import AuthConfig
from google.adk.events.event import Event
from google.adk.tools.agent_tool import AgentTool
from google.adk.tools.tool_context import ToolContext
from google.adk.workflow import Workflow
from google.genai import types
from pydantic import BaseModel

from core.errors import StoreError
from core.models.provider import Done, ProviderEvent, ToolCall, ToolResult
from core.observability import secret_redaction as secrets
from core.sessions.resume import resume_run
from core.store.schema import tool_calls
from core.tools.call_log import ToolCallLog
from core.tools.results import MAX_RESULT_CHARACTERS
from core.tools.tool import MAX_ERROR_CHARACTERS, Tool, to_adk_tool
from tests.fixtures.conversation import (
    SESSION,
    Answer,
    Conversation,
    Converse,
    ScriptedProvider,
    adapter,
    apply_text_events,
    create_team_app,
)


def calls(name: str, **arguments: object) -> list[ProviderEvent]:
    return [ToolCall("c1", name, arguments), Done()]


def get_tool_result(provider: ScriptedProvider) -> dict[str, object]:
    """Return the tool result in the provider's second request."""
    [result] = provider.requests[1].messages[-1].parts
    assert isinstance(result, ToolResult)
    return dict(result.result)


async def make_failing_conversation(converse: Converse, error: BaseException) -> tuple[ScriptedProvider, Conversation]:
    """Return a provider, and a conversation whose model calls a tool that fails.

    Args:
        error: the error that the tool raises.
    """

    async def fail(_arguments: object) -> None:
        raise error

    provider = ScriptedProvider(calls("look"), "I cannot look.")
    return provider, await converse(provider, tools=[Tool("look", "Looks.", fail)])


@pytest.mark.parametrize(
    "arguments", [{"agent_name": "ghost"}, {"agent_name": "lango_agent"}, {"agent_name": None}, {"agent_name": ["x"]}]
)
async def test_a_wrong_name_for_an_agent_is_answered_with_the_right_ones(
    converse: Converse, arguments: dict[str, object]
) -> None:
    provider = ScriptedProvider(calls("transfer_to_agent", **arguments), "Never mind.")
    conversation = await converse(app=create_team_app(provider, "billing", "research"))
    assert await conversation.reply("Where is my bill?") == "Never mind."
    assert "Valid agents: billing, research." in str(get_tool_result(provider)["error"])


async def test_a_tool_that_is_named_like_the_transfer_is_not_checked(converse: Converse) -> None:
    provider = ScriptedProvider(calls("transfer_to_agent", agent_name="ghost"), "Done.")
    tool = Tool("transfer_to_agent", "Ours.", lambda arguments: {"went to": arguments["agent_name"]})
    assert await (await converse(provider, tools=[tool])).reply("Go.") == "Done."
    assert get_tool_result(provider) == {"went to": "ghost"}


async def test_a_secret_in_the_error_of_a_tool_reaches_neither_model_nor_memory(
    converse: Converse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(secrets, "_known", set())
    secrets.add_secret("hunter2-hunter2")
    error = RuntimeError("Bearer abcdefgh12345678 and hunter2-hunter2 at https://me:pass-word@host/")
    provider, conversation = await make_failing_conversation(converse, error)
    await conversation.reply("Look.")
    seen = f"{get_tool_result(provider)} {await conversation.rows()}"
    assert "look failed: RuntimeError" in seen
    for secret in ("abcdefgh12345678", "hunter2", "pass-word"):
        assert secret not in seen


async def test_a_secret_at_the_end_of_a_truncated_error_is_redacted(converse: Converse) -> None:
    padding = "x" * (MAX_ERROR_CHARACTERS - len("look failed: RuntimeError:  sk-abc"))
    provider, conversation = await make_failing_conversation(
        converse, RuntimeError(f"{padding} sk-abcdefghijklmnopqrstuvwxyz")
    )
    await conversation.reply("Look.")
    assert "sk-" not in str(get_tool_result(provider)["error"])


async def convert_result(converse: Converse, result: object) -> dict[str, object]:
    """Return a tool's result as the model receives it.

    Also checks that the conversation continues with the next message.

    Args:
        result: the value that the tool returns.
    """
    provider = ScriptedProvider(calls("look"), "Seen.", "Still here.")
    conversation = await converse(provider, tools=[Tool("look", "Looks.", lambda _arguments: result)])
    assert await conversation.reply("Look.") == "Seen."
    assert await conversation.reply("And now?") == "Still here."
    return get_tool_result(provider)


async def test_a_result_that_json_cannot_hold_is_converted(converse: Converse) -> None:
    odd = {"raw": b"\x00\xff", "set": {1}, 3: float("nan"), "text": "nul \0 half \ud83d", "pair": (1.5, None)}
    result = await convert_result(converse, odd)
    assert "look_raw.bin" in str(result.pop("raw"))
    assert result == {
        "set": [1],
        "3": None,
        "text": "nul \ufffd half \ufffd",
        "pair": [1.5, None],
    }


# The log of tool calls


async def list_logged_calls(conversation: Conversation) -> list[sa.Row[Any]]:
    async with conversation.database.read() as connection:
        return list((await connection.execute(sa.select(tool_calls).order_by(tool_calls.c.started_at))).all())


async def test_a_call_is_logged_with_the_result_that_the_model_gets(converse: Converse) -> None:
    secrets.add_secret("hunter2-hunter2")
    provider = ScriptedProvider(calls("look", at="sea"), "Seen.")
    conversation = await converse(provider, tools=[Tool("look", "Looks.", lambda _arguments: "hunter2-hunter2")])
    async for event in conversation.stream("Look.", run_id="run-1"):
        if event.type == "tool_end":
            break
    [row] = await list_logged_calls(conversation)
    assert (row.session, row.run, row.id, row.tool, row.state) == (SESSION, "run-1", "c1", "look", "ended")
    assert (row.arguments, row.result) == ({"at": "sea"}, "[redacted]")
    assert row.arguments_hash == hashlib.sha256(b'{"at":"sea"}').hexdigest()


@pytest.fixture
def call_end(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Return an event that is set once the end of a tool call is logged."""
    ended, end = asyncio.Event(), ToolCallLog.end

    async def end_and_notify(self: ToolCallLog, *call: Any) -> None:
        await end(self, *call)
        ended.set()

    monkeypatch.setattr(ToolCallLog, "end", end_and_notify)
    return ended


async def test_a_cancelled_call_has_begun_and_not_ended(converse: Converse, call_end: asyncio.Event) -> None:
    started = asyncio.Event()

    async def wait(_arguments: object) -> None:
        started.set()
        await asyncio.Event().wait()

    provider = ScriptedProvider([ToolCall("c1", "wait", {}), ToolCall("c2", "look", {}), Done()])
    tools = [Tool("wait", "Waits.", wait), Tool("look", "Looks.", lambda _arguments: "seen")]
    conversation = await converse(provider, tools=tools)
    listening = asyncio.create_task(conversation.reply("Wait."))
    async with asyncio.timeout(30):
        await started.wait()
        await call_end.wait()
    listening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await listening
    assert {row.id: row.state for row in await list_logged_calls(conversation)} == {"c1": "begun", "c2": "ended"}
    provider.answers = ["Never mind."]
    assert await conversation.reply("Stop.") == "Never mind."
    answered = [part for message in provider.requests[-1].messages for part in message.parts]
    assert {part.id for part in answered if isinstance(part, ToolResult)} == {"c1", "c2"}


async def test_unknown_tools_and_transfers_are_not_logged(converse: Converse) -> None:
    hand_over: Answer = [
        ToolCall("c1", "nothing", {}),
        ToolCall("c2", "transfer_to_agent", {"agent_name": "billing"}),
        Done(),
    ]
    provider = ScriptedProvider(hand_over, "It is in the post.")
    root = LlmAgent(
        name="root",
        model=adapter(provider),
        sub_agents=[LlmAgent(name="billing", model=adapter(provider))],
    )
    conversation = await converse(root=root)
    assert await conversation.reply("Where is my bill?") == "It is in the post."
    assert await list_logged_calls(conversation) == []


async def test_an_agent_as_a_tool_is_one_logged_call(converse: Converse) -> None:
    used: list[object] = []
    helper = LlmAgent(
        name="helper",
        model=adapter(ScriptedProvider([ToolCall("c1", "look", {}), Done()], "It is there.")),
        tools=[to_adk_tool(Tool("look", "Looks.", used.append))],
    )
    provider = ScriptedProvider(calls("helper", request="Where is it?"), "There.")
    conversation = await converse(provider, tools=[AgentTool(helper)])
    assert await conversation.reply("Where is it?") == "There."
    assert [(row.tool, row.result) for row in await list_logged_calls(conversation)] == [("helper", "It is there.")]
    assert used == [{}]


async def test_a_tool_that_requests_a_sign_in_gets_an_error(converse: Converse) -> None:
    def calendar(tool_context: ToolContext) -> str:
        """Request a sign-in with OAuth."""
        url = "https://idp.example"
        code = OAuthFlowAuthorizationCode(authorizationUrl=url, tokenUrl=url, scopes={})
        scheme = OAuth2(flows=OAuthFlows(authorizationCode=code))
        secret = AuthCredential(
            auth_type=AuthCredentialTypes.OAUTH2, oauth2=OAuth2Auth(client_id="c", client_secret="s3cret-s3cret")
        )
        tool_context.request_credential(AuthConfig(auth_scheme=scheme, raw_auth_credential=secret))
        return "wait for it"

    provider = ScriptedProvider(calls("calendar"), "I cannot read it.")
    conversation = await converse(provider, tools=[calendar])
    events = await conversation.events("What is on?", run_id="run-1")
    assert (events[-1].type, events[-1].text) == ("done", "I cannot read it.")
    assert "it needs a sign-in" in str(provider.requests[-1].messages[-1])
    assert not any("s3cret" in str(row) for row in [*await conversation.rows(), *await list_logged_calls(conversation)])


async def test_a_call_that_cannot_be_logged_is_not_made(converse: Converse, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*_call: object) -> None:
        raise StoreError("the database cannot be used (SQLITE_FULL)")

    monkeypatch.setattr(ToolCallLog, "begin", fail)
    used: list[object] = []
    provider = ScriptedProvider(calls("look"))
    conversation = await converse(provider, tools=[Tool("look", "Looks.", used.append)])
    events = await conversation.events("Look.")
    assert (events[-1].type, type(events[-1].error)) == ("error", StoreError)
    assert used == []


# Effects of a call beside its result


def note(text: str, tool_context: ToolContext) -> str:
    """Append a text to the notes in the session's state."""
    tool_context.state["notes"] = [*tool_context.state.get("notes", []), text]
    return "noted"


InterruptedRun = Callable[..., Coroutine[Any, Any, tuple[Conversation, ScriptedProvider]]]


@pytest.fixture
def interrupted_run(converse: Converse, call_end: asyncio.Event) -> InterruptedRun:
    """Return a function that starts a run and cancels it during a tool call.

    At the cancellation one call of the step has ended, and another runs.
    """

    async def begin(tool: Callable[..., Any], **arguments: str) -> tuple[Conversation, ScriptedProvider]:
        started = asyncio.Event()

        async def wait(_arguments: object) -> None:
            started.set()
            await asyncio.Event().wait()

        step: Answer = [ToolCall("c0", "wait", {}), ToolCall("c1", tool.__name__, arguments), Done()]
        provider = ScriptedProvider(step, "Done.")
        conversation = await converse(provider, tools=[Tool("wait", "Waits.", wait), tool])
        running = asyncio.create_task(conversation.events("Go.", run_id="run-1"))
        async with asyncio.timeout(30):
            await started.wait()
            await call_end.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        return conversation, provider

    return begin


async def resume(conversation: Conversation) -> str:
    async with conversation.database.write() as connection:
        await resume_run(connection, SESSION, "run-1")
    return (await conversation.events("Go.", run_id="run-1"))[-1].text


async def test_the_state_change_of_a_call_is_applied_once(interrupted_run: InterruptedRun) -> None:
    conversation, _ = await interrupted_run(note, text="milk")
    assert (await conversation.session()).state == {}
    assert await resume(conversation) == "Done."
    assert (await conversation.session()).state == {"notes": ["milk"]}


async def test_media_in_a_result_are_sent_again(interrupted_run: InterruptedRun) -> None:
    def draw() -> types.Part:
        """Return a PNG image."""
        return types.Part.from_bytes(data=b"\x89PNG\r\n\x1a\n", mime_type="image/png")

    conversation, provider = await interrupted_run(draw)
    assert await resume(conversation) == "Done."
    results = [part for part in provider.requests[1].messages[-1].parts if isinstance(part, ToolResult)]
    assert [media.data for media in results[1].media] == [b"\x89PNG\r\n\x1a\n"]


async def test_a_long_text_is_sent_again_as_it_was_truncated(interrupted_run: InterruptedRun) -> None:
    def read() -> str:
        """Return a text that is longer than the limit of results."""
        return "x" * (MAX_RESULT_CHARACTERS + 5)

    conversation, provider = await interrupted_run(read)
    await resume(conversation)
    results = [part for part in provider.requests[1].messages[-1].parts if isinstance(part, ToolResult)]
    assert str(results[1].result["result"]).endswith(f"… (cut: it has {MAX_RESULT_CHARACTERS + 5} characters)")
    assert str(results[1].result["result"]).count("cut") == 1


def greet(node_input: Any) -> str:
    return "Hello."


def count(node_input: Any) -> dict[str, int]:
    return {"shirts": 2}


def announce(node_input: Any) -> Iterator[Event | str]:
    yield Event.model_validate({"message": "One moment."})
    yield "Done."


def say_and_return(node_input: Any) -> Event:
    return Event.model_validate({"message": "Two shirts.", "output": {"shirts": 2}})


def repeat(node_input: Any) -> str:
    return f"You said: {node_input}"


def end(node_input: Any) -> None:
    return None


@pytest.mark.parametrize(
    ("nodes", "answer"),
    [
        ([greet], "Hello."),
        ([count], '```json\n{\n  "shirts": 2\n}\n```'),
        ([announce], "One moment.\n\nDone."),
        ([say_and_return], "Two shirts."),
        ([greet, repeat], "You said: Hello."),
        ([announce, end], "One moment."),
        ([Workflow(name="inner", edges=[("START", greet)])], "Hello."),
        ([LlmAgent(name="clerk", model=adapter(ScriptedProvider("Hi.", "Hi.")))], "Hi."),
    ],
    ids=["text", "value", "message", "message and value", "two nodes", "no result", "inner workflow", "agent"],
)
async def test_the_messages_and_the_result_of_a_workflow_are_its_answer(
    converse: Converse, nodes: Sequence[Any], answer: str
) -> None:
    edges: Any = [("START", *nodes)]
    conversation = await converse(root=Workflow(name="shop", edges=edges))
    events = await conversation.events("a shirt", run_id="1")
    assert events[-1].text == apply_text_events(events) == answer
    assert "\n\n".join(row.content for row in await conversation.rows() if row.role == "assistant") == answer
    rerun_events = await conversation.events("a shirt", run_id="1")  # as after a crash before the end of the turn
    assert rerun_events[-1].text == answer


class Size(BaseModel):
    size: str


async def test_a_structured_answer_is_shown_as_text(converse: Converse) -> None:
    provider = ScriptedProvider([ToolCall("c1", "set_model_response", {"size": "M"}), Done()])
    clerk = LlmAgent(name="clerk", model=adapter(provider), output_schema=Size, tools=[greet])
    conversation = await converse(root=clerk)
    assert json.loads(await conversation.reply("Which size?")) == {"size": "M"}
