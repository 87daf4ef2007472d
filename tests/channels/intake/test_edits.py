"""Edits that add a mention, and edits while a message is being stored."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from channels.discord.events import listener
from channels.intake import backfill
from channels.slack.events import parser
from chatrig.slack import SlackSimulator
from core.errors import StoreError
from core.inbox.store import InboxStore
from core.messages.inbox_message import AcceptResult, InboxMessage
from core.usage.user_rate_limits import RateLimitDenial
from tests.channels.platforms import run_conversation, wait_for_answer
from tests.scenarios.conftest import echo


async def test_an_added_mention_during_downtime_is_answered(
    simulator: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backfill, "OVERLAP_SECONDS", 0.0)
    async with run_conversation(simulator, tmp_path, echo) as chat:
        await chat.say("one")
        await wait_for_answer(chat, "heard one")
        message = await simulator.post_message("ada", "general", "who is on call?")
        await asyncio.sleep(0.05)  # the message is older than the watermark
        await chat.say("two")
        await chat.bot.wait_for_turns(2)
    await simulator.edit_message("ada", message, f"{chat.bot.mention} who is on call?")
    if isinstance(simulator, SlackSimulator):
        await simulator.discard_pending()
    async with run_conversation(simulator, tmp_path, echo) as chat:
        await wait_for_answer(chat, "heard one", "heard two", "heard who is on call?")


async def test_a_mention_that_is_added_to_an_old_message_is_no_question(
    simulator: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with run_conversation(simulator, tmp_path, echo) as chat:
        monkeypatch.setattr(listener, "EDIT_MENTION_WINDOW_SECONDS", -1.0)
        monkeypatch.setattr(parser, "EDIT_MENTION_WINDOW_SECONDS", -1.0)
        message = await simulator.post_message("ada", "general", "is it green?")
        await simulator.edit_message("ada", message, f"{chat.bot.mention} is it green?")
        await simulator.post_message("grace", "general", f"{chat.bot.mention} last")
        await wait_for_answer(chat, "heard last")


@pytest.mark.parametrize("deletes", [False, True])
@pytest.mark.parametrize("failures", [0, 1])
async def test_changes_during_storing_are_applied(
    simulator: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failures: int, *, deletes: bool
) -> None:
    accept, tries = InboxStore.accept, [StoreError("out of reach")] * failures
    started, go_on = asyncio.Event(), asyncio.Event()

    async def accept_slowly(self: InboxStore, inbound: InboxMessage) -> AcceptResult | RateLimitDenial:
        if tries:
            raise tries.pop()
        if not inbound.text.startswith("last"):
            started.set()
            await go_on.wait()
        return await accept(self, inbound)

    monkeypatch.setattr(InboxStore, "accept", accept_slowly)
    async with run_conversation(simulator, tmp_path, echo) as chat:
        message = await chat.say("tow")
        await asyncio.wait_for(started.wait(), 10)
        text = f"{chat.bot.mention} two"
        change = simulator.delete_message("ada", message) if deletes else simulator.edit_message("ada", message, text)
        changing = asyncio.create_task(change)
        await asyncio.sleep(0.2)  # the edit arrives meanwhile
        go_on.set()
        await changing
        rows = await chat.bot.database.wait_until(
            chat.bot.list_inbox_messages,
            lambda rows: rows and (rows[0].outcome == "deleted" if deletes else get_text(rows[0]) == "two"),
        )
        assert len(rows) == 1


def get_text(row: Any) -> str:
    """Return the text of an inbox row's message after its last edit."""
    return str((row.edited_message or row.message)["text"])
