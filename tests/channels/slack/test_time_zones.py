"""Time zone of a message's author: in the prompt, and as the default of `current_time`."""

import asyncio
import json
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from channels.i18n import messages as words
from chatrig.models import CallTool, Pause, Say
from chatrig.slack import SlackMessage, SlackSimulator
from core.sessions.prompt_text import LOCAL_TIME_PREFIX
from core.tools import current_time
from core.tools.tool import to_adk_tool
from tests.channels.platforms import run_conversation, wait_for_answer
from tests.channels.slack.conftest import WiredSlackBot, run_bot
from tests.fixtures.buttons import wait_for_button

CLOCK = {"tools": [to_adk_tool(current_time)]}


def describe(message: SlackMessage, zone: str) -> str:
    """Return the line with the local time of a message."""
    time = datetime.fromtimestamp(float(message.ts), ZoneInfo(zone))
    return f"{LOCAL_TIME_PREFIX}{time:%A}, {time.isoformat(timespec='minutes')}, {zone}⟧"


def list_prompts(bot: WiredSlackBot) -> list[str]:
    """Return the user messages of the newest model request."""
    return [message["content"] for message in bot.model.requests[-1]["messages"] if message["role"] == "user"]


def tool_result(bot: Any) -> dict[str, str]:
    result: dict[str, str] = json.loads(bot.model.requests[-1]["messages"][-1]["content"])
    return result


async def test_the_local_time_of_the_author_precedes_each_message(slack: SlackSimulator, tmp_path: Path) -> None:
    slack.add_user("minsu", time_zone="Asia/Seoul")
    slack.add_user("jo", time_zone="America/New_York")
    async with run_bot(slack, tmp_path, "Yes.", "No.", "Well.") as bot:
        first = await bot.mention_bot("minsu", "general", "what time is it for me?")
        await bot.wait_for_turns(1)
        second = await bot.mention_bot("jo", "general", "and for me?", thread_ts=first.ts)
        await bot.wait_for_turns(2)
        assert list_prompts(bot) == [
            f"{describe(first, 'Asia/Seoul')}\n\nminsu: what time is it for me?",
            f"{describe(second, 'America/New_York')}\n\njo: and for me?",
        ]
        alone = await slack.post_message("minsu", slack.open_dm("minsu"), "what time is it for me?")
        await bot.wait_for_turns(3)
        assert list_prompts(bot) == [f"{describe(alone, 'Asia/Seoul')}\n\nwhat time is it for me?"]
        systems = {request["messages"][0]["content"] for request in bot.model.requests}
        assert len(systems) == 1


async def test_a_turn_of_several_authors_has_the_time_of_the_newest(slack: SlackSimulator, tmp_path: Path) -> None:
    slack.add_user("minsu", time_zone="Asia/Seoul")
    slack.add_user("jo", time_zone="America/New_York")
    go_on = asyncio.Event()
    script = [[Pause(go_on), Say("one")], CallTool("current_time"), "two"]
    async with run_bot(slack, tmp_path, *script, core=CLOCK) as bot:
        first = await bot.mention_bot("ada", "general", "one")
        await slack.wait_for(lambda: len(bot.list_thread(first)) == 2)
        for user in ("minsu", "jo"):
            last = await bot.mention_bot(user, "general", "two", thread_ts=first.ts)
        await slack.wait_for(lambda: last.reactions)
        go_on.set()
        await bot.wait_for_turns(2)
        assert list_prompts(bot)[-1] == f"minsu: two\n\n{describe(last, 'America/New_York')}\n\njo: two"
        assert tool_result(bot)["timezone"] == "America/New_York"


@pytest.mark.parametrize(("zone", "found"), [("Asia/Seoul", "Asia/Seoul"), ("Mars/Olympus", "UTC"), ("", "UTC")])
async def test_the_current_time_is_in_the_zone_of_the_author(
    slack: SlackSimulator, tmp_path: Path, zone: str, found: str
) -> None:
    slack.add_user("minsu", time_zone=zone)
    async with run_bot(slack, tmp_path, CallTool("current_time"), "Late.", core=CLOCK) as bot:
        await bot.mention_bot("minsu", "general", "what time is it?")
        await bot.wait_for_turns(1)
        assert tool_result(bot)["timezone"] == found
        assert (LOCAL_TIME_PREFIX in list_prompts(bot)[0]) is (found == zone)


async def test_a_regenerated_answer_has_the_same_prompt(slack: SlackSimulator, tmp_path: Path) -> None:
    slack.add_user("minsu", time_zone="Asia/Seoul")
    async with run_bot(slack, tmp_path, "One.", CallTool("current_time"), "Two.", core=CLOCK) as bot:
        question = await bot.mention_bot("minsu", "general", "what time is it?")
        await bot.wait_for_turns(1)
        before = list_prompts(bot)
        message, action = await wait_for_button(slack, words.REGENERATE, lambda: bot.list_thread(question)[1:])
        assert await slack.click_button("minsu", message, action)
        await bot.wait_for_turns(2)
        assert list_prompts(bot) == before
        assert tool_result(bot)["timezone"] == "Asia/Seoul"


async def test_the_time_is_in_utc_on_discord_and_for_a_user_in_utc(simulator: Any, tmp_path: Path) -> None:
    async with run_conversation(simulator, tmp_path, CallTool("current_time"), "Late.", core=CLOCK) as chat:
        await chat.say("what time is it?")
        await wait_for_answer(chat, "Late.")
        assert tool_result(chat.bot)["timezone"] in ("UTC", "Etc/UTC")
        assert LOCAL_TIME_PREFIX not in str(chat.bot.model.requests[-1])
