"""Agent of the dumps: its tools need approvals, ask questions, make files and keep memories."""

from pathlib import Path

from google.adk.agents import LlmAgent
from google.adk.tools import FunctionTool, ToolContext
from google.adk.tools.get_user_choice_tool import get_user_choice_tool
from google.genai import types

#: File in the bot's folder with a line for each call of a tool that needs an approval.
CALLS_FILE = Path("calls.txt")


def order(count: int) -> str:
    """Order shirts."""
    return _record(f"ordered {count}")


def refund(count: int) -> str:
    """Refund shirts."""
    return _record(f"refunded {count}")


async def print_ticket(tool_context: ToolContext) -> str:
    """Give the people a ticket as a file, and remember the conversation."""
    await tool_context.save_artifact("ticket.txt", types.Part.from_bytes(data=b"Ticket 7", mime_type="text/plain"))
    await tool_context.add_session_to_memory()
    return "printed"


def _record(call: str) -> str:
    with CALLS_FILE.open("a") as file:
        file.write(f"{call}\n")
    return call


root_agent = LlmAgent(
    name="kiosk",
    instruction="You sell shirts.",
    tools=[
        FunctionTool(order, require_confirmation=True),
        FunctionTool(refund, require_confirmation=True),
        print_ticket,
        get_user_choice_tool,
    ],
)
