"""Tools of the crash tests, which append each call to a file."""

import json
from pathlib import Path

from google.adk.tools.tool_context import ToolContext

#: File with one JSON line per tool call: session, tool and call id.
TOOL_CALLS_FILE = "tool_calls.jsonl"


def pay(tool_context: ToolContext) -> str:
    """Pay the bill."""
    return _record_call("pay", tool_context)


def ring(tool_context: ToolContext) -> str:
    """Ring the bell."""
    return _record_call("ring", tool_context)


def mail(tool_context: ToolContext) -> str:
    """Mail the letter."""
    return _record_call("mail", tool_context)


def _record_call(tool: str, context: ToolContext) -> str:
    with Path(TOOL_CALLS_FILE).open("a") as file:
        file.write(json.dumps([context.session.id, tool, context.function_call_id]) + "\n")
    return "done"
