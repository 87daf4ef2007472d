"""Reply surface of Discord: its rate limits, references to the question, and typing indicator."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from channels.base import Priority
from channels.discord.client.api import DiscordApi, SentMessage
from chatrig.discord import DiscordSimulator
from chatrig.models import Pause, Say
from tests.channels.discord.conftest import run_bot
from tests.channels.replies.test_surface import SurfaceReply, open_api


@pytest.fixture
async def reply(server: DiscordSimulator) -> AsyncIterator[SurfaceReply]:
    async with open_api(server) as api:
        yield SurfaceReply(server, await server.post_message("ada", "general", "question"), api)


async def test_the_last_call_of_a_window_returns_before_the_window_ends(reply: SurfaceReply) -> None:
    assert isinstance(reply.api, DiscordApi)
    assert await reply.show("0", priority=Priority.PROGRESS)
    start = asyncio.get_running_loop().time()
    for number in range(1, 6):
        assert await reply.show(str(number))
    assert reply.texts == ["5"]
    assert not reply.api.edit_limiter(int(reply.question.channel.id)).try_acquire(Priority.FINAL)
    assert asyncio.get_running_loop().time() - start < 3
    await reply.api.aclose()


async def test_replies_that_share_a_window_return_before_it_ends(reply: SurfaceReply) -> None:
    assert isinstance(reply.api, DiscordApi)
    server = reply.simulator
    replies = [
        SurfaceReply(server, await server.post_message("ada", "general", "question"), reply.api) for _ in range(5)
    ]
    async with asyncio.timeout(4):
        await asyncio.gather(*(one.show("…", priority=Priority.PROGRESS) for one in replies))
        await asyncio.gather(*(one.show("answer") for one in replies))
    assert reply.texts == ["answer"] * 5
    await reply.api.aclose()


async def test_a_deleted_question_is_answered_without_a_reference(reply: SurfaceReply) -> None:
    await reply.simulator.delete_message("ada", reply.question)
    assert await reply.show("one", "two")
    assert [message.reply_to for message in reply.messages] == [None, reply.messages[0]]


async def test_without_access_to_the_history_a_reply_has_no_reference(reply: SurfaceReply) -> None:
    reply.simulator.permissions.remove("read_message_history")
    assert await reply.show("one")
    reply.simulator.faults.lose_response(reply.calls["post"])
    assert await reply.show("one", "two")
    assert reply.texts == ["one", "two"]
    assert [message.reply_to for message in reply.messages] == [None, None]
    assert reply.count_calls("post") == 4


async def test_a_lost_post_of_a_stream_update_that_is_not_found_is_replaced(
    reply: SurfaceReply, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def find_nothing(*_: Any, **__: Any) -> list[SentMessage]:
        return []

    await reply.show("one", priority=Priority.PROGRESS)
    reply.simulator.faults.lose_response(reply.calls["post"])
    monkeypatch.setattr(DiscordApi, "fetch_own_messages", find_nothing)
    assert not await reply.show("one", "tw", priority=Priority.STREAM_UPDATE)
    assert await reply.show("one", "two")
    assert reply.texts == ["one", "two"]


async def test_a_long_stream_is_never_rate_limited_and_grows(server: DiscordSimulator, tmp_path: Path) -> None:
    story = "".join(f"{number} 😀 words. " for number in range(600))
    async with run_bot(server, tmp_path, [Say(story, pieces=200, pace=0.02)]) as bot:
        question = await bot.mention_bot("ada", "general", "a story")
        await bot.wait_for_turns(1)
        answers = bot.list_replies(question)
        assert "".join(answer.text for answer in answers).replace(" ", "") == story.replace(" ", "")
        assert max(len(answer.content.text.encode("utf-16-le")) // 2 for answer in answers) <= 2000
        assert len(answers) > 3
        assert sum(len(answer.versions) for answer in answers) > len(answers)
        assert not [call.route for call in server.calls if call.rate_limited]


async def test_a_reply_is_found_by_its_chain_alone(reply: SurfaceReply) -> None:
    server = reply.simulator
    await reply.show("one", "two")
    assert [message.reply_to for message in reply.messages] == [reply.question, reply.messages[0]]
    found = reply.messages
    other = SurfaceReply(server, await server.post_message("ada", "general", "another"), reply.api)
    await other.show("another's")
    await server.post_message("ada", "general", "thanks", reply_to=found[0])
    assert await reply.create_surface().find_message_ids() == reply.known
    assert await other.surface.find_message_ids() == other.known


async def test_no_typing_indicator_is_left_below_an_answer(server: DiscordSimulator, tmp_path: Path) -> None:
    async with run_bot(server, tmp_path, [Pause(0.3), Say("Done.")]) as bot:
        question = await bot.mention_bot("ada", "general", "go")
        await bot.wait_for_replies(question, "Done.")
        # Discord ends the indicator with a new message, not with the edit that brings the answer
        assert not [call.route for call in server.calls if call.route.endswith("/typing")]
