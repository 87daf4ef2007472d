"""Answers without a mention: a crash of a silent turn, and messages that begin with a mention of other people."""

from pathlib import Path
from typing import Any

import pytest

from chatrig.models import CallTool
from chatrig.slack import SlackSimulator
from core.tools import stay_silent
from core.tools.tool import to_adk_tool
from core.turns.store import TurnStore
from tests.channels.platforms import list_texts, run_conversation, wait_for_answer
from tests.channels.requests.test_questions import ASKING, create_input_request
from tests.channels.turns.test_reply_end import create_crash
from tests.channels.wiring import wait_until


async def test_a_silent_turn_leaves_no_trace_despite_a_crash_before_its_end(
    simulator: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools = {"tools": [to_adk_tool(stay_silent)]}
    async with run_conversation(simulator, tmp_path, "heard one", CallTool("stay_silent"), core=tools) as chat:
        await chat.open_thread()
        await chat.say("one")
        await wait_for_answer(chat, "heard one")
        await chat.bot.wait_for_turns(1)
        calls = len(simulator.calls)
        with monkeypatch.context() as death:
            death.setattr(TurnStore, "end", create_crash(chat))
            await chat.say("two", mentions_bot=False)
            await wait_until(chat.bot.worker._stopping.is_set)
            await chat.bot.worker.stop(5)
        assert not [call for call in simulator.calls[calls:] if chat.calls["post"] in str(call)]
    async with run_conversation(simulator, tmp_path, "never said", core=tools) as successor:
        rows = await successor.bot.wait_for_turns(2)
        assert (rows[-1].state, rows[-1].text, rows[-1].chunks) == ("done", "", [])
        assert list_texts(chat) == ["heard one"]


async def test_an_open_question_may_be_answered_by_a_mention(simulator: Any, tmp_path: Path) -> None:
    script = create_input_request("Who reviews it?"), "Noted."
    async with run_conversation(simulator, tmp_path, *script, core=ASKING) as chat:
        await chat.open_thread()
        await chat.say("find a reviewer")
        await chat.bot.wait_for_turns(1)
        await chat.say(f"<@{simulator.people['grace'].id}>", mentions_bot=False)
        await chat.bot.wait_for_turns(2)
        assert list_texts(chat)[-1] == "Noted."


async def test_a_direct_message_and_a_reply_to_the_bot_may_begin_with_a_mention(simulator: Any, tmp_path: Path) -> None:
    grace = f"<@{simulator.people['grace'].id}>"
    async with run_conversation(simulator, tmp_path, lambda _: "heard") as chat:
        await simulator.post_message("ada", simulator.open_dm("ada"), f"{grace} is who?")
        await chat.bot.wait_for_turns(1)
        if not isinstance(simulator, SlackSimulator):
            await chat.say("one")
            await wait_for_answer(chat, "heard")
            (answer,) = chat.list_replies()
            await simulator.post_message("ada", "general", f"{grace} says no", reply_to=answer)
            await wait_for_answer(chat, "heard", "heard")
