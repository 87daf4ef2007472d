"""Channel settings on Discord: session per author, answers in threads, and others."""

import asyncio
from pathlib import Path

import pytest

from channels.discord.interactions import handler
from channels.i18n import messages as words
from channels.i18n.messages import ENGLISH
from chatrig.discord import DiscordMessage, DiscordSimulator, GuildChannel
from chatrig.models import Pause, Say
from core.errors import StoreError
from core.inbox.store import InboxStore
from tests.channels.discord.conftest import POST, WiredDiscordBot, has_ignored_messages, run_bot, wait_until
from tests.channels.wiring import echo

THREAD = "POST /channels/{channel}/messages/{message}/threads"
DM = "POST /users/@me/channels"


async def wait_for_thread(bot: WiredDiscordBot, question: DiscordMessage) -> GuildChannel:
    """Wait until a question's message has a thread, and return the thread."""
    await bot.server.wait_for(lambda: question.thread)
    assert question.thread is not None
    return question.thread


async def wait_for_thread_texts(bot: WiredDiscordBot, thread: GuildChannel, *texts: str) -> None:
    await bot.server.wait_for(lambda: [message.text for message in bot.list_bot_messages(thread)] == list(texts))


# Sessions


async def test_a_channel_can_have_a_session_per_author(server: DiscordSimulator, tmp_path: Path) -> None:
    async with run_bot(server, tmp_path, echo, sessions="user") as bot:
        await bot.wait_for_replies(await bot.mention_bot("ada", "general", "one"), "heard: Ada Lovelace: one")
        await bot.wait_for_replies(await bot.mention_bot("grace", "general", "two"), "heard: Grace Hopper: two")
        assert bot.list_questions() == ["Grace Hopper: two"]
        root = await bot.mention_bot("ada", "general", "three")
        await bot.wait_for_replies(root, "heard: Ada Lovelace: three")
        assert bot.list_questions() == ["Ada Lovelace: one", "Ada Lovelace: three"]
        thread = await server.start_thread("ada", root, "a thread")
        await bot.wait_for_replies(await bot.mention_bot("ada", thread, "four"), "heard: Ada Lovelace: four")
        await bot.wait_for_replies(await bot.mention_bot("grace", thread, "five"), "heard: Grace Hopper: five")
        assert bot.list_questions() == ["Ada Lovelace: four", "Grace Hopper: five"]
        place = f"discord:{server.guild_id}:{server.channels['general'].id}"
        ada, grace = (server.people[name].id for name in ("ada", "grace"))
        assert set(await bot.list_sessions()) == {f"{place}:@{ada}", f"{place}:@{grace}", f"{place}:{thread.id}"}


async def test_the_backfill_finds_messages_of_every_author(server: DiscordSimulator, tmp_path: Path) -> None:
    async with run_bot(server, tmp_path, echo, sessions="user") as bot:
        await bot.wait_for_replies(await bot.mention_bot("ada", "general", "one"), "heard: Ada Lovelace: one")
    missed = await bot.mention_bot("grace", "general", "two")
    async with run_bot(server, tmp_path, echo, sessions="user") as bot:
        await bot.wait_for_replies(missed, "heard: Grace Hopper: two")


# A thread for each question


async def test_each_question_in_a_channel_is_answered_in_a_new_thread(server: DiscordSimulator, tmp_path: Path) -> None:
    async with run_bot(server, tmp_path, echo, auto_thread=True) as bot:
        question = await bot.mention_bot("ada", "general", "why is the sky\n\nblue?")
        thread = await wait_for_thread(bot, question)
        assert (thread.id, thread.name) == (question.id, "why is the sky blue?")
        await wait_for_thread_texts(bot, thread, "heard: Ada Lovelace: why is the sky\n\n  blue?")
        assert bot.list_bot_messages("general") == []
        await bot.wait_for_replies(
            await server.post_message("ada", thread, "and at night?"), "heard: Ada Lovelace: and at night?"
        )
        assert len(bot.list_questions()) == 2
        other = await bot.mention_bot("grace", "general", "x" * 200)
        await wait_for_thread_texts(bot, await wait_for_thread(bot, other), f"heard: Grace Hopper: {'x' * 200}")
        assert len((await wait_for_thread(bot, other)).name) == handler.MAX_THREAD_NAME
        assert len(bot.list_questions()) == 1
        direct = await server.post_message("ada", server.open_dm("ada"), "hello")
        await bot.wait_for_replies(direct, "heard: hello")
        post = await server.start_forum_post("ada", "ideas", "a post", f"{bot.mention} one")
        await bot.wait_for_replies(server.messages(post)[0], "heard: Ada Lovelace: one")
        assert len(bot.list_calls(THREAD)) == 2


