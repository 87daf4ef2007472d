"""Several agents of one bot, on both platforms."""

import json
from functools import partial
from pathlib import Path
from typing import Any

from channels.i18n import messages as words
from chatrig.models import CallTool, ReceivedRequest, Say, ScriptedResponse
from tests.acceptance.conftest import StartBot
from tests.acceptance.platforms import Platform

FILE = """
default = "desk"
[agents.desk]
instruction = "You are the desk."
[agents.weather]
agent = "sky"
description = "Knows the weather."
choose = true
[agents.payroll]
instruction = "You are payroll."
"""

SKY = """
from google.adk.agents import LlmAgent

async def look_out(tool_context) -> str:
    tool_context.state["app:looked"] = True
    return "It rains."

root_agent = LlmAgent(name="sky", instruction="You are the sky.", tools=[look_out])
"""


def answer(request: ReceivedRequest) -> ScriptedResponse:
    """Answer with the agent's name, and with the other agents' names in its history.

    The agent "the sky" first calls its tool.
    """
    history = json.dumps(request.body["messages"])
    agent = next(name for name in ("the desk", "the sky", "payroll") if f"You are {name}." in history)
    if agent == "the sky" and not request.tool_results:
        return CallTool("look_out", {}, id=f"c{len(history)}")
    other_agents = [other for other in ("the desk", "the sky", "payroll") if f"I am {other}" in history]
    return Say(f"I am {agent}, and heard {', '.join(other_agents) or 'nobody'}.")


async def test_people_choose_an_agent_and_a_workspace_has_its_own_default(start: StartBot, tmp_path: Path) -> None:
    (tmp_path / "sky").mkdir()
    (tmp_path / "sky" / "agent.py").write_text(SKY)
    (tmp_path / "agents.toml").write_text(FILE)
    bot = await start()
    bot.answer = answer

    async def scenario(platform: Platform) -> None:
        say = words.ENGLISH
        conversation = platform.start_conversation()
        await bot.ask(platform, conversation, "Who is it?", "I am the desk, and heard nobody.")
        await conversation.say("agent")
        reply = await bot.wait_for_reply(platform, conversation, lambda text: "`desk`" in text)
        assert "`weather`: Knows the weather." in reply.text
        assert "payroll" not in reply.text
        await bot.ask(platform, conversation, "agent weather", say(words.AGENT_CHANGED, agent="weather"))
        await bot.ask(platform, conversation, "Who is it?", "I am the sky, and heard the desk.")
        await bot.ask(platform, conversation, "And now?", "I am the sky, and heard the desk, the sky.")
        await conversation.say("info")
        await bot.wait_for_reply(platform, conversation, lambda text: "Agent: `weather`" in text)
        for wrong in ("payroll", "../sky", "nobody"):
            await conversation.say(f"agent {wrong}")
            await bot.wait_for_reply(platform, conversation, partial(is_unknown, wrong))
        await bot.ask(platform, conversation, "agent desk", say(words.AGENT_CHANGED, agent="desk"))
        await bot.ask(platform, conversation, "Who is it?", "I am the desk, and heard the desk, the sky.")
        await conversation.say("export")
        await platform.wait_for(lambda: "## sky (weather), " in get_newest_export(platform))
        assert "## desk, " in get_newest_export(platform)

    await bot.run_on_all_platforms(scenario)
    assert await bot.program.stop() == 0
    places = "".join(f'{place(platform)} = "payroll"\n' for platform in bot.platforms)
    (tmp_path / "agents.toml").write_text(FILE + f"choose = []\n[places]\n{places}")
    await bot.start()

    async def check_default_agent(platform: Platform) -> None:
        await bot.ask(platform, platform.start_conversation(), "Who is it?", "I am payroll, and heard nobody.")

    await bot.run_on_all_platforms(check_default_agent)
    assert await bot.program.stop() == 0
    assert "Traceback" not in bot.program.log


def is_unknown(agent: str, reply: str) -> bool:
    return f"There is no agent `{agent}`" in reply


def get_newest_export(platform: Platform) -> str:
    """Return the text of the newest file that the bot uploaded; "" if there is none."""
    simulator: Any = getattr(platform, "simulator", None)
    if platform.name == "slack":
        files = [
            file.data
            for channel in simulator.channels.values()
            for m in simulator.messages(channel)
            for file in m.files
        ]
    else:
        places = simulator.channels.values()
        files = [file.data for place in places for m in simulator.messages(place) for file in m.content.attachments]
    return files[-1].decode() if files else ""


def place(platform: Platform) -> str:
    """Return the id of the Slack workspace or of the Discord server."""
    simulator = getattr(platform, "simulator", None)
    return str(simulator.team_id if platform.name == "slack" else simulator.guild_id)  # type: ignore[union-attr]
