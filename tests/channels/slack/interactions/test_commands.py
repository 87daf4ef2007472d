"""Slash commands on Slack, and their ephemeral responses."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from channels.commands.handlers import COMMAND_DESCRIPTIONS, CommandHandler, CommandResult
from channels.i18n import messages as words
from channels.intake.backfill import Backfill
from channels.slack.interactions.commands import MAX_CHOICES, SLASH_COMMANDS
from channels.slack.interactions.shortcuts import SHORTCUTS
from chatrig.models import Pause, Say
from chatrig.slack import SlackMessage, SlackSimulator
from core.conversations.service import ConversationService
from core.errors import StoreError
from core.inbox import entries
from core.inbox.entries import EntryStore
from tests.channels.slack.conftest import BOTH_MODES, WiredSlackBot, run_bot
from tests.channels.wiring import MODELS, echo


async def run_command(bot: WiredSlackBot, user: str, channel: Any, command: str, text: str = "") -> SlackMessage:
    """Run a slash command, wait for its ephemeral response, and return the response."""
    responses = await bot.slack.run_command(user, channel, command, text)
    (message,) = await bot.slack.wait_for(lambda: responses)
    assert message.ephemeral_to == bot.slack.people[user].id
    return message


def list_model_messages(bot: WiredSlackBot) -> list[str]:
    """Return the texts of the user messages in the newest model request."""
    return [message["content"] for message in bot.model.requests[-1]["messages"] if message["role"] == "user"]


@BOTH_MODES
async def test_with_several_threads_the_user_chooses_one_to_reset(slack: SlackSimulator, bot: WiredSlackBot) -> None:
    questions = [await bot.mention_bot("ada", "general", f"question {n} <https://a.example|there>") for n in range(7)]
    await bot.mention_bot("grace", "general", "mine")
    await bot.wait_for_turns(8)
    choice = await run_command(bot, "ada", "general", "/reset")
    assert choice.text == words.CHOOSE_RESET
    newest = [f"question {n} there (https://a.example)" for n in range(6, 6 - MAX_CHOICES, -1)]
    assert list(choice.buttons) == newest
    with pytest.raises(ValueError, match="no button"):
        await slack.click_button("grace", choice, choice.buttons[newest[1]])
    assert await slack.click_button("ada", choice, choice.buttons[newest[1]])
    await slack.wait_for(lambda: choice.text == words.RESET_DONE)
    assert choice.buttons == {}
    for n, counted in ((5, 1), (6, 2)):
        await bot.mention_bot("ada", "general", "again", thread_ts=questions[n].ts)
        await bot.wait_for_texts(questions[n], lambda texts: "heard: ada: again" in texts)
        assert len(list_model_messages(bot)) == counted


async def test_help_lists_the_commands_in_the_language_of_the_user(slack: SlackSimulator, tmp_path: Path) -> None:
    slack.add_user("minsu", locale="ko-KR")
    async with run_bot(slack, tmp_path, echo) as bot:
        response, korean = (await run_command(bot, "ada", "general", "/help")).text, words.messages_for("ko")
        for text in (
            words.HELP_COMMANDS,
            *(f"`{written}" for written in SLASH_COMMANDS),
            *SHORTCUTS.values(),
            "`model [NAME]`",
        ):
            assert text in response
        assert korean(words.HELP_COMMANDS) in (response := (await run_command(bot, "minsu", "general", "/help")).text)
        for text in ("`/model [이름]`", *map(korean, COMMAND_DESCRIPTIONS.values()), *SHORTCUTS.values()):
            assert text in response


async def test_models_and_agents_are_listed_before_the_first_question(bot: WiredSlackBot) -> None:
    assert MODELS[1] in (await run_command(bot, "ada", "general", "/model")).text
    assert "`parley`" in (await run_command(bot, "ada", "general", "/agent")).text
    assert (await run_command(bot, "ada", "general", "/model", MODELS[1])).text == words.NOTHING_TO_RESET


async def test_an_unknown_export_format_is_rejected_before_a_thread_is_chosen(bot: WiredSlackBot) -> None:
    for number in ("one", "two"):
        await bot.mention_bot("ada", "general", number)
    await bot.wait_for_turns(2)
    assert (await run_command(bot, "ada", "general", "/export", "pdf")).text == words.UNKNOWN_EXPORT_FORMAT
    assert (await run_command(bot, "ada", "general", "/export", "JSON")).text == words.CHOOSE_EXPORT


async def test_a_direct_message_cannot_be_muted(slack: SlackSimulator, bot: WiredSlackBot) -> None:
    question = await slack.post_message("ada", slack.open_dm("ada").id, "one")
    await bot.wait_for_texts(question, lambda texts: texts[1:] == ["heard: one"])
    await slack.post_message("ada", question.channel.id, "mute", thread_ts=question.ts)
    await bot.wait_for_texts(question, lambda texts: texts[2:] == ["mute", words.CANNOT_MUTE_DM])


async def test_a_short_export_is_posted_in_place_and_a_long_one_as_a_dm(slack: SlackSimulator, tmp_path: Path) -> None:
    async with run_bot(slack, tmp_path, "Blue.", "So it is. " * 500) as bot:
        question = await bot.mention_bot("ada", "general", "which colour?")
        await bot.wait_for_turns(1)
        exported = await run_command(bot, "ada", "general", "/export")
        assert words.EXPORTED in exported.text
        assert "which colour?" in exported.text
        assert "Blue." in exported.text
        # JSON is always a file: Slack would parse markup in a text
        assert (await run_command(bot, "ada", "general", "/export", "json")).text == words.SENT_AS_DM
        (sent,) = [message for message in slack.messages(slack.open_dm("ada")) if message.files]
        assert json.loads(sent.files[0].data)["runs"]
        await bot.mention_bot("ada", "general", "why?", thread_ts=question.ts)
        await bot.wait_for_turns(2)
        assert (await run_command(bot, "ada", "general", "/export")).text == words.SENT_AS_DM
        opening, sent = slack.messages(slack.open_dm("ada"))[2:]
        assert (opening.text, sent.thread_ts) == (words.EXPORTED, opening.ts)
        (file,) = sent.files
        assert file.name.endswith(".md")
        assert "So it is. So it is." in file.data.decode()


async def test_in_direct_messages_an_export_is_a_file_in_its_thread(slack: SlackSimulator, bot: WiredSlackBot) -> None:
    direct = slack.open_dm("ada")
    question = await slack.post_message("ada", direct, "one")
    await slack.post_message("ada", direct, "two")
    await bot.wait_for_turns(2)
    choice = await run_command(bot, "ada", direct, "/export")
    assert choice.text == words.CHOOSE_EXPORT
    assert await slack.click_button("ada", choice, choice.buttons["one"])
    await slack.wait_for(lambda: choice.text == words.SENT_IN_THREAD)
    (file_message,) = [message for message in bot.list_thread(question) if message.files]
    assert "one" in file_message.files[0].data.decode()


async def test_a_command_during_an_outage_is_acknowledged_and_gets_an_error(
    slack: SlackSimulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def raise_store_error(*_: Any, **__: Any) -> Any:
        raise StoreError("out of reach")

    async with run_bot(slack, tmp_path, echo) as bot:
        monkeypatch.setattr(ConversationService, "list_recent", raise_store_error)
        for command in SLASH_COMMANDS:
            assert StoreError.public in (await run_command(bot, "ada", "general", command)).text
        assert all(envelope.acknowledged_at for envelope in slack.envelopes)


async def test_an_export_with_a_lost_response_is_posted_once(slack: SlackSimulator, tmp_path: Path) -> None:
    async with run_bot(slack, tmp_path, "So it is. " * 500) as bot:
        direct = slack.open_dm("ada")
        question = await slack.post_message("ada", direct, "why?")
        await bot.wait_for_turns(1)
        slack.faults.lose_response("files.completeUploadExternal")
        await slack.run_command("ada", direct, "/export")
        await slack.wait_for(lambda: any(message.text == words.SENT_IN_THREAD for message in slack.messages(direct)))
        assert sum(bool(message.files) for message in bot.list_thread(question)) == 1


@pytest.mark.parametrize("word", ["/reset", "/stop"])
async def test_an_orphaned_command_ends_no_later_turn(
    slack: SlackSimulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, word: str
) -> None:
    monkeypatch.setattr(entries, "POLL_SECONDS", 0.05)
    started, asked, go_on, done = (asyncio.Event() for _ in range(4))
    watch, run = EntryStore.run_abandoned, CommandHandler.run

    async def hang(*_: Any, **__: Any) -> CommandResult:
        started.set()
        await asyncio.Event().wait()
        raise AssertionError("it died")

    async def watch_late(*args: Any) -> None:
        await asked.wait()
        await watch(*args)

    async def run_and_signal(self: CommandHandler, *args: Any, **kwargs: Any) -> CommandResult:
        response = await run(self, *args, **kwargs)
        done.set()
        return response

    async with run_bot(slack, tmp_path, "Well.") as bot:
        one = await bot.mention_bot("ada", "general", "one")
        await bot.wait_for_texts(one, lambda texts: "Well." in texts)
        await bot.wait_for_turns(1)
        monkeypatch.setattr(CommandHandler, "run", hang)
        giving = asyncio.create_task(slack.run_command("ada", "general", word))
        await asyncio.wait_for(started.wait(), 30)
    giving.cancel()
    await asyncio.wait([giving])
    monkeypatch.setattr(CommandHandler, "run", run_and_signal)
    monkeypatch.setattr(EntryStore, "run_abandoned", watch_late)
    async with run_bot(slack, tmp_path, [Say("It is "), Pause(go_on), Say("blue.")]) as bot:
        await slack.post_message("ada", "general", f"{bot.mention} which colour?", thread_ts=one.ts)
        await bot.wait_for_texts(one, lambda texts: texts[-1].startswith("It is"))
        asked.set()
        await asyncio.wait_for(done.wait(), 30)
        go_on.set()
        assert [row.state for row in await bot.wait_for_turns(2)] == ["done", "done"]


async def test_an_orphaned_reset_keeps_later_messages_that_were_not_stored(
    slack: SlackSimulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(entries, "POLL_SECONDS", 0.05)
    started, done, run, look = asyncio.Event(), asyncio.Event(), CommandHandler.run, Backfill._fetch_all

    async def hang(*_: Any, **__: Any) -> CommandResult:
        started.set()
        await asyncio.Event().wait()
        raise AssertionError("it died")

    async def run_and_signal(self: CommandHandler, *args: Any, **kwargs: Any) -> CommandResult:
        response = await run(self, *args, **kwargs)
        done.set()
        return response

    async def fetch_late(self: Backfill) -> None:
        await done.wait()
        await look(self)

    async with run_bot(slack, tmp_path, "Well.") as bot:
        one = await bot.mention_bot("ada", "general", "one")
        await bot.wait_for_texts(one, lambda texts: "Well." in texts)
        await bot.wait_for_turns(1)
        monkeypatch.setattr(CommandHandler, "run", hang)
        giving = asyncio.create_task(slack.run_command("ada", "general", "/reset"))
        await asyncio.wait_for(started.wait(), 10)
    giving.cancel()
    await asyncio.wait([giving])
    await bot.mention_bot("ada", "general", "which colour?", thread_ts=one.ts)
    await slack.discard_pending()
    monkeypatch.setattr(CommandHandler, "run", run_and_signal)
    monkeypatch.setattr(Backfill, "_fetch_all", fetch_late)
    async with run_bot(slack, tmp_path, "Blue.") as bot:
        await bot.wait_for_texts(one, lambda texts: texts[-1] == "Blue.")