async def test_a_queued_question_has_its_reaction_in_the_channel(server: DiscordSimulator, tmp_path: Path) -> None:
    async with run_bot(server, tmp_path, echo, auto_thread=True) as bot:
        async with bot.worker._claiming:  # no worker claims the question
            server.faults.delay(THREAD, 0.3)
            question = await bot.mention_bot("ada", "general", "one")
            thread = await wait_for_thread(bot, question)
            second = await server.post_message("ada", thread, f"{bot.mention} two")
            await server.wait_for(lambda: [m for m in (question, second) if m.reactions])
        await bot.wait_for_last_reply(second, lambda text: text.endswith("two"))
        await server.wait_for(lambda: not (question.reactions or second.reactions))


@pytest.mark.parametrize("why", ["there already", "lost reply"])
async def test_an_existing_thread_is_used(server: DiscordSimulator, tmp_path: Path, why: str) -> None:
    async with run_bot(server, tmp_path, echo, auto_thread=True) as bot:
        if why == "lost reply":
            server.faults.lose_response(THREAD)
        else:
            server.faults.delay(THREAD, 1)
        question = await bot.mention_bot("ada", "general", "one")
        if why == "there already":
            await server.wait_for(lambda: bot.list_calls(THREAD))
            await server.start_thread("grace", question, "hers")
        await wait_for_thread_texts(bot, await wait_for_thread(bot, question), "heard: Ada Lovelace: one")
        assert bot.list_calls(THREAD)[-1].code == 160004
        assert bot.list_bot_messages("general") == []
        assert len(server.threads("general")) == 1


