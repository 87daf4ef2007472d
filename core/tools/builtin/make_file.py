"""Built-in tool that makes a text file."""

import asyncio
import mimetypes
from typing import Any

from google.adk.tools.tool_context import ToolContext
from google.genai import types

from core.messages.identity import to_one_line
from core.models.media import fit_file_name, identify_file

MAX_CHARACTERS = 1_000_000

_MAX_NAME_CHARACTERS = 100

#: Characters of paths and headers.
_FORBIDDEN = frozenset('/\\:\0\n\r"')


async def make_file(name: str, content: str, tool_context: ToolContext) -> dict[str, Any]:
    """Make a text file, such as a table, a program or a page, and give it to the people in this conversation.

    Args:
        name: the file's name with its ending, such as report.csv.
        content: all that the file holds.
    """
    name = name if set(name) & _FORBIDDEN else to_one_line(name)
    if not name or len(name) > _MAX_NAME_CHARACTERS or name.startswith(".") or set(name) & _FORBIDDEN:
        return {
            "error": f"the name must be one of a file, without a folder, of at most {_MAX_NAME_CHARACTERS} characters"
        }
    if len(content) > MAX_CHARACTERS:
        return {"error": f"a file holds at most {MAX_CHARACTERS} characters"}
    data = content.encode("utf-8", errors="replace")
    kind = await asyncio.to_thread(identify_file, data, mimetypes.guess_type(name)[0] or "text/plain")
    if fit_file_name(name, kind) != name:
        return {"error": "a text is no such file, and an SVG image has no scripts: choose another ending, such as .txt"}
    file = types.Part.from_bytes(data=data, mime_type=kind)
    version = await tool_context.save_artifact(name, file)
    return {"made": name, "version": version, "characters": len(content)}
