"""Constructors and readers of ADK events for tests, and the reset of a session."""

from typing import Any

from google.adk.events.event import Event
from google.genai import types

from core.sessions.lifecycle import begin_generation
from core.sessions.service import SessionService


def user_event(text: str, **kwargs: Any) -> Event:
    content = types.Content(role="user", parts=[types.Part(text=text)])
    return Event(author="user", content=content, **kwargs)


def model_event(text: str, **kwargs: Any) -> Event:
    content = types.Content(role="model", parts=[types.Part(text=text)])
    return Event(author="bot", content=content, **kwargs)


def call_event(*ids: str | None, name: str = "t", args: dict[str, Any] | None = None, **kwargs: Any) -> Event:
    calls = [types.FunctionCall(id=id_, name=name, args=args or {}) for id_ in ids]
    parts = [types.Part(function_call=call) for call in calls]
    return Event(author="bot", content=types.Content(role="model", parts=parts), **kwargs)


def response_event(
    *ids: str | None, name: str = "t", response: dict[str, Any] | None = None, author: str = "bot", **kwargs: Any
) -> Event:
    answers = [types.FunctionResponse(id=id_, name=name, response=response or {"result": 1}) for id_ in ids]
    parts = [types.Part(function_response=answer) for answer in answers]
    return Event(author=author, content=types.Content(role="user", parts=parts), **kwargs)


def list_texts(events: list[Event]) -> list[str]:
    return [part.text or "" for event in events if event.content for part in event.content.parts or ()]


def list_call_ids(events: list[Event]) -> list[str | None]:
    return [call.id for event in events for call in event.get_function_calls()]


def list_response_ids(events: list[Event]) -> list[str | None]:
    return [answer.id for event in events for answer in event.get_function_responses()]


async def reset_session(service: SessionService, session_id: str = "s") -> int | None:
    """Reset a session as the inbox does.

    Returns:
        The number of the new generation; None if there is no such session.
    """
    async with service._database.write() as connection:
        return await begin_generation(connection, session_id)
