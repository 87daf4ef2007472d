"""Typing indicator on Discord while a reply has no text."""

import asyncio
from pathlib import Path

import pytest

from channels.discord.replies import surface
from chatrig.discord import DiscordSimulator
from chatrig.models import Pause, Say
from tests.channels.discord.conftest import POST, run_bot

TYPING = "POST /channels/{channel}/typing"


async def test_the_bot_types_from_the_placeholder_to_the_first_text(
    server: DiscordSimulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(surface, "TYPING_SECONDS", 0.05)
    first, last = asyncio.Event(), asyncio.Event()
    script = [Pause(first), Say("half, "), Pause(last), Say("and half.")]
    async with run_bot(server, tmp_path, script) as bot:

        def count_typing() -> int:
            return [call.route for call in server.calls].count(TYPING)

        question = await bot.mention_bot("ada", "general", "one")
        await server.wait_for(lambda: count_typing() >= 2)
        routes = [call.route for call in server.calls]
        assert routes.index(POST) < routes.index(TYPING)
        first.set()
        await bot.wait_for_replies(question, "half,")
        before = count_typing()
        await asyncio.sleep(0.3)  # six times the interval
        assert count_typing() <= before + 1  # one call may have been under way
        last.set()
        await bot.wait_for_replies(question, "half, and half.")
        assert not [task for task in asyncio.all_tasks() if task.get_name() == "typing"]
