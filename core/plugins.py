"""What Parley adds to every agent that it runs, as ADK plugins."""

import logging
from collections.abc import Mapping
from math import isfinite
from typing import Any

from google.adk.plugins import BasePlugin
from google.adk.tools.base_tool import BaseTool
from google.adk.tools.tool_context import ToolContext
from google.adk.tools.transfer_to_agent_tool import TransferToAgentTool
from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from core.models.messages import clean_text
from core.secrets import redact

log = logging.getLogger(__name__)

#: The most that a tool's error may tell the model, in characters.
ERROR_LIMIT = 500

#: The most of one text in a tool's result that the model is told, in characters: about what a whole history may
#: hold, and less than what would stop the event loop.
RESULT_LIMIT = 100_000


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

    async def after_tool_callback(
        self, *, tool: BaseTool, tool_args: dict[str, Any], tool_context: ToolContext, result: Any
    ) -> Any:
        """Tell the model the result without secrets, and as what can be stored and sent again."""
        told = _told(result)
        return None if told == result else told

    async def on_tool_error_callback(
        self, *, tool: BaseTool, tool_args: dict[str, Any], tool_context: ToolContext, error: BaseException
    ) -> dict[str, Any] | None:
        """Tell the model that the tool failed; without this ADK ends the run."""
        if not isinstance(error, Exception):  # a cancellation comes here too, and goes on whatever we say
            return None
        log.warning("tool %s failed", tool.name, exc_info=error)
        return {"error": redact(f"{tool.name} failed: {type(error).__name__}: {error}")[:ERROR_LIMIT]}


def _told(result: Any) -> Any:
    """A result as JSON has it. Media and other things that ADK has a type for stay as they are."""
    match result:
        case None | bool() | int() | BaseModel():
            return result
        case float():
            return result if isfinite(result) else None
        case str():
            return _short(redact(clean_text(result[: RESULT_LIMIT + 1])), len(result))
        case Mapping():
            return {str(_told(key)): _told(value) for key, value in result.items()}
        case list() | tuple() | set() | frozenset():
            return [_told(item) for item in result]
        case _:
            return _told(to_jsonable_python(result, fallback=str, inf_nan_mode="null", bytes_mode="base64"))


def _short(text: str, length: int) -> str:
    return text if length <= RESULT_LIMIT else f"{text[:RESULT_LIMIT]}… (cut: it has {length} characters)"
