"""Built-in tool that searches earlier messages of its conversation."""

from bisect import bisect_left
from typing import Any

from google.adk.tools.tool_context import ToolContext

from core.sessions.codec import fold_text
from core.sessions.service import SessionService
from core.sessions.writer import StoredSession
from core.tools.tool import idempotent

#: Limits of a result: messages, and characters of each.
MAX_RESULTS = 10
_EXCERPT_CHARACTERS = 500


@idempotent
async def search_history(query: str, tool_context: ToolContext) -> dict[str, Any]:
    """Find earlier messages of this conversation, also those that are too old for you to see.

    Args:
        query: words that all stand in the message, in any order.
    """
    context = tool_context._invocation_context
    session, service = context.session, context.session_service  # ADK: no public attribute has them
    if not isinstance(session, StoredSession) or not isinstance(service, SessionService):
        return {"error": "this conversation is not stored"}
    messages = await service.search_messages(session, query.split(), limit=MAX_RESULTS)
    return {
        "found": [
            {"at": message.sent_at, "by": message.role, "text": _excerpt(message.text, query.split())}
            for message in messages
        ]
    }


def _excerpt(text: str, words: list[str]) -> str:
    """Return the part of a text around the first occurrence of the first word."""
    folded_position = fold_text(text).find(fold_text(words[0])) if words else 0
    # Folding changes lengths: ß becomes ss.
    position = bisect_left(range(len(text)), folded_position, key=lambda i: len(fold_text(text[:i])))
    begin = max(position - _EXCERPT_CHARACTERS // 2, 0)
    part = text[begin : begin + _EXCERPT_CHARACTERS]
    return f"{'…' if begin else ''}{part}{'…' if begin + _EXCERPT_CHARACTERS < len(text) else ''}"
