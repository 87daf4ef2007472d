"""Entries that no person wrote begin turns on both platforms, through the real clients."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from core.messages.inbox_message import InboxMessage
from core.messages.trigger import DIRECT, Trigger, TriggerKind
from core.store.schema import IS_PENDING, inbox
from core.turns.automation.schedules import Schedule
from core.turns.claims import derive_turn_id
from core.turns.queries import append_triggered
from tests.channels.platforms import PLATFORMS, Chat, run_conversation, run_simulator, wait_for_texts
from tests.channels.wiring import echo

pytestmark = pytest.mark.parametrize("platform", PLATFORMS)


@asynccontextmanager
async def run_chat(platform: str, folder: Path, *script: Any, **settings: Any) -> AsyncIterator[Chat]:
    """Run a bot that places entries, after it has answered one message of Ada."""
    async with run_simulator(platform) as simulator, run_conversation(simulator, folder, *script, **settings) as chat:
        placing = asyncio.create_task(chat.bot.triggered.run_placing({platform: chat.bot.adapter.place}))
        try:
            await chat.say("hello")
            await wait_for_texts(chat, lambda found: len(found) == 1 and found[0].endswith(": hello"))
            yield chat
        finally:
            placing.cancel()
            await asyncio.wait([placing])


async def append(chat: Chat, entry: InboxMessage) -> bool:
    """Store an entry, make the bot place it, and return whether it is new."""
    async with chat.bot.database.write() as connection:
        is_new = await append_triggered(connection, entry)
    chat.bot.triggered.wake()
    return is_new


async def create_entry(
    chat: Chat, text: str = "say hi", *, kind: TriggerKind = "schedule", due_at: float | None = None, **trigger: Any
) -> InboxMessage:
    """Return an entry of Ada, in the conversation of her first message."""
    (first, *_) = await chat.bot.list_inbox_messages()
    message = InboxMessage.from_json(first.message)
    due = time.time() if due_at is None else due_at
    cause = Trigger(kind, "an-id", "A title", due, **trigger)
    return replace(message, event_key=f"{kind}:an-id:1", text=text, sent_at=time.time(), trigger=cause)


async def test_a_schedule_mentions_its_author_and_is_answered_in_their_conversation(
    platform: str, tmp_path: Path
) -> None:
    async with run_chat(platform, tmp_path, echo) as chat:
        entry = await create_entry(chat)
        assert await append(chat, entry)
        assert not await append(chat, entry)
        _, header, answer = await wait_for_texts(chat, lambda found: len(found) == 3 and found[-1].endswith(": say hi"))
        assert header == f"{mention_of(platform)} ⏰ A title"
        assert answer.startswith("heard: ")
        first, second = await chat.bot.wait_for_turns(2)
        assert second.id == derive_turn_id(entry.event_key)
        assert second.session == first.session
        _, answered = [InboxMessage.from_json(row.message) for row in await chat.bot.list_inbox_messages()]
        assert answered.address.get("is_triggered", False) is (platform == "slack")


async def test_a_plain_text_is_shown_as_it_is_and_runs_no_agent(platform: str, tmp_path: Path) -> None:
    async with run_chat(platform, tmp_path, echo) as chat:
        entry = await create_entry(chat, "stand up @everyone", is_plain=True, due_at=time.time() - 3600)
        await append(chat, entry)
        _, text = await wait_for_texts(chat, lambda found: len(found) == 2)
        assert text.startswith(f"{mention_of(platform)} ⏰ stand up")
        assert "late" in text
        assert len(await chat.bot.list_turns()) == 1


async def test_an_entry_of_another_place_begins_a_conversation_there(platform: str, tmp_path: Path) -> None:
    async with run_chat(platform, tmp_path, echo) as chat:
        channel = chat.simulator.channels["random" if platform == "slack" else "general"]
        entry = await create_entry(chat, "the build failed", kind="hook", target=str(channel.id))
        bot = f"bot:hook:{entry.trigger.id if entry.trigger else ''}"
        names = {"name": "ci", "speaker": "ci"}
        hook = replace(entry, author=bot, actor=None, session_id="", address=names, place=f"{platform}:")
        await append(chat, hook)
        _, turn = await chat.bot.wait_for_turns(2)
        assert turn.state == "done"
        assert turn.text == "heard: ci: the build failed"
        assert turn.id == derive_turn_id(hook.event_key)


async def test_an_entry_to_its_author_is_a_direct_message(platform: str, tmp_path: Path) -> None:
    async with run_chat(platform, tmp_path, echo) as chat:
        await append(chat, await create_entry(chat, target=DIRECT))
        _, turn = await chat.bot.wait_for_turns(2)
        assert turn.state == "done"
        await chat.open_dm()
        assert [text for text in map(get_text, chat.list_replies()) if "say hi" in text]


async def close_place(platform: str, chat: Chat, *, is_deleted: bool) -> None:
    """Delete or archive the channel, or remove the bot from it."""
    if platform == "discord" and is_deleted:
        await chat.simulator.delete_channel("general")
    elif platform == "discord":
        chat.simulator.faults.fail(chat.calls["post"], 99, status=403, code=50001)
    elif is_deleted:
        chat.simulator.channels["general"].archived = True
    else:
        await chat.simulator.leave_channel(chat.simulator.bot_user_id, "general")


async def create_schedule(chat: Chat) -> InboxMessage:
    """Store a schedule of Ada in the conversation of her first message, and return its entry."""
    entry = await create_entry(chat)
    schedule = Schedule(
        id="an-id",
        message=replace(entry, trigger=None),
        is_plain=False,
        is_direct=False,
        starts_at="2027-01-01T00:00:00+00:00",
        time_zone="UTC",
        rule="FREQ=DAILY",
        next_at=None,
        state="active",
        speakers=(),
        turn="",
        created_at=time.time(),
    )
    (turn,) = await chat.bot.wait_for_turns(1)
    await chat.bot.services.schedules.create(schedule, turn.generation)
    return entry


@pytest.mark.parametrize("is_deleted", [False, True])
async def test_a_schedule_ends_with_its_place_and_one_line_in_the_log(
    platform: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, *, is_deleted: bool
) -> None:
    async with run_chat(platform, tmp_path, echo) as chat:
        entry = await create_schedule(chat)
        await close_place(platform, chat, is_deleted=is_deleted)
        await append(chat, entry)
        await wait_until_handled(chat)
        assert await chat.bot.services.schedules.list_all() == []
        lines = [record.getMessage() for record in caplog.records if entry.event_key in record.getMessage()]
        assert len(lines) == 1
        assert lines[0].startswith(f"{entry.event_key} does not begin: its place {entry.place} is closed (")
        assert lines[0].endswith("; its schedule is deleted")


async def test_a_schedule_survives_a_refusal_that_may_end(
    platform: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    refusal: dict[str, Any] = {"error": "restricted_action"} if platform == "slack" else {"status": 403, "code": 50013}
    async with run_chat(platform, tmp_path, echo) as chat:
        entry = await create_schedule(chat)
        chat.simulator.faults.fail(chat.calls["post"], **refusal)
        await append(chat, entry)
        await wait_until_handled(chat)
        assert len(await chat.bot.services.schedules.list_all()) == 1
        assert f"{entry.event_key} does not begin: " in caplog.text


async def count_pending(chat: Chat) -> int:
    async with chat.bot.database.read() as connection:
        return await connection.scalar(sa.select(sa.func.count()).select_from(inbox).where(IS_PENDING)) or 0


async def wait_until_handled(chat: Chat) -> None:
    """Wait until no entry of the inbox waits to be placed."""
    async with asyncio.timeout(20):
        while await count_pending(chat):  # noqa: ASYNC110 - the store sends no event
            await asyncio.sleep(0.02)


def mention_of(platform: str) -> str:
    """Return the mention of Ada as the local platform shows it."""
    return "@ada" if platform == "slack" else "@Ada Lovelace"


def get_text(message: Any) -> str:
    return str(getattr(message, "text", None) or getattr(message, "content", ""))
