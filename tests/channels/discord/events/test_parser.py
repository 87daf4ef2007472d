from dataclasses import replace
from pathlib import Path

import pytest

from channels.i18n import messages as words
from chatrig.discord import DiscordSimulator, GuildChannel
from tests.channels.discord.conftest import WiredDiscordBot, has_ignored_messages, run_bot
from tests.channels.wiring import echo

GET_CHANNEL = "GET /channels/{channel}"


async def test_a_mention_is_answered_with_a_reply_and_has_names_for_ids(
    server: DiscordSimulator, bot: WiredDiscordBot
) -> None:
    grace, random = server.people["grace"].id, server.channels["random"].id
    question = await bot.mention_bot("ada", "general", f"ask <@{grace}> in <#{random}>")
    (answer,) = await bot.wait_for_replies(question, "heard: Ada Lovelace: ask @Grace Hopper in #random")
    (row,) = await bot.wait_for_turns(1)
    assert (row.state, row.chunks) == ("done", [answer.id])
    assert answer.versions[0].text == words.PLACEHOLDER
    assert await bot.list_sessions() == [f"discord:{server.guild_id}:{question.channel.id}"]


async def test_a_mention_of_the_bots_role_is_answered(server: DiscordSimulator, bot: WiredDiscordBot) -> None:
    question = await server.post_message("ada", "general", f"<@&{server.bot_role_id}> hello")
    await bot.wait_for_replies(question, "heard: Ada Lovelace: hello")


async def test_each_channel_thread_and_post_is_a_session(server: DiscordSimulator, bot: WiredDiscordBot) -> None:
    root = await bot.mention_bot("ada", "general", "in the channel")
    await bot.wait_for_replies(root, "heard: Ada Lovelace: in the channel")
    thread = await server.start_thread("ada", root, "a thread")
    post = await server.start_forum_post("ada", "ideas", "a post", f"{bot.mention} in the post")
    await bot.wait_for_replies(server.messages(post)[0], "heard: Ada Lovelace: in the post")
    assert bot.list_questions() == ["Ada Lovelace: in the post"]
    await bot.wait_for_replies(
        await bot.mention_bot("ada", thread, "in the thread"), "heard: Ada Lovelace: in the thread"
    )
    assert bot.list_questions() == ["Ada Lovelace: in the thread"]
    await bot.wait_for_replies(await bot.mention_bot("ada", "random", "elsewhere"), "heard: Ada Lovelace: elsewhere")
    assert bot.list_questions() == ["Ada Lovelace: elsewhere"]
    general, random, ideas = (server.channels[name].id for name in ("general", "random", "ideas"))
    assert [session.removeprefix(f"discord:{server.guild_id}:") for session in await bot.list_sessions()] == [
        general,
        f"{ideas}:{post.id}",
        f"{general}:{thread.id}",
        random,
    ]


async def test_the_bot_follows_only_threads_in_which_it_has_answered(
    server: DiscordSimulator, bot: WiredDiscordBot
) -> None:
    root = await bot.mention_bot("ada", "general", "one")
    await bot.wait_for_replies(root, "heard: Ada Lovelace: one")
    await server.post_message("ada", "general", "not for the bot")
    silent = await server.start_thread("ada", root, "silent")
    await server.post_message("ada", silent, "not for the bot either")
    assert await has_ignored_messages(bot)
    followed = await server.start_forum_post("ada", "ideas", "a post", f"{bot.mention} two")
    await bot.wait_for_replies(server.messages(followed)[0], "heard: Ada Lovelace: two")
    await bot.wait_for_replies(await server.post_message("ada", followed, "three"), "heard: Ada Lovelace: three")


async def test_a_thread_on_an_answer_needs_no_mention(server: DiscordSimulator, bot: WiredDiscordBot) -> None:
    (answer,) = await bot.wait_for_replies(await bot.mention_bot("ada", "general", "one"), "heard: Ada Lovelace: one")
    thread = await server.start_thread("grace", answer, "more")
    await server.post_message("grace", thread, f"<@{server.people['linus'].id}> look")
    await bot.wait_for_replies(await server.post_message("grace", thread, "why?"), "heard: Grace Hopper: why?")
    assert f"> {server.bot_name}: heard: Ada Lovelace: one" in bot.list_model_messages()[0]
    await bot.wait_for_replies(await server.post_message("grace", thread, "and now?"), "heard: Grace Hopper: and now?")
    await server.post_message("linus", thread, "not for the bot")
    await bot.database.wait_until(bot.list_inbox_messages, lambda rows: rows[-1].outcome == "unaddressed")
    assert len(bot.list_calls("GET /channels/{channel}/messages/{message}")) == 1


async def test_a_thread_on_an_answer_needs_a_mention_if_threads_do(server: DiscordSimulator, tmp_path: Path) -> None:
    async with run_bot(server, tmp_path, echo, follow="never") as bot:
        (answer,) = await bot.wait_for_replies(
            await bot.mention_bot("ada", "general", "one"), "heard: Ada Lovelace: one"
        )
        await server.post_message("ada", await server.start_thread("ada", answer, "more"), "why?")
        assert await has_ignored_messages(bot)
        assert bot.list_calls("GET /channels/{channel}/messages/{message}") == []


async def test_a_question_in_a_thread_on_an_answer_is_found_after_a_restart(
    server: DiscordSimulator, tmp_path: Path
) -> None:
    async with run_bot(server, tmp_path, echo) as bot:
        (answer,) = await bot.wait_for_replies(
            await bot.mention_bot("ada", "general", "one"), "heard: Ada Lovelace: one"
        )
        await bot.wait_for_turns(1)
    question = await server.post_message("ada", await server.start_thread("ada", answer, "more"), "why?")
    async with run_bot(server, tmp_path, echo) as bot:
        await bot.wait_for_replies(question, "heard: Ada Lovelace: why?")


