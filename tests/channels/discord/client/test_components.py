"""Buttons under Discord replies: acknowledgement, permissions, and restarts."""

from pathlib import Path

import pytest

from channels.i18n import messages as words
from chatrig.discord import DiscordMessage, DiscordSimulator
from chatrig.models import Pause, Say
from core.conversations.service import ConversationService
from core.errors import StoreError
from tests.channels.discord.conftest import CALLBACK, WiredDiscordBot, run_bot, wait_until
from tests.channels.wiring import echo


async def press_button(bot: WiredDiscordBot, user: str, message: DiscordMessage, label: str) -> list[DiscordMessage]:
    return await bot.server.click_button(user, message, message.buttons[label])


async def test_buttons_have_an_emoji_and_a_label(server: DiscordSimulator, bot: WiredDiscordBot) -> None:
    (answer,) = await bot.wait_for_replies(await bot.mention_bot("ada", "general", "one"), "heard: Ada Lovelace: one")
    await server.wait_for(lambda: words.REGENERATE in answer.buttons)
    (row,) = answer.content.components
    assert [(component["label"], component["emoji"]["name"]) for component in row["components"]] == [
        (words.REGENERATE, "🔄")
    ]


async def test_a_press_is_acknowledged_before_it_is_processed(
    server: DiscordSimulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def raise_store_error(self: ConversationService, turn_id: str, author: str) -> None:
        assert bot.list_calls(CALLBACK)[-1].status == 200
        raise StoreError("out of reach")

    async with run_bot(server, tmp_path, [Say("half"), Pause(60)], stop_timeout=0) as bot:
        (answer,) = await bot.wait_for_replies(await bot.mention_bot("ada", "general", "one"), "half")
        await server.wait_for(lambda: words.STOP in answer.buttons)
        monkeypatch.setattr(ConversationService, "stop_turn", raise_store_error)
        responses = await press_button(bot, "ada", answer, words.STOP)
        await server.wait_for(
            lambda: [response.text for response in responses] == [words.ENGLISH.format_error(StoreError.public)]
        )


async def test_a_press_in_a_server_that_is_no_longer_served_is_refused(
    server: DiscordSimulator, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with run_bot(server, tmp_path, echo) as bot:
        (answer,) = await bot.wait_for_replies(
            await bot.mention_bot("ada", "general", "one"), "heard: Ada Lovelace: one"
        )
        await bot.wait_for_turns(1)
    async with run_bot(server, tmp_path, echo, guilds=frozenset({1})) as bot:
        responses = await press_button(bot, "ada", answer, words.REGENERATE)
        await server.wait_for(lambda: [response.text for response in responses] == [words.PLACE_NOT_ALLOWED])
        server.faults.fail("POST /webhooks/{application}/{token}", status=403, code=50013)
        await press_button(bot, "grace", answer, words.REGENERATE)
        await wait_until(lambda: "an interaction cannot be answered: follow-up: 50013" in caplog.text)
