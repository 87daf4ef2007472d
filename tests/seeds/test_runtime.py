"""Seeds: text of a streaming run, and correction of an unknown agent's name."""

import asyncio
from contextlib import aclosing

import pytest

from core.agents.events import StreamEvent
from core.errors import ProviderRateLimitError
from core.models.provider import Done, ProviderEvent, Text, ToolCall
from core.tools.tool import Tool
from core.usage.meter import Usage
from tests.fixtures.conversation import Converse, ScriptedProvider, create_team_app

CORRECTION = (
    '[System: Agent "ghost" does not exist. Valid agents: billing, research. '
    "Please retry using one of the valid agent names listed above.]"
)


def create_transfer(name: str) -> list[ProviderEvent]:
    return [ToolCall("c1", "transfer_to_agent", {"agent_name": name}), Done()]


async def test_streaming_mode_collects_from_partial_events_only(converse: Converse) -> None:
    """Streaming mode collects from partial events only."""
    conversation = await converse(ScriptedProvider([Text("Hello "), Text("world"), Done()]))
    assert await conversation.reply_once("Hi", streaming=True) == "Hello world"


async def test_non_streaming_mode_collects_from_final_event(converse: Converse) -> None:
    """Non-streaming mode collects from final event."""
    conversation = await converse(ScriptedProvider([Text("Hello "), Text("world"), Done()]))
    assert await conversation.reply_once("Hi", streaming=False) == "Hello world"


@pytest.mark.parametrize(
    "invented",
    [create_transfer("ghost"), [ValueError("failed to find agent: ghost")]],
    ids=["as ADK for Python says it", "as ADK for Go says it"],
)
async def test_hallucinated_agent_name_triggers_retry(converse: Converse, invented: list[ProviderEvent]) -> None:
    """Hallucinated agent name triggers retry."""
    provider = ScriptedProvider(invented, "Here I am.")
    conversation = await converse(app=create_team_app(provider, "billing", "research", has_guard=False))
    await conversation.reply("Where is my bill?")
    first, second = provider.requests
    assert first.messages[-1].text == "Where is my bill?"
    assert second.messages[-1].text == CORRECTION


async def test_retry_succeeds(converse: Converse) -> None:
    """Retry succeeds."""
    provider = ScriptedProvider(create_transfer("ghost"), create_transfer("billing"), "It is in the post.")
    conversation = await converse(app=create_team_app(provider, "billing", "research", has_guard=False))
    assert await conversation.reply("Where is my bill?") == "It is in the post."


async def test_retry_also_fails(converse: Converse) -> None:
    """Retry also fails."""
    provider = ScriptedProvider(create_transfer("ghost"), create_transfer("phantom"), "never asked for")
    conversation = await converse(app=create_team_app(provider, "billing", "research", has_guard=False))
    with pytest.raises(ValueError, match="'phantom' not found") as raised:
        await conversation.reply("Where is my bill?")
    assert "'ghost' not found" in str(raised.value.__cause__)
    assert len(provider.requests) == 2


async def test_non_hallucination_error_is_not_retried(converse: Converse) -> None:
    """Non-hallucination error is not retried."""
    error = ProviderRateLimitError("busy")
    provider = ScriptedProvider([error], "never asked for")
    conversation = await converse(app=create_team_app(provider, "billing", "research", has_guard=False))
    with pytest.raises(ProviderRateLimitError) as raised:
        await conversation.reply("Where is my bill?")
    assert raised.value is error
    assert len(provider.requests) == 1


async def test_no_sub_agents_means_no_retry(converse: Converse) -> None:
    """No sub-agents means no retry."""
    error = ValueError("failed to find agent: ghost")
    provider = ScriptedProvider([error], "never asked for")
    conversation = await converse(provider)
    with pytest.raises(ValueError, match="failed to find agent: ghost") as raised:
        await conversation.reply("Where is my bill?")
    assert raised.value is error
    assert len(provider.requests) == 1


async def test_text_response_streaming(converse: Converse) -> None:
    """Text response streaming."""
    usage = Usage(input=1, output=2)
    conversation = await converse(ScriptedProvider([Text("Hello "), Text("world"), Done(usage=usage)]))
    assert await conversation.events("Hi") == [
        StreamEvent("text_delta", text="Hello "),
        StreamEvent("text_delta", text="world"),
        StreamEvent("done", text="Hello world", usage=usage),
    ]


async def test_tool_call_in_response(converse: Converse) -> None:
    """Tool call in response."""
    may_end = asyncio.Event()

    async def run(arguments: dict[str, str]) -> dict[str, str]:
        await may_end.wait()
        return {"output": f"{arguments['cmd']} ran"}

    provider = ScriptedProvider([ToolCall("c1", "exec", {"cmd": "ls"}), Done()], "It ran.")
    conversation = await converse(provider, tools=[Tool("exec", "Runs a command.", run)])
    async with asyncio.timeout(30), aclosing(conversation.stream("Run ls.")) as events:
        assert await anext(events) == StreamEvent("tool_start", tool="exec", call_id="c1", data={"cmd": "ls"})
        may_end.set()
        assert await anext(events) == StreamEvent("tool_end", tool="exec", call_id="c1", data={"output": "ls ran"})


async def test_error_handling(converse: Converse) -> None:
    """Error handling."""

    def run(_arguments: object) -> None:
        raise OSError("the disk is full")

    broken = ProviderRateLimitError("busy")
    provider = ScriptedProvider([ToolCall("c1", "exec", {}), Done()], [broken])
    conversation = await converse(provider, tools=[Tool("exec", "Runs a command.", run)])
    of_tool, of_run = [event for event in await conversation.events("Go.") if event.type == "error"]
    assert (of_tool.tool, of_tool.call_id) == ("exec", "c1")
    assert "the disk is full" in str(of_tool.error)
    assert of_run.error is broken
