import asyncio
from pathlib import Path
from typing import Any

import discord
import pytest
from discord import app_commands

from channels.commands.handlers import COMMAND_DESCRIPTIONS
from channels.discord import dispatcher
from channels.i18n import messages as words
from chatrig.discord import DiscordSimulator
from core.errors import StoreError
from core.inbox.store import InboxStore
from tests.channels.discord.conftest import ANSWER, CALLBACK, WiredDiscordBot, run_bot, run_discord
from tests.channels.wiring import echo

REGISTER = "PUT /applications/{application}/commands"
RESET = {"name": "reset", "type": 1, "contexts": [0, 1, 2], "integration_types": [0, 1]}
NAMES = {*COMMAND_DESCRIPTIONS, "ask", words.ASK_ABOUT, words.WHY_THIS, words.GOOD_ANSWER, words.BAD_ANSWER}


async def reset_session(bot: WiredDiscordBot, user: str, channel: Any, text: str) -> None:
    """Run `/reset`, and check that the only response has this text and is ephemeral."""
    (response,) = responses = await bot.server.run_command(user, channel, "/reset")
    await bot.server.wait_for(lambda: [response.text for response in responses] == [text])
    assert response.ephemeral_to is bot.server.people[user]


async def test_the_command_resets_channels_threads_and_direct_messages(
    server: DiscordSimulator, bot: WiredDiscordBot
) -> None:
    root = await server.post_message("ada", "general", "a root")
    for place in ("general", server.open_dm("ada"), await server.start_thread("ada", root, "a thread")):
        await reset_session(bot, "ada", place, words.NOTHING_TO_RESET)
        question = await bot.mention_bot("ada", place, "one")
        await bot.wait_for_last_reply(question, lambda text: text.endswith("one"))
        await reset_session(bot, "grace" if place == "general" else "ada", place, words.RESET_DONE)
        question = await bot.mention_bot("ada", place, "two")
        await bot.wait_for_last_reply(question, lambda text: text.endswith("two"))
        assert len(bot.list_model_messages()) == 1


async def test_the_command_is_acknowledged_at_once_however_slow_the_database_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_session, go_on = InboxStore.has_session, asyncio.Event()

    async def find_session_slowly(self: InboxStore, session_id: str) -> bool:
        await go_on.wait()
        return await is_session(self, session_id)

    monkeypatch.setattr(InboxStore, "has_session", find_session_slowly)
    async with run_discord() as server, run_bot(server, tmp_path, echo) as bot:
        responses = await server.run_command("ada", "general", "/reset")
        assert [response.loading for response in responses] == [True]
        go_on.set()
        await server.wait_for(lambda: [response.text for response in responses] == [words.NOTHING_TO_RESET])
        assert bot.list_calls(CALLBACK)[0].body == {"type": 5, "data": {"flags": 64}}


