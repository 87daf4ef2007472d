"""Tools of the scenarios, for the setting `TOOLS`."""

from typing import Any

from google.adk.tools.tool_context import ToolContext
from google.genai import types

PNG = b"\x89PNG\r\n\x1a\n" + b"pixels" * 340

#: The rooms that `book` has booked.
booked_rooms: list[str] = []


def book(room: str) -> str:
    """Book a room."""
    booked_rooms.append(room)
    return f"{room} is booked"


async def plot(title: str, tool_context: ToolContext) -> str:
    """Save a draft and a final curve as one artifact."""
    for data in (b"a draft", PNG):
        part = types.Part.from_bytes(data=data, mime_type="image/png")
        await tool_context.save_artifact("charts/plot.png", part, {"alt": f"A curve: {title}"})
    return "drawn"


def table() -> dict[str, Any]:
    """Return a table with a CSV file."""
    return {"rows": 1, "table.csv": b"a,b\n1,2\n"}


def heavy() -> bytes:
    """Return a PDF file that is too large for the platforms."""
    return b"%PDF-1.7\n" + bytes(11 * 2**20)
