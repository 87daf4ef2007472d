"""Session service with a real ADK runner."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import pytest
import sqlalchemy as sa
from google.adk.agents import LlmAgent
from google.adk.agents.run_config import RunConfig, StreamingMode
from google.adk.apps import App
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events.event import Event
from google.adk.models import BaseLlm, LlmCapabilities, LlmRequest, LlmResponse
from google.adk.runners import Runner
from google.adk.tools.function_tool import FunctionTool
from google.adk.tools.tool_context import ToolContext
from google.genai import types
from pydantic import Field

from core.errors import SessionResetError
from core.sessions.service import SessionService
from core.store.database import Database
from core.store.schema import messages
from tests.core.sessions.events import list_call_ids, list_texts, reset_session

Reply = str | types.FunctionCall


class ScriptedLlm(BaseLlm):
    """ADK model that returns its replies in order, and records the requests.

    Attributes:
        lines: the remaining replies.
        asked: the contents of each request.
    """

    model: str = "script"
    lines: list[Reply]
    asked: list[list[types.Content]] = Field(default_factory=list)

    @property
    def capabilities(self) -> LlmCapabilities:
        return LlmCapabilities(output_schema_and_tools=False)

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        self.asked.append(list(llm_request.contents))
        line = self.lines.pop(0)
        if isinstance(line, str):
            part = types.Part(text=line)
            if stream:
                half = types.Content(role="model", parts=[types.Part(text=line[: len(line) // 2])])
                yield LlmResponse(partial=True, content=half)
        else:
            part = types.Part(function_call=line, thought_signature=b"\x00signed")
        usage = types.GenerateContentResponseUsageMetadata(prompt_token_count=1, total_token_count=1)
        content = types.Content(role="model", parts=[part])
        yield LlmResponse(partial=False, content=content, usage_metadata=usage)


def add(a: int, b: int, tool_context: ToolContext) -> dict[str, int]:
    """Return the sum, and store it in the user's state."""
    tool_context.state["user:sum"] = a + b
    return {"sum": a + b}


def call(name: str = "add", id_: str = "call_1", **args: Any) -> types.FunctionCall:
    return types.FunctionCall(id=id_, name=name, args=args)


def create_runner(service: SessionService, model: ScriptedLlm, *tools: Any) -> Runner:
    agent = LlmAgent(name="bot", model=model, tools=list(tools))
    return Runner(app=App(name="app", root_agent=agent), session_service=service)


async def ask(runner: Runner, content: str | types.Part, **kwargs: Any) -> list[Event]:
    part = types.Part(text=content) if isinstance(content, str) else content
    run = runner.run_async(
        user_id="place",
        session_id="s",
        new_message=types.Content(role="user", parts=[part]),
        run_config=RunConfig(streaming_mode=StreamingMode.SSE, max_llm_calls=5),
        **kwargs,
    )
    async with aclosing(run) as events:
        return [event async for event in events]


async def list_history(service: SessionService) -> list[Event]:
    session = await service.get_session(app_name="app", user_id="place", session_id="s")
    assert session is not None
    return session.events


@pytest.fixture(autouse=True)
async def session(service: SessionService) -> None:
    await service.create_session(app_name="app", user_id="place", session_id="s")


async def test_two_turns_with_a_tool_store_their_events(service: SessionService) -> None:
    model = ScriptedLlm(lines=[call(a=1, b=2), "It is three.", "You are welcome."])
    runner = create_runner(service, model, add)
    seen = [event for text in ("1 + 2?", "Thanks!") for event in await ask(runner, text)]
    events = await list_history(service)
    assert [event for event in events if event.author != "user"] == [event for event in seen if not event.partial]
    assert [text for text in list_texts(events) if text] == ["1 + 2?", "It is three.", "Thanks!", "You are welcome."]
    assert list_call_ids(events) == ["call_1"]
    assert events[1].content is not None
    assert (events[1].content.parts or [])[0].thought_signature == b"\x00signed"
    assert len(model.asked[2]) == 5  # the second request has the whole first turn
    loaded = await service.get_session(app_name="app", user_id="place", session_id="s")
    assert loaded is not None
    assert loaded.state == {"user:sum": 3}


async def test_a_reset_in_the_middle_of_a_run_ends_it_and_nothing_is_stored(
    service: SessionService, database: Database
) -> None:
    async def slow() -> dict[str, bool]:
        """Reset the session during the call."""
        await reset_session(service, "s")
        return {"done": True}

    runner = create_runner(service, ScriptedLlm(lines=[call("slow"), "never said"]), slow)
    with pytest.raises(SessionResetError):
        await ask(runner, "go")
    async with database.read() as connection:
        assert (await connection.execute(sa.select(messages))).all() == []
    runner = create_runner(service, ScriptedLlm(lines=["Hello."]), slow)
    await ask(runner, "anew")
    assert list_texts(await list_history(service)) == ["anew", "Hello."]


async def test_a_failed_run_resumes_without_repeating_the_question(service: SessionService) -> None:
    runner = create_runner(service, ScriptedLlm(lines=[call(a=1, b=2)]), add)
    with pytest.raises(IndexError):
        await ask(runner, "1 + 2?", invocation_id="turn-1")
    model = ScriptedLlm(lines=["It is three."])
    await ask(create_runner(service, model, add), "1 + 2?", invocation_id="turn-1")
    events = await list_history(service)
    assert [text for text in list_texts(events) if text] == ["1 + 2?", "It is three."]
    assert list_call_ids(events) == ["call_1"]
    assert not any(event.error_message for event in events)


async def test_a_confirmation_is_decided_many_messages_later(service: SessionService) -> None:
    guarded = FunctionTool(add, require_confirmation=True)
    await ask(create_runner(service, ScriptedLlm(lines=[call(a=1, b=2)]), guarded), "1 + 2?")
    (request,) = [
        call
        for event in await list_history(service)
        for call in event.get_function_calls()
        if call.name == "adk_request_confirmation"
    ]
    chat = create_runner(service, ScriptedLlm(lines=["ok"] * 25), guarded)
    for n in range(25):
        await ask(chat, f"by the way {n}")
    decision = types.FunctionResponse(id=request.id, name=request.name, response={"confirmed": True})
    events = await ask(
        create_runner(service, ScriptedLlm(lines=["It is three."]), guarded), types.Part(function_response=decision)
    )
    assert [answer.response for event in events for answer in event.get_function_responses()] == [{"sum": 3}]
    assert list_texts(await list_history(service))[-1] == "It is three."


async def test_a_missing_session_is_adks_error(service: SessionService) -> None:
    await service.delete_session(app_name="app", user_id="place", session_id="s")
    with pytest.raises(SessionNotFoundError):
        await ask(create_runner(service, ScriptedLlm(lines=["hi"])), "hi")
