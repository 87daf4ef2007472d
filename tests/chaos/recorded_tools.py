"""Tools of the crash tests, which append each call to a file."""

import json
from pathlib import Path

from google.adk.tools.tool_context import ToolContext

#: File with one JSON line per tool call: session, tool and call id.
RECORD = "uses.jsonl"


def pay(tool_context: ToolContext) -> str:
    """Pay the bill."""
    return _use("pay", tool_context)


def ring(tool_context: ToolContext) -> str:
    """Ring the bell."""
    return _use("ring", tool_context)


def mail(tool_context: ToolContext) -> str:
    """Mail the letter."""
    return _use("mail", tool_context)


def _use(tool: str, context: ToolContext) -> str:
    with Path(RECORD).open("a") as record:
        record.write(json.dumps([context.session.id, tool, context.function_call_id]) + "\n")
    return "done"
