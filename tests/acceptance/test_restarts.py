"""Shutdowns, kills and restarts of the bot, on both platforms at the same time."""

import asyncio
import signal
import sqlite3
from collections.abc import Mapping
from pathlib import Path

import pytest

from channels.i18n import messages as words
from chatrig.models import (
    CallTool,
    Fail,
    Finish,
    Pause,
    RawChunk,
    ReceivedRequest,
    Say,
    ScriptedAnthropic,
    ScriptedGemini,
    ScriptedResponse,
)
from core.errors import UnreadableRowError
from tests.acceptance.conftest import AcceptanceBot, StartBot
from tests.acceptance.platforms import BotConversation, Platform


def start_conversations(bot: AcceptanceBot) -> dict[Platform, BotConversation]:
    return {platform: platform.start_conversation() for platform in bot.platforms}


async def begin_answers(bot: AcceptanceBot) -> dict[Platform, BotConversation]:
    """Begin a reply on each platform that does not end within a minute.

    Returns:
        The conversation on each platform.
    """
    bot.answer = lambda _request: [Say("A beginning"), Pause(60.0)]
    conversations = start_conversations(bot)

    async def scenario(platform: Platform) -> None:
        await conversations[platform].say("hi")
        await bot.wait_for_reply(platform, conversations[platform], lambda text: text.startswith("A beginning"))

    await bot.run_on_all_platforms(scenario)
    return conversations


async def check_resumption(bot: AcceptanceBot, conversations: Mapping[Platform, BotConversation]) -> None:
    """Start the bot again, and check that it completes each reply as the same message.

    The new model request must contain the question alone.
    """

    async def check_reply(platform: Platform) -> None:
        await bot.wait_for_reply(platform, conversations[platform], lambda text: text == "All of it.")
        assert len(conversations[platform].replies()) == 1

    bot.answer = lambda request: "All of it." if len(request.messages) == 1 else f"What? {request.messages}"
    await bot.start()
    await bot.run_on_all_platforms(check_reply)


async def test_a_hanging_tool_blocks_neither_other_turns_nor_shutdown(start: StartBot, tmp_path: Path) -> None:
    source = """
import time
from core.tools import Tool
def function() -> str:
    "Never returns."
    time.sleep(3600)
handler = Tool("handler", "Never returns.", lambda _arguments: time.sleep(3600))
"""
    (tmp_path / "endless.py").write_text(source)
    bot = await start(TOOLS="endless:function,endless:handler", SHUTDOWN_TIMEOUT_SECONDS="1")
    bot.answer = lambda request: [CallTool("function"), CallTool("handler")] if "go" in request.text else "Here."
    conversations = start_conversations(bot)

    async def scenario(platform: Platform) -> None:
        await conversations[platform].say("go")
        await bot.wait_for_reply(platform, conversations[platform], lambda text: text.strip("_").startswith("Using"))
        await bot.ask(platform, platform.start_conversation(), "still there?", "Here.")

    await bot.run_on_all_platforms(scenario)
    assert await bot.program.stop(signal.SIGTERM, within=60) == 0
    for conversation in conversations.values():
        assert [reply.text for reply in conversation.replies()] == [words.RESTARTING]


async def test_a_second_ctrl_c_exits_at_once_and_loses_nothing(start: StartBot) -> None:
    bot = await start()
    conversations = await begin_answers(bot)
    ending = asyncio.create_task(bot.program.stop(signal.SIGINT))
    await bot.wait_until_disconnected()
    await bot.program.stop(signal.SIGINT, within=5)
    await ending

    await check_resumption(bot, conversations)


async def test_a_turn_that_kills_every_process_ends_in_one_apology_with_a_retry(
    start: StartBot,
) -> None:
    bot = await start(TURN_MAX_ATTEMPTS="2")
    bot.answer = lambda _request: [Say("Beginning"), Pause(60.0)]
    conversations = start_conversations(bot)
    for conversation in conversations.values():
        await conversation.say("first")
    for _ in range(2):
        version_counts = {
            platform: sum(len(reply.versions) for reply in conversations[platform].replies())
            for platform in conversations
        }

        async def wait_for_growth(platform: Platform, counts: Mapping[Platform, int] = version_counts) -> None:
            await platform.wait_for(
                lambda: sum(len(r.versions) for r in conversations[platform].replies()) > counts[platform]
            )
            await bot.wait_for_reply(platform, conversations[platform], lambda text: text.startswith("Beginning"))

        await bot.run_on_all_platforms(wait_for_growth)
        await bot.program.stop(signal.SIGKILL)
        await bot.wait_until_disconnected()
        await bot.start()

    async def retry_turn(platform: Platform) -> None:
        conversation = conversations[platform]
        await bot.wait_for_reply(platform, conversation, lambda text: text.startswith(f"⚠️ {words.TOO_MANY_ATTEMPTS}"))
        await platform.wait_for(lambda: conversation.button_labels() == [words.RETRY])
        await conversation.press(words.RETRY)
        await bot.wait_for_reply(platform, conversation, lambda text: text == "All of it.")
        assert len(conversation.replies()) == 1

    bot.answer = lambda request: "All of it." if len(request.messages) == 1 else f"What? {request.messages}"
    await bot.run_on_all_platforms(retry_turn)


