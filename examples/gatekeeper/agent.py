"""Agent with a tool that runs only after a user's confirmation.

ADK asks for the confirmation, ends the run, and resumes it after the decision.
"""

from google.adk.agents import LlmAgent
from google.adk.tools.function_tool import FunctionTool

OPENED: list[str] = []


def open_gate(gate: str) -> dict[str, str]:
    """Open a gate.

    Args:
        gate: the name of the gate, such as north.
    """
    OPENED.append(gate)
    return {"opened": gate}


root_agent = LlmAgent(
    name="gatekeeper",
    description="Opens gates, if a person agrees.",
    instruction="Open the gate that is asked for. Say what came of it.",
    tools=[FunctionTool(open_gate, require_confirmation=True)],
)
