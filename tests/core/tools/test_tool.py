"""Declaration, lookup and execution of tools."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from google.adk.tools.base_tool import BaseTool
from google.adk.tools.function_tool import FunctionTool
from google.adk.tools.tool_context import ToolContext
from google.genai import types

from core.errors import ToolError
from core.models.provider import Done, ToolCall, ToolResult
from core.tools.tool import (
    Tool,
    ToolHandler,
    current_time,
    idempotent,
    is_idempotent,
    load_tools,
    to_adk_tool,
)
from tests.fixtures.conversation import Converse, ScriptedProvider


def add(a: int, b: int = 2) -> int:
    """Add two numbers."""
    return a + b


async def call_tool(converse: Converse, tool: Tool | BaseTool | Callable[..., Any], **arguments: Any) -> dict[str, Any]:
    """Return the result that the model receives for a call of `tool`."""
    name = to_adk_tool(tool).name
    provider = ScriptedProvider([ToolCall("c1", name, arguments), Done()], "ok")
    await (await converse(provider, tools=[tool])).reply("Go.")
    [result] = provider.requests[1].messages[-1].parts
    assert isinstance(result, ToolResult)
    return dict(result.result)


def test_other_objects_are_no_tools() -> None:
    with pytest.raises(ToolError, match="neither a tool nor a function"):
        to_adk_tool("add")  # type: ignore[arg-type] # a wrong setting


async def answer_async(arguments: dict[str, Any]) -> dict[str, Any]:
    return {"got": arguments}


class CallableHandler:
    """Tool handler that is an object with an async `__call__`."""

    async def __call__(self, arguments: dict[str, Any]) -> dict[str, Any]:
        return {"got": arguments}


@pytest.mark.parametrize(
    "handler",
    [
        answer_async,
        partial(answer_async),
        CallableHandler(),
        lambda arguments: {"got": arguments},
        lambda arguments: answer_async(dict(arguments)),
    ],
    ids=["async function", "partial", "async object", "function", "function that gives a coroutine"],
)
async def test_a_handler_may_be_a_function_of_any_kind(converse: Converse, handler: ToolHandler) -> None:
    assert await call_tool(converse, Tool("t", "T.", handler), a=1) == {"got": {"a": 1}}


@pytest.mark.parametrize("answer", ["text", 7, None, ["a", "b"]])
async def test_a_result_that_is_no_object_becomes_one(converse: Converse, answer: object) -> None:
    assert await call_tool(converse, Tool("t", "T.", lambda _arguments: answer)) == {"result": answer}


def exit_process(code: int = 3) -> None:
    """End the process."""
    raise SystemExit(code)


async def exit_on_loop() -> None:
    """End the process, on the event loop."""
    raise SystemExit(3)


async def interrupt(_arguments: object) -> None:
    raise KeyboardInterrupt


class CustomExit(BaseException):
    pass


class ExitingTool(BaseTool):
    def _get_declaration(self) -> types.FunctionDeclaration:
        return types.FunctionDeclaration(name=self.name, description=self.description)

    async def run_async(self, *, args: dict[str, Any], tool_context: ToolContext) -> Any:
        raise CustomExit("of")


@pytest.mark.parametrize(
    ("tool", "error"),
    [
        (exit_process, "exit_process failed: SystemExit: 3"),
        (exit_on_loop, "exit_on_loop failed: SystemExit: 3"),
        (Tool("stop", "Stops.", interrupt), "stop failed: KeyboardInterrupt: "),
        (Tool("exit", "Exits.", lambda _arguments: exit_process(4)), "exit failed: SystemExit: 4"),
        (ExitingTool(name="rude", description="Is rude."), "rude failed: CustomExit: of"),
    ],
    ids=["function", "async function", "async tool", "tool", "ADK's"],
)
async def test_a_tool_that_would_end_the_process_has_failed(
    converse: Converse, tool: Tool | BaseTool | Callable[..., Any], error: str
) -> None:
    assert await call_tool(converse, tool) == {"error": error}


def test_idempotent_tools_are_marked() -> None:
    def look() -> None:
        """Do nothing."""

    tool = Tool("look", "Looks.", str)
    assert [is_idempotent(to_adk_tool(each)) for each in (look, tool, FunctionTool(look))] == [False] * 3
    assert is_idempotent(to_adk_tool(replace(tool, idempotent=True)))
    assert is_idempotent(idempotent(FunctionTool(look)))
    assert not is_idempotent(FunctionTool(look))
    assert is_idempotent(to_adk_tool(idempotent(look)))
    assert is_idempotent(FunctionTool(look))


def test_tools_are_found_by_module_and_name() -> None:
    tools = load_tools(["core.tools:current_time", f"{__name__}:add"])
    assert [tool.name for tool in tools] == ["current_time", "add"]
    assert load_tools([]) == []


@pytest.mark.parametrize(
    "name", ["core.tools.tool:nothing", "no.such.module:x", "core.tools", ":x", "", "core.tools:", "."]
)
def test_a_tool_that_cannot_be_found_is_named(name: str) -> None:
    with pytest.raises(ToolError) as raised:
        load_tools([name])
    assert str(raised.value).startswith(name or "an empty name")


def test_a_module_that_fails_at_import_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken_tools.py").write_text("tool = 1 / 0")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ToolError, match="broken_tools:tool: broken_tools raises ZeroDivisionError"):
        load_tools(["broken_tools:tool"])


async def test_the_time_is_given_in_any_zone(converse: Converse) -> None:
    result = await call_tool(converse, current_time, timezone="Asia/Seoul")
    assert result["time"].endswith("+09:00")
    assert result["weekday"].endswith("day")


@pytest.mark.parametrize("arguments", [{}, {"timezone": ""}, {"timezone": None}])
async def test_without_a_zone_the_time_is_in_utc(converse: Converse, arguments: dict[str, Any]) -> None:
    assert (await call_tool(converse, current_time, **arguments))["time"].endswith("+00:00")


@pytest.mark.parametrize("zone", ["Mars/Olympus", "../../etc/passwd", "\0", "Europe"])
async def test_an_unknown_zone_is_an_error_with_the_time_in_utc(converse: Converse, zone: str) -> None:
    result = await call_tool(converse, current_time, timezone=zone)
    assert "no such time zone" in result["error"]
    assert result["utc"].endswith("+00:00")
