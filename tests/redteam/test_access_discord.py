"""Attempts of denied users to reach the bot in Discord, by every way."""

from pathlib import Path

import pytest

from bot import settings as configuration
from channels.access import DM_RULE, AccessRules
from channels.i18n import messages as words
from chatrig.discord import DiscordMessage, DiscordSimulator
from core.errors import SurfaceError
from core.usage.user_rate_limits import CommandLimiter, RateLimit, RateLimitDenial, UserRateLimiter
from tests.channels.discord.conftest import WiredDiscordBot, run_bot
from tests.channels.wiring import echo, find_tables_with

OPEN_DM = "POST /users/@me/channels"


def list_dm_texts(bot: WiredDiscordBot, user: str) -> list[str]:
    """Return the texts of the bot's messages in a user's DM."""
    return [message.text for message in bot.list_bot_messages(bot.server.open_dm(user))]


def list_public_texts(bot: WiredDiscordBot) -> list[str]:
    """Return the texts of the bot's public messages in `general` and `random`."""
    return [m.text for name in ("general", "random") for m in bot.list_bot_messages(name) if m.ephemeral_to is None]


async def wait_for_text(bot: WiredDiscordBot, message: DiscordMessage, text: str) -> None:
    await bot.server.wait_for(lambda: message.text == text)


async def wait_until_processed(bot: WiredDiscordBot) -> None:
    """Wait until the bot has processed all earlier messages.

    It posts a message as another user, and waits for the answer.
    """
    last = await bot.server.post_message("linus", bot.server.open_dm("linus"), "last")
    await bot.wait_for_replies(last, "heard: last")
    await bot.adapter._intake.drain(20)


async def test_a_blocked_user_is_denied_everywhere_and_told_once(server: DiscordSimulator, tmp_path: Path) -> None:
    role = server.assign_role("grace", "banned")
    rules = AccessRules(block=frozenset({f"role:{role}"}), allow=frozenset({f"guild:{server.guild_id}"}))
    async with run_bot(server, tmp_path, echo, rules=rules, auto_thread=True) as bot:
        message = await server.post_message("ada", "general", "this")
        thread = await server.start_thread("ada", message, "a thread")
        question = await bot.mention_bot("ada", thread, "one")
        (answer,) = await bot.wait_for_replies(question, "heard: Ada Lovelace: one")
        public_texts, threads = list_public_texts(bot), len(server.threads("general"))
        await bot.mention_bot("grace", "general", "sesame open")
        await server.wait_for(lambda: list_dm_texts(bot, "grace") == [words.USER_NOT_ALLOWED])
        await bot.mention_bot("grace", "general", "sesame again")
        await server.post_message("grace", thread, "sesame there")
        await server.post_message("grace", server.open_dm("grace"), "sesame alone")
        await server.post_message("grace", thread, "sesame reply", reply_to=answer)
        edited = await server.post_message("grace", "random", "sesame quiet")
        await server.edit_message("grace", edited, f"{bot.mention} sesame quiet")
        for name in ("reset", "stop", "help", "info", "model", "export", "mute", "listen"):
            (one,) = await server.run_command("grace", "general", name)
            await wait_for_text(bot, one, words.USER_NOT_ALLOWED)
            assert one.ephemeral_to == server.people["grace"]
        for one in (
            *await server.run_command("grace", "general", "ask", question="sesame?"),
            *await server.run_message_command("grace", message, words.ASK_ABOUT),
        ):
            await wait_for_text(bot, one, words.USER_NOT_ALLOWED)
        assert await server.autocomplete_option("grace", "general", "model", "name", "o") == []
        for custom_id in answer.buttons.values():
            assert await server.click_button("grace", answer, custom_id) == []
        await wait_until_processed(bot)
        assert list_dm_texts(bot, "grace") == [words.USER_NOT_ALLOWED]
        assert (list_public_texts(bot), len(server.threads("general"))) == (public_texts, threads)
        assert len(await bot.list_inbox_messages()) == 2
        assert await find_tables_with(bot, "sesame") == []


