import asyncio
from pathlib import Path
from typing import Any

import discord
import pytest

from channels.base import Priority
from channels.discord.client.api import DiscordApi, SentMessage
from channels.discord.replies.reactions import make_queued_reactions
from channels.discord.replies.surface import DiscordSurface
from channels.replies.chunk_planner import ChunkPlanner
from chatrig.discord import DiscordMessage, DiscordSimulator, GuildChannel
from chatrig.models import Fail, Pause, Say
from core.errors import SurfaceError
from tests.channels.discord.conftest import PATCH, POST, run_bot
from tests.fixtures.executed_reply import ExecutedReply

DELETE = "DELETE /channels/{channel}/messages/{message}"
REACT = "PUT /channels/{channel}/messages/{message}/reactions/{emoji}/@me"
UNARCHIVE = "PATCH /channels/{channel}"


class DiscordSurfaceReply(ExecutedReply):
    """Discord reply surface for a question, with the message ids that it has stored."""

    def __init__(self, server: DiscordSimulator, api: DiscordApi, question: DiscordMessage) -> None:
        self.server = server
        self.question = question
        self.api = api
        self.address = {"channel": question.channel.id, "message": question.id, "speaker": "Ada"}
        self.queued_reactions = make_queued_reactions(self.api)
        super().__init__(DiscordSurface(self.api, self.queued_reactions, self.address))

    @property
    def messages(self) -> list[DiscordMessage]:
        return [m for m in self.server.messages(self.question.channel) if m.author.id == self.server.bot_id]

    @property
    def texts(self) -> list[str]:
        return [message.text for message in self.messages]

    def count_calls(self, route: str) -> int:
        return sum(call.route == route for call in self.server.calls)


@pytest.fixture
async def reply(server: DiscordSimulator, api: DiscordApi) -> DiscordSurfaceReply:
    return DiscordSurfaceReply(server, api, await server.post_message("ada", "general", "question"))


@pytest.fixture
async def thread(server: DiscordSimulator) -> GuildChannel:
    return await server.start_thread("ada", await server.post_message("ada", "general", "a root"), "a thread")


async def test_the_last_call_of_a_window_returns_before_the_window_ends(reply: DiscordSurfaceReply) -> None:
    assert await reply.show("0", priority=Priority.PROGRESS)
    start = asyncio.get_running_loop().time()
    for number in range(1, 6):
        assert await reply.show(str(number))
    assert reply.texts == ["5"]
    assert not reply.api.edit_limiter(int(reply.question.channel.id)).try_acquire(Priority.FINAL)
    assert asyncio.get_running_loop().time() - start < 3
    await reply.api.aclose()


async def test_replies_that_share_a_window_return_before_it_ends(server: DiscordSimulator, api: DiscordApi) -> None:
    replies = [
        DiscordSurfaceReply(server, api, await server.post_message("ada", "general", "question")) for _ in range(5)
    ]
    async with asyncio.timeout(4):
        await asyncio.gather(*(reply.show("…", priority=Priority.PROGRESS) for reply in replies))
        await asyncio.gather(*(reply.show("answer") for reply in replies))
    assert replies[0].texts == ["answer"] * 5
    await api.aclose()


async def test_messages_form_a_reply_chain_that_follows_the_plan(reply: DiscordSurfaceReply) -> None:
    await reply.show("one")
    await reply.show("one", "two", "three")
    assert reply.texts == ["one", "two", "three"]
    assert [message.reply_to for message in reply.messages] == [reply.question, *reply.messages[:2]]
    await reply.show("1", "two")
    assert reply.texts == ["1", "two"]
    assert [message.id for message in reply.messages] == reply.known
    assert reply.count_calls(PATCH) == 1


async def delete_message(client: discord.Client, message: DiscordMessage) -> None:
    place = client.get_partial_messageable(int(message.channel.id))
    await place.get_partial_message(int(message.id)).delete()


async def test_a_message_that_is_too_old_to_be_edited_is_followed_by_a_new_one(reply: DiscordSurfaceReply) -> None:
    await reply.show("half an ans")
    reply.server.faults.fail(PATCH, status=400, code=30046)
    await reply.show("half an answer")
    assert reply.texts == ["half an ans", "half an answer"]


