"""Built-in tool that makes a text file."""

import mimetypes
from typing import Any

from google.adk.tools.tool_context import ToolContext
from google.genai import types

MAX_CHARACTERS = 1_000_000

_MAX_NAME_CHARACTERS = 100


async def make_file(name: str, content: str, tool_context: ToolContext) -> dict[str, Any]:
    """Make a text file, such as a table, a program or a page, and give it to the people in this conversation.

    Args:
        name: the file's name with its ending, such as report.csv.
        content: all that the file holds.
    """
    if not name.strip() or len(name) > _MAX_NAME_CHARACTERS or name.startswith(".") or set(name) & set('/\\:\0\n\r"'):
        return {
            "error": f"the name must be one of a file, without a folder, of at most {_MAX_NAME_CHARACTERS} characters"
        }
    if len(content) > MAX_CHARACTERS:
        return {"error": f"a file holds at most {MAX_CHARACTERS} characters"}
    kind = mimetypes.guess_type(name)[0] or "text/plain"
    file = types.Part.from_bytes(data=content.encode("utf-8", errors="replace"), mime_type=kind)
    version = await tool_context.save_artifact(name, file)
    return {"made": name, "version": version, "characters": len(content)}
