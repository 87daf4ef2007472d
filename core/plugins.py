"""What Parley adds to every agent that it runs, as ADK plugins."""

import logging
from typing import Any

from google.adk.plugins import BasePlugin
from google.adk.tools.base_tool import BaseTool
from google.adk.tools.tool_context import ToolContext
from google.adk.tools.transfer_to_agent_tool import TransferToAgentTool

from core.secrets import redact

log = logging.getLogger(__name__)

#: The most that a tool's error may tell the model, in characters.
ERROR_LIMIT = 500


class GuardPlugin(BasePlugin):
    """Keeps a model's slip or a tool's fault from ending the run: the model is told and goes on."""

    def __init__(self) -> None:
        super().__init__(name="parley_guard")

    async def before_tool_callback(
        self, *, tool: BaseTool, tool_args: dict[str, Any], tool_context: ToolContext
    ) -> dict[str, Any] | None:
        """Answer a transfer to an agent that does not exist with the names of those that do."""
        if not isinstance(tool, TransferToAgentTool):
            return None
        valid = list(tool._agent_names)  # ADK offers these in the tool's declaration alone
        if tool_args.get("agent_name") in valid:
            return None
        wrong, names = tool_args.get("agent_name"), ", ".join(valid)
        return {"error": f"Agent {wrong!r} does not exist. Valid agents: {names}."}

    async def on_tool_error_callback(
        self, *, tool: BaseTool, tool_args: dict[str, Any], tool_context: ToolContext, error: BaseException
    ) -> dict[str, Any] | None:
        """Tell the model that the tool failed; without this ADK ends the run."""
        if not isinstance(error, Exception):  # a cancellation comes here too, and goes on whatever we say
            return None
        log.warning("tool %s failed", tool.name, exc_info=error)
        return {"error": redact(f"{tool.name} failed: {type(error).__name__}: {error}")[:ERROR_LIMIT]}