async def test_a_user_without_dms_gets_a_reaction_and_another_bot_gets_nothing(
    server: DiscordSimulator, tmp_path: Path
) -> None:
    rules = AccessRules(frozenset({f"user:{server.people['linus'].id}"}))
    async with run_bot(server, tmp_path, echo, rules=rules) as bot:
        server.faults.fail(OPEN_DM, status=403, code=50007, times=1)
        message = await bot.mention_bot("ada", "general", "hello")
        await server.wait_for(lambda: list(message.reactions) == ["🚫"])
        for webhook in (False, True):
            await server.post_as_other_bot(f"robot {webhook}", "general", f"{bot.mention} hello", webhook=webhook)
        await wait_until_processed(bot)
        assert list_public_texts(bot) == []
        assert len(await bot.list_inbox_messages()) == 1


@pytest.mark.parametrize("has_left", [False, True])
async def test_dms_are_open_to_members_of_allowed_servers_with_their_roles(
    server: DiscordSimulator, tmp_path: Path, *, has_left: bool
) -> None:
    role = server.assign_role("ada", "team")
    server.assign_role("linus", "team")
    if has_left:
        server.leave_guild("ada")
    rules = AccessRules(frozenset({f"guild:{server.guild_id}", f"role:{role}"}))
    async with run_bot(server, tmp_path, echo, rules=rules) as bot:
        dm = server.open_dm("ada")
        await server.post_message("ada", dm, "hello")
        await server.post_message("grace", server.open_dm("grace"), "hello")
        await server.wait_for(
            lambda: list_dm_texts(bot, "ada") == [words.USER_NOT_ALLOWED if has_left else "heard: hello"]
        )
        await server.wait_for(lambda: list_dm_texts(bot, "grace") == [words.USER_NOT_ALLOWED])
        await server.run_command("ada", server.open_group_dm("group", "ada", "grace"), "help")
        await wait_until_processed(bot)


