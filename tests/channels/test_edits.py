"""An edit that calls the bot, on both platforms."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from channels import words
from channels.discord import ear
from channels.slack import hearing
from core.frames import END
from sandbox.slack import SlackSandbox
from tests.channels.benches import PLATFORMS, sandbox_of, says, talking


@pytest.fixture(params=PLATFORMS)
async def sandbox(request: pytest.FixtureRequest) -> AsyncIterator[Any]:
    async with sandbox_of(request.param) as made:
        yield made


def echo(asked: Any) -> str:
    return f"heard {asked.text.rpartition(END)[2].strip().partition(': ')[2]}"


async def test_an_edit_that_calls_the_bot_is_a_question_and_answered_once(sandbox: Any, tmp_path: Path) -> None:
    async with talking(sandbox, tmp_path, echo) as talk:
        said = await sandbox.say("ada", "general", "who is on call?")
        await sandbox.edit("ada", said, "who is on call today?")
        await sandbox.edit("ada", said, f"{talk.bot.mention} who is on call today?")
        await says(talk, "heard who is on call today?")
        await talk.bot.settled(1)
        await sandbox.edit("ada", said, f"{talk.bot.mention} who is on call tomorrow?")
        await sandbox.wait_for(lambda: words.REVISE in talk.replies()[-1].buttons)
        (row,) = await talk.bot.inbox_rows()
        assert row.sent_at > float(getattr(said, "ts", 0)), "it counts as said when it was edited"
        await talk.press(words.REVISE)
        await says(talk, "heard who is on call tomorrow?")


async def test_what_was_said_to_others_in_a_thread_is_for_the_bot_as_soon_as_it_calls_it(
    sandbox: Any, tmp_path: Path
) -> None:
    async with talking(sandbox, tmp_path, echo) as talk:
        root = await talk.say("one")
        await says(talk, "heard one")
        if isinstance(sandbox, SlackSandbox):
            said = await sandbox.say("grace", "general", "and two?", thread_ts=root.ts)
        else:
            thread = await sandbox.start_thread("ada", root, "numbers")
            await sandbox.say("ada", thread, f"{talk.bot.mention} three")
            await talk.bot.settled(2)
            said = await sandbox.say("grace", thread, "and two?")
        rows = await talk.bot.database.until(talk.bot.inbox_rows, lambda rows: rows[-1].outcome == "overheard")
        known = len(rows) - 1
        await sandbox.edit("grace", said, f"and two, {talk.bot.mention}?")
        await talk.bot.settled(known + 1)
        assert "and two, ?" in talk.bot.model.requests[-1]["messages"][-1]["content"]


async def test_an_edit_of_what_was_said_long_ago_or_calls_the_bot_anyway_is_no_question(
    sandbox: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with talking(sandbox, tmp_path, echo) as talk:
        stopped = await talk.say("stop")
        await says(talk, "There is no conversation of yours here that I remember.")
        await sandbox.edit("ada", stopped, f"{talk.bot.mention} stop now, please")
        monkeypatch.setattr(ear, "MOMENT", -1.0)
        monkeypatch.setattr(hearing, "MOMENT", -1.0)
        said = await sandbox.say("ada", "general", "is it green?")
        await sandbox.edit("ada", said, f"{talk.bot.mention} is it green?")
        await sandbox.say("grace", "general", f"{talk.bot.mention} last")
        await says(talk, "There is no conversation of yours here that I remember.", "heard last")