async def test_a_command_whose_acknowledgement_is_refused_is_not_processed(
    server: DiscordSimulator, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chatrig.discord.interactions.delivery.ACK_TIMEOUT_SECONDS", 0.3)
    async with run_bot(server, tmp_path, echo) as bot:
        question = await bot.mention_bot("ada", "general", "one")
        await bot.wait_for_replies(question, "heard: Ada Lovelace: one")
        server.faults.fail(CALLBACK, status=400)
        (response,) = await server.run_command("ada", "general", "/reset")
        assert response.text == "The application did not respond"
        assert "an interaction could not be acknowledged: HTTPException, raised at" in caplog.text
        await bot.wait_for_replies(await bot.mention_bot("ada", "general", "two"), "heard: Ada Lovelace: two")
        assert len(bot.list_model_messages()) == 2


async def test_an_answer_that_discord_refuses_is_posted_in_the_conversation(
    server: DiscordSimulator, bot: WiredDiscordBot
) -> None:
    await bot.wait_for_replies(await bot.mention_bot("ada", "general", "one"), "heard: Ada Lovelace: one")
    server.faults.fail(ANSWER, status=404)
    await server.run_command("ada", "general", "/reset")
    await server.wait_for(lambda: bot.list_bot_messages("general")[-1].text == words.RESET_DONE)


@pytest.mark.parametrize("fault", ["rate_limit", "status", "lose_reply"])
async def test_a_confirmation_with_a_transient_failure_is_retried(
    server: DiscordSimulator, bot: WiredDiscordBot, fault: str
) -> None:
    match fault:
        case "rate_limit":
            server.faults.rate_limit(ANSWER, 0.1, has_via_header=False)
        case "status":
            server.faults.fail(ANSWER, status=503)
        case _:
            server.faults.lose_response(ANSWER)
    await reset_session(bot, "ada", "general", words.NOTHING_TO_RESET)
    await server.wait_for(lambda: len(bot.list_calls(ANSWER)) == 2 and bot.list_calls(ANSWER)[1].status == 200)


async def test_each_start_registers_the_same_commands(server: DiscordSimulator, tmp_path: Path) -> None:
    for starts in (1, 2):
        async with run_bot(server, tmp_path, echo) as bot:
            assert {command["name"] for command in server.commands} == NAMES
            assert sum(RESET.items() <= command.items() for command in server.commands) == 1
            assert len(bot.list_calls(REGISTER)) == starts


async def test_the_descriptions_of_commands_are_translated(server: DiscordSimulator, bot: WiredDiscordBot) -> None:
    commands = {command["name"]: command for command in server.commands}
    korean = words.messages_for("ko")
    assert commands["reset"]["description_localizations"] == {"ko": korean(words.RESET_HELP)}
    assert commands[words.ASK_ABOUT]["name_localizations"] == {"ko": korean(words.ASK_ABOUT)}
    (question,) = commands["ask"]["options"]
    assert question["description_localizations"] == {"ko": korean(words.ASK_OPTION)}
    assert not commands["reset"].get("name_localizations")


@pytest.mark.parametrize("there", [[], ["reset", "other"], ["other"], ["changed"]], ids=" ".join)
async def test_any_other_commands_are_replaced(
    server: DiscordSimulator, client: discord.Client, tmp_path: Path, there: list[str]
) -> None:
    tree = app_commands.CommandTree(client)
    for name in there:

        @tree.command(name="reset" if name == "changed" else name, description="Something else")
        async def command(interaction: discord.Interaction) -> None: ...

    await tree.sync()
    async with run_bot(server, tmp_path, echo) as bot:
        assert {command["name"] for command in server.commands} == NAMES
        assert len(bot.list_calls(REGISTER)) == 2


@pytest.mark.parametrize("fault", ["limit", "status", "lose_reply", "delay"])
async def test_a_start_does_not_depend_on_the_commands(
    server: DiscordSimulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    monkeypatch.setattr(dispatcher, "SYNC_TIMEOUT_SECONDS", 0.2)
    match fault:
        case "limit":
            server.faults.rate_limit(REGISTER, 20)
        case "status":
            server.faults.fail(REGISTER, status=503)
        case "lose_reply":
            server.faults.lose_response(REGISTER)
        case _:
            server.faults.delay(REGISTER, 0.5)
    async with run_bot(server, tmp_path, echo) as bot:
        assert len(bot.list_calls("GET /gateway/bot")) == 2  # for the number of shards, and for one connection
        await bot.wait_for_replies(await bot.mention_bot("ada", "general", "hello"), "heard: Ada Lovelace: hello")


async def test_a_database_failure_is_reported_to_the_user(
    server: DiscordSimulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def raise_store_error(self: InboxStore, session_id: str) -> bool:
        raise StoreError("out of reach")

    monkeypatch.setattr(InboxStore, "has_session", raise_store_error)
    async with run_bot(server, tmp_path, echo) as bot:
        await reset_session(bot, "ada", "general", words.ENGLISH.format_error(StoreError.public))