async def test_by_default_only_members_of_allowed_servers_may_send_dms(
    server: DiscordSimulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DISCORD_GUILD_IDS", server.guild_id)
    rules = configuration.load_settings().access_policy.get_rules("discord")
    server.leave_guild("ada")
    async with run_bot(server, tmp_path, echo, rules=rules, guilds=frozenset({int(server.guild_id)})) as bot:
        await bot.wait_for_replies(await server.post_message("grace", server.open_dm("grace"), "hello"), "heard: hello")
        await server.post_message("ada", server.open_dm("ada"), "hello")
        await server.wait_for(lambda: list_dm_texts(bot, "ada") == [words.PLACE_NOT_ALLOWED])
        (response,) = await server.run_command(
            "ada", server.open_group_dm("group", "ada", "grace"), "ask", question="may I?"
        )
        await server.wait_for(lambda: response.text == words.PLACE_NOT_ALLOWED)
        assert len(await bot.list_turns()) == 1


async def test_a_rule_for_a_category_covers_its_channels_and_threads(server: DiscordSimulator, tmp_path: Path) -> None:
    secret = server.add_channel("secret")
    secret.category_id = "4711"
    rules = AccessRules(frozenset({"channel:4711", DM_RULE}))
    async with run_bot(server, tmp_path, echo, rules=rules) as bot:
        thread = await server.start_thread("ada", await server.post_message("ada", secret, "root"), "a thread")
        for place in (secret, thread):
            await bot.wait_for_replies(await bot.mention_bot("ada", place, "one"), "heard: Ada Lovelace: one")
        await bot.mention_bot("ada", "general", "one")
        await server.wait_for(lambda: list_dm_texts(bot, "ada") == [words.PLACE_NOT_ALLOWED])
        (response,) = await server.run_command(
            "ada", server.add_foreign_channel("abroad", "ada"), "ask", question="may I?"
        )
        await server.wait_for(lambda: response.text == words.PLACE_NOT_ALLOWED)


async def test_backfilled_messages_pass_the_access_policy(server: DiscordSimulator, tmp_path: Path) -> None:
    role = server.assign_role("grace", "banned")
    async with run_bot(server, tmp_path, echo) as bot:
        for user in ("ada", "grace"):
            await bot.wait_for_replies(
                await bot.mention_bot(user, "general", "one"), f"heard: {server.people[user].display_name}: one"
            )
    await bot.mention_bot("grace", "general", "two")
    question = await bot.mention_bot("ada", "general", "two")
    async with run_bot(server, tmp_path, echo, rules=AccessRules(block=frozenset({f"role:{role}"}))) as bot:
        await bot.wait_for_replies(question, "heard: Ada Lovelace: two")
        await wait_until_processed(bot)
        assert len(await bot.list_inbox_messages()) == 4
        assert list_dm_texts(bot, "grace") == []  # no notice for an old message


async def test_a_private_thread_is_a_location_of_its_own(server: DiscordSimulator, tmp_path: Path) -> None:
    async with run_bot(server, tmp_path, echo) as bot:
        public = await server.start_thread("ada", await server.post_message("ada", "general", "root"), "public")
        private = await server.start_private_thread("ada", "general", "private")
        for place in (public, private):
            await bot.wait_for_replies(await bot.mention_bot("ada", place, "one"), "heard: Ada Lovelace: one")
        general = server.channels["general"].id
        assert [row.place.rpartition(":")[2] for row in await bot.list_inbox_messages()] == [general, private.id]
        assert [row.session.rpartition(":")[2] for row in await bot.list_inbox_messages()] == [public.id, private.id]


async def test_a_rate_limited_private_question_gets_an_answer_each_time(
    server: DiscordSimulator, tmp_path: Path
) -> None:
    core = {"rates": UserRateLimiter(user=RateLimit(1, 3600))}
    async with run_bot(server, tmp_path, echo, core=core) as bot:
        group = server.open_group_dm("us", "ada")
        for n in range(3):
            (response,) = await server.run_command("ada", group, "ask", question=f"question {n}")
            await wait_for_text(
                bot, response, words.ENGLISH(words.MESSAGE_LIMIT_REACHED, minutes=60) if n else "heard: question 0"
            )
            await bot.wait_for_turns(1)
        assert list_dm_texts(bot, "ada") == []


async def test_each_rate_limited_command_gets_a_private_answer(
    server: DiscordSimulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RateLimitDenial, "minutes", 60)
    async with run_bot(server, tmp_path, echo) as bot:
        bot.adapter._intake.commands._limiter = CommandLimiter(RateLimit(1, 3600))
        refusal = words.ENGLISH(words.COMMAND_LIMIT_REACHED, minutes=60)
        responses = [await server.run_command("ada", "general", "info") for _ in range(3)]
        for response, text in zip(responses, [words.NOTHING_TO_RESET, refusal, refusal], strict=True):
            await server.wait_for(lambda response=response, text=text: [one.text for one in response] == [text])  # type: ignore[misc]
            assert response[0].ephemeral_to is not None


async def test_a_press_by_an_unresolved_user_is_denied_privately(server: DiscordSimulator, tmp_path: Path) -> None:
    role = server.assign_role("ada", "team")
    rules = AccessRules(frozenset({f"guild:{server.guild_id}", f"role:{role}"}))
    server.set_locale("ada", "ko")
    async with run_bot(server, tmp_path, echo, rules=rules) as bot:
        question = await server.post_message("ada", server.open_dm("ada"), "hello")
        (answer,) = await bot.wait_for_replies(question, "heard: hello")
        await server.wait_for(lambda: words.REGENERATE in answer.buttons)
        bot.adapter._intake._identities._roles._fresh.clear()
        server.faults.fail("GET /guilds/{guild}/members/{user}", status=403, code=50013, times=9)
        response = await server.click_button("ada", answer, answer.buttons[words.REGENERATE])
        await server.wait_for(
            lambda: [m.text for m in response] == [words.messages_for("ko").format_error(SurfaceError.public)]
        )