async def test_without_the_intent_only_mentions_are_answered(
    server: DiscordSimulator, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server.privileged_intents.clear()
    async with run_bot(server, tmp_path, echo) as bot:
        assert "the message content intent is off: in threads the bot sees only mentions" in caplog.text
        post = await server.start_forum_post("ada", "ideas", "a post", f"{bot.mention} one")
        await bot.wait_for_replies(server.messages(post)[0], "heard: Ada Lovelace: one")
        await server.post_message("ada", post, "two")
        assert await has_ignored_messages(bot)
        await bot.wait_for_replies(await bot.mention_bot("ada", post, "three"), "heard: Ada Lovelace: three")


async def test_messages_for_others_start_no_turn(server: DiscordSimulator, bot: WiredDiscordBot) -> None:
    message = await server.post_message("ada", "general", "not for the bot, @everyone")
    await server.edit_message("ada", message, "not for the bot, @here")
    await server.pin_message("ada", message)
    await server.join_guild("edsger")
    await server.post_as_other_bot("robot", "general", f"{bot.mention} beep")
    await server.post_as_other_bot("hook", "general", f"{bot.mention} beep", webhook=True)
    await server.start_thread("ada", await server.post_message("ada", "general", "a root"), "a thread")
    await server.delete_message("ada", message)
    assert await has_ignored_messages(bot)


async def create_archived_post(bot: WiredDiscordBot) -> GuildChannel:
    """Create a forum post in which the bot has answered, archive it, and return it."""
    post = await bot.server.start_forum_post("ada", "ideas", "a post", f"{bot.mention} one")
    await bot.wait_for_replies(bot.server.messages(post)[0], "heard: Ada Lovelace: one")
    await bot.server.archive_thread(post)
    return post


async def test_a_thread_that_a_message_unarchives_has_its_session(
    server: DiscordSimulator, bot: WiredDiscordBot
) -> None:
    post = await create_archived_post(bot)
    server.faults.fail(GET_CHANNEL, status=503)
    await bot.wait_for_replies(await server.post_message("ada", post, "two"), "heard: Ada Lovelace: two")
    assert len(set(await bot.list_sessions())) == 1
    assert len(bot.list_calls(GET_CHANNEL)) == 2  # none for the bot's own messages


async def test_a_message_waits_for_the_one_before_it_to_be_resolved(
    server: DiscordSimulator, bot: WiredDiscordBot
) -> None:
    post = await create_archived_post(bot)
    server.faults.set_latency(0.05)
    server.faults.fail(GET_CHANNEL, status=503)
    await server.post_message("ada", post, "two")
    await server.post_message("ada", post, "three")
    rows = await bot.wait_for_messages(3)
    assert [row.message["text"] for row in rows] == ["one", "two", "three"]


async def test_a_message_that_is_not_resolved_in_time_is_fetched(
    server: DiscordSimulator, bot: WiredDiscordBot, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    post = await create_archived_post(bot)
    monkeypatch.setattr("channels.discord.events.listener.RESOLVE_TIMEOUT_SECONDS", 0.1)
    server.faults.delay(GET_CHANNEL, 1.0)
    await bot.wait_for_replies(await server.post_message("ada", post, "two"), "heard: Ada Lovelace: two")
    assert "the author of a message could not be resolved: TimeoutError" in caplog.text


async def test_a_message_of_a_thread_that_cannot_be_fetched_is_backfilled(
    server: DiscordSimulator, bot: WiredDiscordBot, caplog: pytest.LogCaptureFixture
) -> None:
    post = await create_archived_post(bot)
    server.faults.fail(GET_CHANNEL, status=403, code=50001)
    await bot.wait_for_replies(await bot.mention_bot("ada", post, "two"), "heard: Ada Lovelace: two")
    assert "the author of a message could not be resolved: RefusedError: channel: 50001" in caplog.text


async def test_only_the_configured_servers_are_served(server: DiscordSimulator, tmp_path: Path) -> None:
    async with run_bot(server, tmp_path, echo, guilds=frozenset({1})) as bot:
        await bot.mention_bot("ada", "general", "hello")
        assert await has_ignored_messages(bot)
        (response,) = await server.run_command("ada", "general", "/reset")
        await server.wait_for(lambda: response.text == words.PLACE_NOT_ALLOWED)
    async with run_bot(server, tmp_path, echo, guilds=frozenset({int(server.guild_id)})) as bot:
        await bot.wait_for_replies(await bot.mention_bot("ada", "general", "hello"), "heard: Ada Lovelace: hello")


async def test_files_and_bare_mentions_reach_the_model(server: DiscordSimulator, bot: WiredDiscordBot) -> None:
    file = await server.post_message("ada", server.open_dm("ada"), "look", files={"plan.pdf": b"%PDF"})
    await bot.wait_for_replies(
        file,
        "heard: look\n[Ada Lovelace sent a file that you cannot open: plan.pdf (4 bytes): I do not recognize its type]",
    )
    bare = await server.post_message("ada", "general", bot.mention)
    await bot.wait_for_replies(bare, "heard: Ada Lovelace: [Ada Lovelace mentioned you without a text]")


async def test_the_prompt_has_the_name_of_the_bot_in_discord(server: DiscordSimulator, tmp_path: Path) -> None:
    server._guild.bot = replace(server._guild.bot, name="robby")
    async with run_bot(server, tmp_path, echo) as bot:
        await bot.mention_bot("ada", "general", "Who are you?")
        await bot.wait_for_turns(1)
        assert bot.model.requests[-1]["messages"][0]["content"].startswith("You are robby,")