async def test_a_deleted_question_is_answered_without_a_reference(reply: DiscordSurfaceReply) -> None:
    await reply.server.delete_message("ada", reply.question)
    assert await reply.show("one", "two")
    assert [message.reply_to for message in reply.messages] == [None, reply.messages[0]]


async def test_an_archived_thread_is_unarchived(
    server: DiscordSimulator, api: DiscordApi, thread: GuildChannel
) -> None:
    on = DiscordSurfaceReply(server, api, await server.post_message("ada", thread, "question"))
    await on.show("half")
    await server.archive_thread(thread)
    assert await on.show("half and half", "more")
    assert on.texts == ["half and half", "more"]
    assert not thread.archived


async def test_a_locked_thread_is_reported(server: DiscordSimulator, api: DiscordApi, thread: GuildChannel) -> None:
    on = DiscordSurfaceReply(server, api, await server.post_message("ada", thread, "question"))
    await on.show("half")
    await server.archive_thread(thread, locked=True)
    with pytest.raises(SurfaceError, match=r"^edit: 160005$"):
        await on.show("half and half")


# Transient failures


@pytest.mark.parametrize("scope", ["user", "global", "shared"])
@pytest.mark.parametrize("route", [POST, PATCH])
async def test_a_rate_limit_lasts_as_long_as_discord_says(reply: DiscordSurfaceReply, route: str, scope: str) -> None:
    await reply.show("…", priority=Priority.PROGRESS)
    reply.server.faults.rate_limit(route, 0.1, 2, scope=scope)  # type: ignore[arg-type]  # a literal type
    assert await reply.show("one", "two")
    assert reply.texts == ["one", "two"]


@pytest.mark.parametrize("is_found", [True, False])
async def test_a_post_of_a_stream_update_ends_with_the_final_text(
    reply: DiscordSurfaceReply, monkeypatch: pytest.MonkeyPatch, is_found: bool
) -> None:
    async def find_nothing(*_: Any, **__: Any) -> list[SentMessage]:
        return []

    await reply.show("one", priority=Priority.PROGRESS)
    reply.server.faults.lose_response(POST)
    if not is_found:
        monkeypatch.setattr(DiscordApi, "fetch_own_messages", find_nothing)
    assert await reply.show("one", "tw", priority=Priority.STREAM_UPDATE) is is_found
    assert reply.texts == ["one", "tw"]
    assert await reply.show("one", "two")
    assert reply.texts == ["one", "two"]
    assert reply.known == [message.id for message in reply.messages]


async def test_without_access_to_the_history_a_reply_has_no_reference(reply: DiscordSurfaceReply) -> None:
    reply.server.permissions.remove("read_message_history")
    assert await reply.show("one")
    reply.server.faults.lose_response(POST)
    assert await reply.show("one", "two")
    assert reply.texts == ["one", "two"]
    assert [message.reply_to for message in reply.messages] == [None, None]
    assert reply.count_calls(POST) == 4


# Permanent refusals


@pytest.mark.parametrize(("status", "code"), [(403, 50013), (403, 50001), (404, 10003), (400, 50035), (401, 0)])
@pytest.mark.parametrize(("route", "name"), [(POST, "post"), (PATCH, "edit")])
async def test_a_permanent_refusal_is_reported_and_not_retried(
    reply: DiscordSurfaceReply, route: str, name: str, status: int, code: int
) -> None:
    await reply.show("…", priority=Priority.PROGRESS)
    before = reply.count_calls(route)
    reply.server.faults.fail(route, 5, status=status, code=code)
    with pytest.raises(SurfaceError, match=f"^{name}: {code or 'HTTP 401'}$"):
        await reply.show("done", "more")
    assert reply.count_calls(route) == before + 1


