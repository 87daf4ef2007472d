"""Agents of `examples/`, run unchanged on both platforms."""

from pathlib import Path

import pytest

from chatrig.models import CallTool, ReceivedRequest, Say, ScriptedResponse
from tests.acceptance.conftest import StartBot
from tests.acceptance.platforms import Platform

EXAMPLES = Path(__file__).parents[2] / "examples"


def newsroom(request: ReceivedRequest) -> ScriptedResponse:
    """Model script of the newsroom example.

    The editor transfers to the reporter, the reporter calls its tool and then answers.
    """
    called_tools = [result.name for result in request.tool_results]
    if "transfer_to_agent" in request.tools and "look_up" not in request.tools:
        return CallTool("transfer_to_agent", {"agent_name": "reporter"}, id="t1")
    if "look_up" in called_tools or "Monday" in str(request.body["messages"]):
        return Say("The harbour opens on Monday.")
    return CallTool("look_up", {"topic": "harbour"}, id="l1")


def clock(request: ReceivedRequest) -> ScriptedResponse:
    if not request.tool_results:
        assert "convert_time" in request.tools
        arguments = {"source_timezone": "Asia/Seoul", "time": "12:00", "target_timezone": "UTC"}
        return CallTool("convert_time", arguments, id="c1")
    return Say(f"It is {'3' if 'T03:00:00' in str(request.tool_results[0].content) else '?'} o'clock.")


@pytest.mark.parametrize(
    ("name", "script", "question", "answer"),
    [
        ("newsroom", newsroom, "When does the harbour open?", "The harbour opens on Monday."),
        ("clock", clock, "Noon in Seoul is when in UTC?", "It is 3 o'clock."),
    ],
)
async def test_an_example_answers_on_both_platforms(
    start: StartBot, name: str, script: object, question: str, answer: str
) -> None:
    if name == "clock":
        pytest.importorskip("mcp_server_time")
    bot = await start(AGENT=str(EXAMPLES / name))
    assert callable(script)
    bot.answer = script

    async def scenario(platform: Platform) -> None:
        await bot.ask(platform, platform.start_conversation(), question, answer)

    await bot.run_on_all_platforms(scenario)
    assert await bot.program.stop() == 0
    assert "Traceback" not in bot.program.log


async def test_a_tool_with_confirmation_is_not_called_without_a_decision(start: StartBot) -> None:
    bot = await start(AGENT=str(EXAMPLES / "gatekeeper"))
    asked_for: list[ReceivedRequest] = []

    def script(request: ReceivedRequest) -> ScriptedResponse:
        asked_for.append(request)
        return [Say("I have to ask."), CallTool("open_gate", {"gate": "north"}, id=f"g{len(asked_for)}")]

    bot.answer = script

    async def scenario(platform: Platform) -> None:
        await bot.ask(platform, platform.start_conversation(), "Open the north gate.", "I have to ask.")

    await bot.run_on_all_platforms(scenario)
    assert len(asked_for) == len(bot.platforms)
    assert await bot.program.stop() == 0
