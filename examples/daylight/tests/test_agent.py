"""The agent in a local Slack and Discord with a scripted model: without an account, a key or a network."""

import asyncio
import os

from chatrig.models import CallTool, ReceivedRequest, Say, ScriptedOpenAI, ScriptedResponse


def answer(request: ReceivedRequest) -> ScriptedResponse:
    """Return what the model would: a tool call, then a text with its result."""
    if not request.tool_results:
        return CallTool("get_daylight", {"city": "Seoul", "day": "2026-12-24"}, id="call-1")
    return Say(f"The tool says: {request.tool_results[0].content}")


async def ask(question: str) -> str:
    """Return what the bot's users see on both platforms."""
    async with ScriptedOpenAI(answer) as model:
        settings = {"AGENT": "daylight", "MODEL": "openai/scripted", "OPENAI_BASE_URL": model.base_url}
        process = await asyncio.create_subprocess_exec(
            *("parley", "simulator", "--terminal", "--port", "0"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, **settings},
        )
        output, _ = await process.communicate(f"{question}\n/discord\n{question}\n".encode())
    return output.decode()


def test_the_agent_reads_the_sunrise_from_its_tool() -> None:
    seen = asyncio.run(ask("When does the sun rise in Seoul on Christmas Eve?"))
    assert seen.count("07:44") >= 2