@pytest.mark.parametrize("why", ["forbidden", "broken", "late"])
async def test_if_no_thread_can_be_started_the_answer_is_in_the_channel(
    server: DiscordSimulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    match why:
        case "forbidden":
            server.permissions.discard("create_public_threads")
        case "broken":
            server.faults.fail(THREAD, status=400, code=30033)
        case _:
            monkeypatch.setattr(handler, "THREAD_TIMEOUT_SECONDS", 0.1)
            server.faults.delay(THREAD, 0.5)
    async with run_bot(server, tmp_path, echo, auto_thread=True) as bot:
        question = await bot.mention_bot("ada", "general", "one")
        await bot.wait_for_replies(question, "heard: Ada Lovelace: one")
        await bot.wait_for_turns(1)
        assert await bot.list_sessions() == [f"discord:{server.guild_id}:{question.channel.id}"]


async def test_a_question_with_a_thread_that_was_not_stored_is_answered_once(
    server: DiscordSimulator, tmp_path: Path
) -> None:
    async with run_bot(server, tmp_path, echo, auto_thread=True) as bot:
        first = await bot.mention_bot("ada", "general", "zero")
        await wait_for_thread_texts(bot, await wait_for_thread(bot, first), "heard: Ada Lovelace: zero")

        async def raise_store_error(self: InboxStore, inbound: object) -> None:
            raise StoreError("out of reach")

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(InboxStore, "accept", raise_store_error)
            question = await bot.mention_bot("ada", "general", "one")
            thread = await wait_for_thread(bot, question)
            await bot.adapter.stop()
    async with run_bot(server, tmp_path, echo, auto_thread=True) as bot:
        await wait_for_thread_texts(bot, thread, "heard: Ada Lovelace: one")
        assert bot.list_bot_messages("general") == []
        assert len(await bot.list_inbox_messages()) == 2


async def test_a_reply_in_a_new_thread_is_found_after_a_crash(server: DiscordSimulator, tmp_path: Path) -> None:
    async with run_bot(server, tmp_path, [Say("half"), Pause(60)], "All of it.", auto_thread=True) as bot:
        thread = await wait_for_thread(bot, await bot.mention_bot("ada", "general", "one"))
        await wait_for_thread_texts(bot, thread, "half")
        await bot.restart_worker(chunks=[])
        await wait_for_thread_texts(bot, thread, "All of it.")


async def test_a_first_post_in_a_thread_whose_answer_was_lost_is_not_repeated(
    server: DiscordSimulator, tmp_path: Path
) -> None:
    async with run_bot(server, tmp_path, echo, auto_thread=True) as bot:
        server.faults.lose_response(POST)
        thread = await wait_for_thread(bot, await bot.mention_bot("ada", "general", "one"))
        await wait_for_thread_texts(bot, thread, "heard: Ada Lovelace: one")


async def test_a_command_starts_no_thread(server: DiscordSimulator, tmp_path: Path) -> None:
    async with run_bot(server, tmp_path, echo, auto_thread=True) as bot:
        await bot.wait_for_replies(await bot.mention_bot("ada", "general", "reset"), words.NOTHING_TO_RESET)
        assert bot.list_calls(THREAD) == []


# Channels without mentions


async def test_a_free_channel_needs_no_mention_unless_for_others(server: DiscordSimulator, tmp_path: Path) -> None:
    free = frozenset({int(server.channels["general"].id), int(server.channels["ideas"].id)})
    async with run_bot(server, tmp_path, echo, free_channels=free) as bot:
        first = await server.post_message("ada", "general", "one")
        await bot.wait_for_replies(first, "heard: Ada Lovelace: one")
        post = await server.start_forum_post("ada", "ideas", "a post", "two")
        await bot.wait_for_replies(server.messages(post)[0], "heard: Ada Lovelace: two")
        await server.post_message("ada", "general", f"<@{server.people['grace'].id}> what do you think?")
        await server.post_message("grace", "general", "good", reply_to=first)
        await server.post_message("ada", "random", "not here")
        await server.post_as_other_bot("robot", "general", "beep")
        assert await has_ignored_messages(bot)


@pytest.mark.parametrize("auto_thread", [False, True])
async def test_a_muted_free_channel_needs_a_mention(
    server: DiscordSimulator, tmp_path: Path, auto_thread: bool
) -> None:
    free = frozenset({int(server.channels["general"].id)})
    async with run_bot(server, tmp_path, echo) as bot:
        await bot.wait_for_replies(await bot.mention_bot("ada", "general", "one"), "heard: Ada Lovelace: one")
    async with run_bot(server, tmp_path, echo, free_channels=free, auto_thread=auto_thread) as bot:
        await bot.wait_for_replies(await server.post_message("ada", "general", "mute"), words.MUTED)
        await server.post_message("ada", "general", "two")
        assert await has_ignored_messages(bot)
        await bot.wait_for_replies(await bot.mention_bot("ada", "general", "listen"), words.UNMUTED)
        named = await server.post_message("ada", "general", "three")
        if auto_thread:
            await wait_for_thread_texts(bot, await wait_for_thread(bot, named), "heard: Ada Lovelace: three")
        else:
            await bot.wait_for_replies(named, "heard: Ada Lovelace: three")


async def test_without_the_intent_the_start_warns_about_free_channels(
    server: DiscordSimulator, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server.privileged_intents.clear()
    free = frozenset({int(server.channels["general"].id)})
    async with run_bot(server, tmp_path, echo, free_channels=free) as bot:
        assert "in threads and in the channels of DISCORD_FREE_CHANNEL_IDS the bot sees only mentions" in caplog.text
        await server.post_message("ada", "general", "one")
        assert await has_ignored_messages(bot)


async def test_a_reply_to_the_bot_needs_no_mention(server: DiscordSimulator, bot: WiredDiscordBot) -> None:
    (answer,) = await bot.wait_for_replies(await bot.mention_bot("ada", "general", "one"), "heard: Ada Lovelace: one")
    reply = await server.post_message("grace", "general", "two", reply_to=answer, mention=False)
    await bot.wait_for_replies(reply, "heard: Grace Hopper: two")
    await server.post_message("grace", "general", "three", reply_to=reply)
    assert await has_ignored_messages(bot)


# Missing permissions


async def test_a_missing_permission_is_reported_by_direct_message(server: DiscordSimulator, tmp_path: Path) -> None:
    server.permissions.discard("send_messages")
    async with run_bot(server, tmp_path, echo) as bot:
        question = await bot.mention_bot("ada", "general", "one")
        place = server.open_dm("ada")
        await server.wait_for(lambda: bot.list_bot_messages(place))
        notice = ENGLISH(words.CANNOT_WRITE, place=f"<#{question.channel.id}>")
        assert [m.content.text for m in bot.list_bot_messages(place)] == [notice]
        assert (await bot.wait_for_turns(1))[0].state == "failed"


async def test_an_author_without_direct_messages_gets_no_report(
    server: DiscordSimulator, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server.permissions.discard("send_messages")
    server.faults.fail(DM, status=403, code=50007)
    async with run_bot(server, tmp_path, echo) as bot:
        await bot.mention_bot("ada", "general", "one")
        await wait_until(lambda: "the author cannot be told why there is no reply: tell: 50007" in caplog.text)
        await bot.wait_for_turns(1)


@pytest.mark.parametrize("is_locked", [False, True], ids=["archived", "locked"])
async def test_a_reply_unarchives_a_thread_and_reports_a_locked_one(
    server: DiscordSimulator, tmp_path: Path, is_locked: bool
) -> None:
    go_on = asyncio.Event()
    async with run_bot(server, tmp_path, [Say("half, "), Pause(go_on), Say("and half.")]) as bot:
        thread = await server.start_thread("ada", await server.post_message("ada", "general", "a root"), "a thread")
        question = await bot.mention_bot("ada", thread, "one")
        await bot.wait_for_replies(question, "half,")
        await server.archive_thread(thread, locked=is_locked)
        go_on.set()
        if is_locked:
            place = server.open_dm("ada")
            await server.wait_for(lambda: bot.list_bot_messages(place))
            assert [m.content.text for m in bot.list_bot_messages(place)] == [
                ENGLISH(words.THREAD_LOCKED, place=f"<#{thread.id}>")
            ]
        else:
            await bot.wait_for_replies(question, "half, and half.")
