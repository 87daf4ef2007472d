"""Seeds: tools with Parley's definitions, called by ADK."""

import inspect
from typing import Any

from google.adk.tools.base_tool import BaseTool

from core.models.provider import Done, ToolCall, ToolResult, ToolSpec
from core.tools.tool import Tool, to_adk_tool
from tests.fixtures.conversation import Converse, ScriptedProvider

PARAMETERS = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}


class Calculator:
    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []

    async def add(self, arguments: dict[str, Any]) -> dict[str, int]:
        self.asked.append(arguments)
        return {"sum": arguments["a"] + arguments["b"]}


async def test_execute_legacy_tool(converse: Converse) -> None:
    """Execute Legacy Tool."""
    calculator = Calculator()
    provider = ScriptedProvider([ToolCall("c1", "add", {"a": 1, "b": 2}), Done()], "Three.")
    conversation = await converse(provider, tools=[Tool("add", "Adds.", calculator.add, PARAMETERS)])
    await conversation.reply("1 + 2?")
    assert calculator.asked == [{"a": 1, "b": 2}]


async def test_tool_adapter_creation(converse: Converse) -> None:
    """Tool adapter creation."""
    tool = to_adk_tool(Tool("add", "Adds two numbers.", Calculator().add, PARAMETERS))
    assert isinstance(tool, BaseTool)
    assert (tool.name, tool.description) == ("add", "Adds two numbers.")
    assert inspect.iscoroutinefunction(tool.run_async)

    provider = ScriptedProvider("Hello!")
    await (await converse(provider, tools=[tool])).reply("Hi")
    assert provider.requests[0].tools == [ToolSpec("add", "Adds two numbers.", PARAMETERS)]


async def test_tool_execution_via_adk(converse: Converse) -> None:
    """Tool execution via ADK."""
    calculator = Calculator()
    provider = ScriptedProvider([ToolCall("c1", "add", {"a": 1, "b": 2}), Done()], "Three.")
    conversation = await converse(provider, tools=[Tool("add", "Adds.", calculator.add, PARAMETERS)])
    assert await conversation.reply("1 + 2?") == "Three."
    assert len(calculator.asked) == 1
    [result] = provider.requests[1].messages[-1].parts
    assert result == ToolResult("c1", "add", {"sum": 3})