async def test_unreadable_rows_end_in_one_error_message_each_and_block_no_other(
    start: StartBot, tmp_path: Path
) -> None:
    bot = await start(DATA_DIR=str(tmp_path / "data"))
    bot.answer = lambda request: "Here." if "before" in request.text else [Say("Beginning"), Pause(60.0)]
    conversations, others, known = start_conversations(bot), start_conversations(bot), start_conversations(bot)

    async def start_turns(platform: Platform) -> None:
        await bot.ask(platform, conversations[platform], "before", "Here.")
        await bot.ask(platform, known[platform], "before this", "Here.")
        await conversations[platform].say("first")
        await others[platform].say("other")
        for conversation in (conversations[platform], others[platform]):
            await bot.wait_for_reply(platform, conversation, lambda text: text.startswith("Beginning"))
        await conversations[platform].say("waits")
        await platform.wait_for(lambda: conversations[platform].count_reactions() == 1)

    await bot.run_on_all_platforms(start_turns)
    await bot.program.stop(signal.SIGKILL)
    await bot.wait_until_disconnected()
    with sqlite3.connect(tmp_path / "data" / "parley.db") as database:
        condition = "session IN (SELECT session FROM inbox WHERE json_extract(message, '$.text') LIKE '%waits')"
        database.execute(f"UPDATE turns SET attempt = 'many', chunks = '7' WHERE state = 'running' AND {condition}")
        database.execute(f"UPDATE inbox SET message = '{{' WHERE turn IS NULL AND {condition}")
        stored = "session IN (SELECT session FROM messages WHERE content LIKE '%before this%')"
        database.execute(f"UPDATE messages SET event = '{{' WHERE {stored}")

    def count_errors(conversation: BotConversation) -> int:
        return sum(UnreadableRowError.public in reply.text for reply in conversation.replies())

    async def check_answers(platform: Platform) -> None:
        conversation = conversations[platform]
        await bot.wait_for_reply(platform, others[platform], lambda text: text == "All of it.")
        await platform.wait_for(lambda: count_errors(conversation) == 2)  # of the turn, and of the waiting message
        await bot.ask(platform, conversation, "again", "All of it.")
        await known[platform].say("and?")
        await platform.wait_for(lambda: count_errors(known[platform]) == 1)
        assert count_errors(conversation) == 2
        for conversation_ in (conversation, known[platform]):
            await bot.ask(platform, conversation_, "reset", words.RESET_DONE)
            await bot.ask(platform, conversation_, "anew", "All of it.")

    bot.answer = lambda _request: "All of it."
    await bot.start()
    await bot.run_on_all_platforms(check_answers)


async def test_the_next_process_sends_thoughts_back_with_a_result(start: StartBot) -> None:
    bot = await start()
    call = {"index": 0, "id": "c1", "function": {"name": "current_time", "arguments": "{}"}}
    deltas = [{"reasoning_content": "Hm, a "}, {"reasoning_content": "clock."}, {"tool_calls": [call]}]

    def answer(request: ReceivedRequest) -> ScriptedResponse:
        if not request.tool_results:
            return [*(RawChunk({"choices": [{"index": 0, "delta": delta}]}) for delta in deltas), Finish("tool_calls")]
        results.append(is_killed)
        if request.body["messages"][-2].get("reasoning_content") != "Hm, a clock.":
            return Fail(400)
        return [Say("It is "), Pause(60.0)] if not is_killed else "It is late."

    results = list[bool]()
    is_killed = False
    bot.answer = answer
    conversations = start_conversations(bot)

    async def ask(platform: Platform) -> None:
        await conversations[platform].say("what time is it?")
        await bot.wait_for_reply(platform, conversations[platform], lambda text: text.startswith("It is"))

    async def check_answer(platform: Platform) -> None:
        await bot.wait_for_reply(platform, conversations[platform], lambda text: text == "It is late.")

    await bot.run_on_all_platforms(ask)
    await bot.program.stop(signal.SIGKILL)
    await bot.wait_until_disconnected()
    is_killed = True
    await bot.start()
    await bot.run_on_all_platforms(check_answer)
    assert results == [False, False, True, True]  # the next process calls no tool again


@pytest.mark.parametrize(
    ("server", "vendor", "model"),
    [(ScriptedGemini, "GOOGLE", "gemini-test"), (ScriptedAnthropic, "ANTHROPIC", "anthropic/test")],
)
async def test_each_vendor_answers_over_its_own_api(
    start: StartBot, server: type[ScriptedGemini | ScriptedAnthropic], vendor: str, model: str
) -> None:
    def script(request: ReceivedRequest) -> ScriptedResponse:
        call = CallTool("current_time", {"timezone": "Asia/Seoul"}, id="call_1")
        return [Say("It is late.", pieces=3)] if request.tool_results else [Say("Let me look. ", pieces=3), call]

    async with server(script) as scripted:
        address = {f"{vendor}_API_KEY": "sk-test-key", f"{vendor}_BASE_URL": scripted.base_url}
        bot = await start(MODEL=model, **address)

        async def scenario(platform: Platform) -> None:
            await bot.ask(platform, platform.start_conversation(), "what time is it?", "Let me look. \n\nIt is late.")

        await bot.run_on_all_platforms(scenario)
