"""Built-in tool that leaves a message without an answer."""

from typing import Any

from google.adk.tools.tool_context import ToolContext

from core.messages.identity import ADDRESSED_STATE_KEY


async def stay_silent(tool_context: ToolContext) -> dict[str, Any]:
    """Give no answer, because the newest message is meant for other people and needs nothing from you."""
    if tool_context.state.get(ADDRESSED_STATE_KEY, True):
        return {"error": "this message is addressed to you: answer it"}
    tool_context.actions.skip_summarization = True
    return {}
