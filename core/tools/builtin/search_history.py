"""A tool that finds what was said earlier in the conversation that it is called in."""

from bisect import bisect_left
from typing import Any

from google.adk.tools.tool_context import ToolContext

from core.sessions.codec import fold_text
from core.sessions.service import SessionService
from core.sessions.writer import StoredSession
from core.tools.tool import idempotent

#: How many messages are found at most, and how much is told of each, in characters.
MAX_RESULTS = 10
_EXCERPT_CHARACTERS = 500


@idempotent
async def search_history(query: str, tool_context: ToolContext) -> dict[str, Any]:
    """Find earlier messages of this conversation, also those that are too old for you to see.

    Args:
        query: words that all stand in the message, in any order.
    """
    context = tool_context._invocation_context
    session, service = context.session, context.session_service  # ADK has no public way to either's own
    if not isinstance(session, StoredSession) or not isinstance(service, SessionService):
        return {"error": "this conversation is not kept"}
    found = await service.search_messages(session, query.split(), limit=MAX_RESULTS)
    return {
        "found": [
            {"at": message.sent_at, "by": message.role, "text": _excerpt(message.text, query.split())}
            for message in found
        ]
    }


def _excerpt(text: str, words: list[str]) -> str:
    """Return the part of a text around the first of the words."""
    found = fold_text(text).find(fold_text(words[0])) if words else 0
    position = bisect_left(range(len(text)), found, key=lambda i: len(fold_text(text[:i])))  # folding: ß is ss
    begin = max(position - _EXCERPT_CHARACTERS // 2, 0)
    part = text[begin : begin + _EXCERPT_CHARACTERS]
    return f"{'…' if begin else ''}{part}{'…' if begin + _EXCERPT_CHARACTERS < len(text) else ''}"