async def test_a_reply_that_cannot_be_shown_ends_its_turn_and_not_the_process(
    server: DiscordSimulator, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server.permissions.remove("send_messages")
    async with run_bot(server, tmp_path, lambda request: request.text) as bot:
        await bot.mention_bot("ada", "general", "hello")
        (row,) = await bot.wait_for_turns(1)
        assert (row.state, row.error) == ("failed", "RefusedError: post: 50013")
        lines = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
        assert lines == [f"turn {row.id}: the reply cannot be shown: RefusedError: post: 50013 (from Forbidden)"]
        question = await server.post_message("ada", server.open_dm("ada"), "hello")
        await bot.wait_for_replies(question, "hello")


async def test_an_answer_with_a_deleted_placeholder_is_posted(
    server: DiscordSimulator, client: discord.Client, tmp_path: Path
) -> None:
    go_on = asyncio.Event()
    async with run_bot(server, tmp_path, [Pause(go_on), Say("done")]) as bot:
        question = await bot.mention_bot("ada", "general", "hello")
        await server.wait_for(lambda: bot.list_replies(question))
        await delete_message(client, bot.list_replies(question)[0])
        go_on.set()
        await bot.wait_for_replies(question, "done")


async def test_a_model_error_is_reported_without_its_text(server: DiscordSimulator, tmp_path: Path) -> None:
    async with run_bot(server, tmp_path, [Fail(401, "secret words")]) as bot:
        question = await bot.mention_bot("ada", "general", "hello")
        (answer,) = await bot.wait_for_last_reply(question, lambda text: "API key doesn't work" in text)
        assert "secret words" not in answer.text


# Rate limits


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


HOSTILE = "@everyone <@{ada}> <@!{ada}> <@&{role}> @here [https://bank.example](https://evil.example) <#1> </x:1> "


@pytest.mark.parametrize("shape", ["{0}", "```\n{0}\n```", "`{0}`", "||{0}||"])
async def test_no_text_of_the_model_notifies_anyone_wherever_it_is_split(
    reply: DiscordSurfaceReply, shape: str
) -> None:
    hostile = HOSTILE.format(ada=reply.server.people["ada"].id, role=reply.server.bot_role_id)
    planner = ChunkPlanner(reply.surface.limits)
    planner.feed(shape.format(hostile * 40))
    chunks = [chunk.text for chunk in planner.plan(Priority.FINAL).chunks][:3]
    assert len(chunks) == 3
    await reply.show("…", priority=Priority.PROGRESS)
    assert await reply.show(*chunks)
    assert [message.pings for message in reply.messages] == [frozenset()] * 3
    sent = "".join(message.content.text for message in reply.messages)
    is_code = "`" in shape  # Discord ignores mentions in code, and users copy code unchanged
    assert is_code or not any(token in sent for token in ("<@", "@everyone", "@here"))


# Restarts


async def test_a_reply_is_found_by_its_chain_alone(reply: DiscordSurfaceReply, api: DiscordApi) -> None:
    await reply.show("one", "two")
    other = DiscordSurfaceReply(reply.server, api, await reply.server.post_message("ada", "general", "another"))
    await other.show("another's")
    await reply.server.post_message("ada", "general", "thanks", reply_to=reply.messages[0])
    assert await DiscordSurface(reply.api, reply.queued_reactions, reply.address).find_message_ids() == reply.known
    assert await other.surface.find_message_ids() == other.known


async def test_a_deleted_message_is_posted_again_by_every_attempt(reply: DiscordSurfaceReply) -> None:
    for _ in range(4):
        reply.restart(DiscordSurface(reply.api, reply.queued_reactions, reply.address))
        assert await reply.show("…", priority=Priority.PROGRESS)
        assert await reply.show("one", "two")
        assert reply.texts == ["one", "two"]


async def test_a_failing_queued_reaction_delays_nothing(reply: DiscordSurfaceReply) -> None:
    reply.queued_reactions.add(reply.address)
    await reply.server.wait_for(lambda: reply.question.reactions.get("👀") == [reply.server.bot_id])
    reply.server.faults.delay(REACT.replace("PUT", "DELETE"), 1.0)
    reply.surface.remove_queued_reaction()
    assert reply.question.reactions
    await reply.server.wait_for(lambda: not reply.question.reactions)
    await reply.queued_reactions.drain(1)
    reply.server.faults.fail(REACT, status=403, code=90001)
    reply.queued_reactions.add(reply.address)
    reply.surface.remove_queued_reaction()
    await reply.queued_reactions.drain(1)
    assert not reply.question.reactions


async def test_no_typing_indicator_is_left_below_an_answer(server: DiscordSimulator, tmp_path: Path) -> None:
    async with run_bot(server, tmp_path, [Pause(0.3), Say("Done.")]) as bot:
        question = await bot.mention_bot("ada", "general", "go")
        await bot.wait_for_replies(question, "Done.")
        # Discord ends the indicator with a new message, not with the edit that brings the answer
        assert not [call.route for call in server.calls if call.route.endswith("/typing")]
