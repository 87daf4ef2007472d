"""Rebuilds the ADK events of `messages` rows from their other columns."""

from __future__ import annotations

import json
from typing import Any

import sqlalchemy as sa
from google.adk.events.event import Event
from google.genai import types

from core.messages.identity import FALLBACK_AUTHOR
from core.sessions.codec import USER_ROLES

_ROLES = {"", "user", "model", "assistant", "tool", "function", "system", "event"}


class EventRebuilder:
    """Builder of ADK events from the role, content and tool calls of `messages` rows.

    It has to get all rows of a conversation, oldest first: a row with an event by `track_calls`, any other by
    `rebuild_event`. A stored tool response without a call id is assigned to the oldest call without a response.

    Args:
        agent: the author of an event if its row has no author; empty for `core.messages.identity.FALLBACK_AUTHOR`.
    """

    def __init__(self, agent: str = "") -> None:
        self._agent = agent or FALLBACK_AUTHOR
        self._unanswered: list[dict[str, str]] = []

    def track_calls(self, row: sa.Row[Any]) -> None:
        """Update the list of calls without a response by the calls and responses of a row."""
        if row.role in ("assistant", "model"):
            self._unanswered = list(row.tool_calls)
        elif row.role in ("tool", "function"):
            del self._unanswered[: max(1, len(row.tool_calls))]
        elif row.role == "user":
            self._unanswered = []

    def rebuild_event(self, row: sa.Row[Any]) -> Event:
        """Return an ADK event from a row's columns; also does what `track_calls` does."""
        event = Event(
            id=f"message-{row.id}",
            timestamp=row.created_at,
            invocation_id=row.invocation_id,
            author=self._get_author(row),
            content=self._build_content(row),
        )
        self.track_calls(row)
        return event

    def _get_author(self, row: sa.Row[Any]) -> str:
        if row.author not in _ROLES:
            return str(row.author)
        return "user" if "user" in (row.author, row.role) else self._agent

    def _build_content(self, row: sa.Row[Any]) -> types.Content | None:
        if row.role in ("tool", "function"):
            return self._build_responses(row)
        calls = [
            types.Part(
                function_call=types.FunctionCall(
                    id=call.get("id"), name=call.get("name"), args=_parse_object(call.get("input"), "input")
                )
            )
            for call in row.tool_calls
            if "output" not in call
        ]
        text = [types.Part(text=row.content)] if row.content else []
        if not text and not calls:
            return None
        return types.Content(role="user" if row.role in USER_ROLES else "model", parts=text + calls)

    def _build_responses(self, row: sa.Row[Any]) -> types.Content | None:
        """Return a row's tool responses; without stored ones, its content answers the oldest open call."""
        answers = [call for call in row.tool_calls if "output" in call]
        if not answers and self._unanswered:
            answers = [{**self._unanswered[0], "output": row.content}]
        if not answers:
            return types.Content(role="user", parts=[types.Part(text=row.content)]) if row.content else None
        parts = [
            types.Part(
                function_response=types.FunctionResponse(
                    id=answer.get("id"), name=answer.get("name"), response=_parse_object(answer["output"], "output")
                )
            )
            for answer in answers
        ]
        return types.Content(role="function", parts=parts)


def _parse_object(text: str | None, key: str) -> dict[str, Any]:
    if not text:
        return {}
    try:
        value = json.loads(text)
    except ValueError:
        return {key: text}
    return value if isinstance(value, dict) else {key: value}
