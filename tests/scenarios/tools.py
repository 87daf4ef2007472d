"""Tools of the scenarios, which the setting `TOOLS` names."""

import asyncio
from typing import Any

from google.adk.tools import request_input
from google.adk.tools.function_tool import FunctionTool
from google.adk.tools.get_user_choice_tool import get_user_choice_tool
from google.adk.tools.tool_context import ToolContext
from google.genai import types

__all__ = ["get_user_choice_tool", "request_input"]

PNG = b"\x89PNG\r\n\x1a\n" + b"pixels" * 340

#: The rooms that `book` has booked.
booked_rooms: list[str] = []

#: The payees of all calls of `pay` and `transfer`, in order.
paid: list[str] = []


def book(room: str) -> str:
    """Book a room."""
    booked_rooms.append(room)
    return f"{room} is booked"


def pay(to: str) -> str:
    """Pay somebody."""
    paid.append(to)
    return f"{to} is paid"


async def transfer(to: str) -> None:
    """Pay somebody, in a call that does not end."""
    paid.append(to)
    await asyncio.Event().wait()


class Gate:
    """Signal of a call of `look_up` to the test, and of the test to the call."""

    def __init__(self) -> None:
        self.is_called = asyncio.Event()
        self.may_return = asyncio.Event()


#: The gate of `look_up`; each test sets its own.
gate = Gate()


async def look_up(topic: str) -> str:
    """Look something up, once the test allows it."""
    gate.is_called.set()
    await gate.may_return.wait()
    return f"{topic} is known"


confirmed_pay = FunctionTool(pay, require_confirmation=True)
confirmed_transfer = FunctionTool(transfer, require_confirmation=True)


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
