"""Notifications of Discord users by posts, and at the end of long replies."""

import asyncio
from pathlib import Path

import pytest

from channels.i18n import messages as words
from chatrig.discord import DiscordSimulator
from chatrig.models import Pause, Say
from tests.channels.discord.conftest import POST, run_bot, wait_until
from tests.channels.wiring import echo

#: Discord's flag of a message without notifications.
SILENT = 1 << 12


@pytest.mark.parametrize("is_silent", [False, True])
async def test_posts_are_silent_if_so_configured(server: DiscordSimulator, tmp_path: Path, is_silent: bool) -> None:
    async with run_bot(server, tmp_path, echo, silent=is_silent) as bot:
        (answer,) = await bot.wait_for_replies(
            await bot.mention_bot("ada", "general", "one"), "heard: Ada Lovelace: one"
        )
        assert bool(answer.flags & SILENT) == is_silent
        assert answer.pings == frozenset()


async def test_the_author_is_notified_once_of_the_end_of_a_long_reply(server: DiscordSimulator, tmp_path: Path) -> None:
    go_on = asyncio.Event()
    async with run_bot(
        server, tmp_path, [Say("half, "), Pause(go_on), Say("and half.")], "at once", ping_after=3
    ) as bot:
        question = await bot.mention_bot("ada", "general", "one")
        await bot.wait_for_replies(question, "half,")
        await asyncio.sleep(3)
        go_on.set()
        ping = await server.wait_for(lambda: [m for m in bot.list_bot_messages("general") if m.pings])
        assert [(m.text, m.reply_to, m.pings) for m in ping] == [
            (words.ANSWER_READY, question, frozenset({server.people["ada"].id}))
        ]
        assert bot.list_texts(question)[0] == "half, and half."
        quick = await bot.mention_bot("ada", "general", "two")
        await bot.wait_for_replies(quick, "at once")
        await bot.wait_for_turns(2)
        assert len([m for m in bot.list_bot_messages("general") if m.pings]) == 1


async def test_in_a_new_thread_the_author_is_notified_by_a_mention(server: DiscordSimulator, tmp_path: Path) -> None:
    go_on = asyncio.Event()
    script = [Say("half, "), Pause(go_on), Say("and half.")]
    async with run_bot(server, tmp_path, script, ping_after=0.2, auto_thread=True) as bot:
        question = await bot.mention_bot("ada", "general", "one")
        await server.wait_for(lambda: question.thread and bot.list_bot_messages(question.thread))
        assert question.thread is not None
        await asyncio.sleep(0.2)
        go_on.set()
        await server.wait_for(lambda: len(bot.list_bot_messages(question.thread or "")) == 2)
        answer, ping = bot.list_bot_messages(question.thread)
        assert (answer.text, ping.text) == ("half, and half.", f"@Ada Lovelace {words.ANSWER_READY}")
        assert ping.pings == {server.people["ada"].id}


async def test_the_author_of_a_command_is_notified_by_a_mention(server: DiscordSimulator, tmp_path: Path) -> None:
    go_on = asyncio.Event()
    script = [Say("half, "), Pause(go_on), Say("and half.")]
    async with run_bot(server, tmp_path, lambda _: script, ping_after=0.2, sessions="user") as bot:
        for asker in ("ada", "grace"):
            (response,) = await server.run_command(asker, "general", "ask", question="why?")
            await bot.wait_for_replies(response, "half,")
        await asyncio.sleep(0.2)
        go_on.set()
        await server.wait_for(lambda: len([m for m in bot.list_bot_messages("general") if m.pings]) == 2)
        pings = [m for m in bot.list_bot_messages("general") if m.pings]
        assert {(ping.text, ping.pings) for ping in pings} == {
            (f"@{name} {words.ANSWER_READY}", frozenset({server.people[asker].id}))
            for asker, name in (("ada", "Ada Lovelace"), ("grace", "Grace Hopper"))
        }


async def test_a_notification_that_fails_is_dropped(
    server: DiscordSimulator, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    go_on = asyncio.Event()
    async with run_bot(server, tmp_path, [Say("half, "), Pause(go_on), Say("and half.")], ping_after=0.2) as bot:
        question = await bot.mention_bot("ada", "general", "one")
        await bot.wait_for_replies(question, "half,")
        await asyncio.sleep(0.2)
        server.faults.fail(POST, status=403, code=50013)
        go_on.set()
        await wait_until(lambda: "the author cannot be notified of the reply: ping: 50013" in caplog.text)
        (row,) = await bot.wait_for_turns(1)
        assert (row.state, bot.list_texts(question)) == ("done", ["half, and half."])
