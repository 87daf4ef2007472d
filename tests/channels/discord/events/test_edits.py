"""Edits and deletions of Discord messages before, during and after their turn."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from channels.i18n import messages as words
from chatrig.discord import DiscordSimulator
from chatrig.models import Pause, Say
from core.errors import StoreError
from core.inbox.store import InboxStore
from tests.channels.discord.conftest import WiredDiscordBot, has_ignored_messages, run_bot, wait_until
from tests.channels.wiring import echo


async def test_queued_questions_that_are_deleted_at_once_are_not_answered(
    server: DiscordSimulator, tmp_path: Path
) -> None:
    go_on = asyncio.Event()
    async with run_bot(server, tmp_path, [Pause(go_on), Say("one!")], "two!") as bot:
        first = await bot.mention_bot("ada", "general", "one")
        await server.wait_for(lambda: bot.list_texts(first))
        second, third = [await bot.mention_bot("ada", "general", text) for text in ("two", "three")]
        await server.wait_for(lambda: second.reactions and third.reactions)
        await server.delete_messages([second, third])
        outcomes = [None, "deleted", "deleted"]
        await bot.database.wait_until(bot.list_inbox_messages, lambda rows: [row.outcome for row in rows] == outcomes)
        go_on.set()
        await bot.wait_for_replies(first, "one!")
        assert await bot.list_turns()
        assert len(await bot.wait_for_turns(1)) == 1


async def test_a_turn_in_a_deleted_thread_is_stopped(server: DiscordSimulator, tmp_path: Path) -> None:
    async with run_bot(server, tmp_path, lambda _: [Say("half"), Pause(60)]) as bot:
        thread = await server.start_thread("ada", await server.post_message("ada", "general", "a root"), "a thread")
        await bot.wait_for_last_reply(await bot.mention_bot("ada", thread, "one"), lambda text: text == "half")
        await server.delete_channel(thread)
        await bot.model.wait_for_disconnects()
        place = server.channels["random"]
        await bot.wait_for_last_reply(await bot.mention_bot("ada", place, "two"), lambda text: text == "half")
        await server.delete_channel("random")
        await bot.wait_for_turns(2)
        assert [row.state for row in await bot.list_turns()] == ["failed", "failed"]  # no channel for the last edit


async def test_edits_without_a_change_or_a_known_message_do_nothing(
    server: DiscordSimulator, bot: WiredDiscordBot
) -> None:
    other = await server.post_message("ada", "general", "not for the bot")
    await server.edit_message("ada", other, "still not")
    question = await bot.mention_bot("ada", "general", "one")
    (answer,) = await bot.wait_for_replies(question, "heard: Ada Lovelace: one")
    await bot.wait_for_turns(1)
    await server.pin_message("ada", question)
    await server.unfurl_link(question)
    await server.edit_message("ada", question, f"{bot.mention}  one ")
    await server.delete_message("ada", other)
    assert await has_ignored_messages(bot)
    assert words.ANSWER_EDITED not in answer.buttons


async def test_a_deletion_that_cannot_be_stored_is_logged_and_stored_later(
    server: DiscordSimulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    delete, deleted = InboxStore.delete_message, asyncio.Event()

    async def raise_store_error(self: InboxStore, event_key: str) -> None:
        raise StoreError("out of reach")

    async def delete_and_signal(self: InboxStore, event_key: str) -> Any:
        result = await delete(self, event_key)
        deleted.set()
        return result

    async with run_bot(server, tmp_path, echo) as bot:
        question = await bot.mention_bot("ada", "general", "one")
        await bot.wait_for_replies(question, "heard: Ada Lovelace: one")
        monkeypatch.setattr(InboxStore, "delete_message", raise_store_error)
        await server.delete_message("ada", question)
        await wait_until(lambda: "a message or a change of one is not stored yet" in caplog.text)
        monkeypatch.setattr(InboxStore, "delete_message", delete_and_signal)
        await asyncio.wait_for(deleted.wait(), 30)


async def test_edits_in_other_servers_are_ignored(server: DiscordSimulator, tmp_path: Path) -> None:
    async with run_bot(server, tmp_path, echo, guilds=frozenset({1})) as bot:
        message = await server.post_message("ada", "general", f"{bot.mention} one")
        await server.edit_message("ada", message, f"{bot.mention} two")
        await server.delete_message("ada", message)
        assert await has_ignored_messages(bot)
