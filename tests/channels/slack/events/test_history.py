"""Backfill of Slack messages that were posted while the bot was disconnected."""

from pathlib import Path
from typing import Any

import pytest
from tenacity.wait import wait_fixed

from channels.i18n import messages as words
from channels.intake import backfill
from channels.settings import BackfillLimits
from channels.slack.client import auth
from channels.slack.events import history
from chatrig.slack import SlackMessage, SlackSimulator
from tests.channels.slack.conftest import WiredSlackBot, run_bot
from tests.channels.wiring import echo, wait_until


@pytest.fixture(autouse=True)
def short_retry_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backfill, "FETCH_WAIT", wait_fixed(0.05))
    monkeypatch.setattr(backfill, "STORE_WAIT", wait_fixed(0.05))


def list_bot_texts(slack: SlackSimulator, message: SlackMessage) -> list[str]:
    """Return the bot's texts in the thread of a message, oldest first."""
    thread = slack.messages(message.channel, thread_ts=message.thread_ts or message.ts)
    return [message.text for message in thread if message.user == slack.bot_user_id]


def list_answered_texts(slack: SlackSimulator, message: SlackMessage) -> list[str]:
    """Return the texts that the bot's replies in a thread quote, in order.

    One reply may answer several messages.
    """
    return [answer for text in list_bot_texts(slack, message) for answer in text.removeprefix("heard: ").split("\n\n")]


async def wait_for_backfill(bot: WiredSlackBot, caplog: pytest.LogCaptureFixture) -> None:
    """Wait until the log reports the backfill, and all its messages are answered."""
    await wait_until(lambda: "slack: backfill of" in caplog.text)
    await bot.wait_for_messages(0)


@pytest.fixture(autouse=True)
def info_log_level(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")


# Downtime


async def test_missed_messages_of_threads_and_direct_messages_are_answered(
    slack: SlackSimulator, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with run_bot(slack, tmp_path, echo) as bot:
        await bot.mention_bot("ada", "random", "one")
        direct = await slack.post_message("ada", slack.open_dm("ada"), "hello")
        await bot.wait_for_messages(2)

    chatter = await slack.post_message("linus", "random", "not for the bot")
    await slack.post_message("linus", "random", "nor this", thread_ts=chatter.ts)
    called = await bot.mention_bot("grace", "random", "anybody?")
    await slack.post_message("grace", "random", "and?", thread_ts=called.ts)
    in_thread = await bot.mention_bot("grace", "random", "you", thread_ts=chatter.ts)
    again = await slack.post_message("ada", slack.open_dm("ada"), "back?", files=["plan.pdf"])
    await slack.post_message("ada", slack.open_dm("ada"), "more", thread_ts=direct.ts)
    await slack.post_as_other_bot("robot", "random", f"{bot.mention} beep")
    await slack.discard_pending()

    caplog.clear()
    async with run_bot(slack, tmp_path, echo) as bot:
        await wait_for_backfill(bot, caplog)
        assert list_answered_texts(slack, called) == ["grace: anybody?", "grace: and?"]
        assert list_bot_texts(slack, in_thread) == ["heard: grace: you"]
        assert list_bot_texts(slack, again) == [
            "heard: back?\n[ada sent a file that you cannot open: plan.pdf: I do not recognize its type]"
        ]
        assert list_bot_texts(slack, direct) == ["heard: hello", "heard: more"]
        assert len(await bot.list_inbox_messages()) == 7


@pytest.mark.parametrize(("word", "response"), [("reset", words.RESET_DONE), ("stop", words.NOTHING_TO_STOP)])
async def test_backfill_skips_messages_before_a_reset_or_stop(
    slack: SlackSimulator, tmp_path: Path, caplog: pytest.LogCaptureFixture, word: str, response: str
) -> None:
    async with run_bot(slack, tmp_path, echo) as bot:
        root = await bot.mention_bot("ada", "general", "one")
        await bot.wait_for_messages(1)
    await slack.post_message("ada", "general", "two", thread_ts=root.ts)
    await slack.discard_pending()
    ending = await bot.mention_bot("ada", "general", word, thread_ts=root.ts)  # this one is delivered
    slack.faults.delay("conversations.history", 2.0)
    caplog.clear()
    async with run_bot(slack, tmp_path, echo) as bot:
        await bot.wait_for_texts(ending, lambda texts: response in texts)
        await wait_for_backfill(bot, caplog)
        assert len(await bot.list_turns()) == 1
        assert len(await bot.list_inbox_messages()) == 2


async def test_an_inactive_thread_is_backfilled_only_for_a_mention(
    slack: SlackSimulator, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auth, "TOKEN_CHECK_SECONDS", 0.02)
    async with run_bot(slack, tmp_path, echo) as bot:
        quiet = await bot.mention_bot("ada", "general", "one")
        called = await bot.mention_bot("ada", "general", "one")
        await bot.wait_for_messages(2)
        await wait_until(lambda: bot.adapter.last_event_at() > float(called.ts))
    monkeypatch.setattr(backfill, "OVERLAP_SECONDS", 0.0)
    monkeypatch.setattr(backfill, "ACTIVE_SECONDS", -1.0)
    await slack.post_message("ada", "general", "two", thread_ts=quiet.ts)
    await bot.mention_bot("ada", "general", "two", thread_ts=called.ts)
    await slack.discard_pending()
    caplog.clear()
    async with run_bot(slack, tmp_path, echo) as bot:
        await wait_for_backfill(bot, caplog)
        assert list_bot_texts(slack, quiet) == ["heard: ada: one"]
        assert list_bot_texts(slack, called) == ["heard: ada: one", "heard: ada: two"]


# Limits


async def test_the_backfill_skips_messages_older_than_its_limit(
    slack: SlackSimulator, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with run_bot(slack, tmp_path, echo) as bot:
        await slack.post_message("ada", slack.open_dm("ada"), "hello")
        await bot.wait_for_messages(1)
    old = await slack.post_message("ada", slack.open_dm("ada"), "old")
    await slack.discard_pending()
    caplog.clear()
    async with run_bot(slack, tmp_path, echo, backfill_limits=BackfillLimits(hours=1e-9)) as bot:
        await wait_for_backfill(bot, caplog)
        assert not list_bot_texts(slack, old)


async def test_the_backfill_reads_several_pages(
    slack: SlackSimulator, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "PAGE_SIZE", 2)
    async with run_bot(slack, tmp_path, echo) as bot:
        root = await bot.mention_bot("ada", "general", "one")
        await bot.wait_for_messages(1)
    called = await bot.mention_bot("ada", "general", "early")
    for number in range(3):
        await slack.post_message("linus", "general", f"noise {number}")
        await slack.post_message("ada", "general", f"follow-up {number}", thread_ts=root.ts)
    await slack.discard_pending()
    caplog.clear()
    async with run_bot(slack, tmp_path, echo) as bot:
        await wait_for_backfill(bot, caplog)
        assert list_bot_texts(slack, called) == ["heard: ada: early"]
        assert len(list_answered_texts(slack, root)) == 4


# Lost events


async def test_a_message_on_a_dead_connection_is_backfilled(
    slack: SlackSimulator, bot: WiredSlackBot, caplog: pytest.LogCaptureFixture
) -> None:
    await slack.post_message("ada", slack.open_dm("ada"), "hello")
    await bot.wait_for_messages(1)
    await slack.freeze_sockets()
    question = await slack.post_message("ada", slack.open_dm("ada"), "are you there?")
    await slack.wait_for(lambda: slack.envelopes[-1].payload["event"].get("ts") == question.ts)
    await slack.discard_pending()
    await slack.wait_until_connected()
    await bot.wait_for_texts(question, lambda texts: texts == ["are you there?", "heard: are you there?"])
    assert "slack: backfill of" in caplog.text


# Failed backfills


async def test_a_failed_backfill_is_repeated_and_moves_no_watermark(
    slack: SlackSimulator, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backfill, "WATERMARK_SECONDS", 0.02)
    monkeypatch.setattr(auth, "TOKEN_CHECK_SECONDS", 0.02)
    async with run_bot(slack, tmp_path, echo) as bot:
        await slack.post_message("ada", slack.open_dm("ada"), "hello")
        await bot.wait_for_messages(1)
    question = await slack.post_message("ada", slack.open_dm("ada"), "back?")
    await slack.discard_pending()
    slack.faults.fail("conversations.history", 1000, error="token_revoked")
    async with run_bot(slack, tmp_path, echo) as bot:
        await wait_until(lambda: "a gap is not fetched yet" in caplog.text)
        await wait_until(lambda: sum(call.method == "conversations.history" for call in slack.calls) >= 3)
        heard_at = await bot.watermarks.get_watermark("slack")
        assert heard_at is not None
        assert heard_at < float(question.ts)
        slack.faults.clear()
        slack.faults.rate_limit("conversations.history", 1)
        await bot.wait_for_texts(question, lambda texts: texts == ["back?", "heard: back?"])
        await wait_until(lambda: (bot.adapter._backfill._watermark or 0.0) > float(question.ts))


async def test_a_missing_scope_is_logged_and_affects_only_its_places(
    slack: SlackSimulator, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    people = ("ada", "grace", "linus")
    async with run_bot(slack, tmp_path, echo) as bot:
        for user in people:
            await slack.post_message(user, slack.open_dm(user), "hello")
        await bot.wait_for_messages(3)
    messages = [await slack.post_message(user, slack.open_dm(user), "back?") for user in people]
    await slack.discard_pending()
    slack.faults.fail("conversations.history", 2, error="missing_scope")
    caplog.clear()
    async with run_bot(slack, tmp_path, echo) as bot:
        await wait_for_backfill(bot, caplog)
        await bot.wait_for_messages(4)
        assert caplog.text.count("the missed messages of") == 2
        assert [list_bot_texts(slack, message) for message in messages].count(["heard: back?"]) == 1


async def test_an_org_wide_app_finds_users_of_other_workspaces(
    slack: SlackSimulator, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    slack.join_enterprise("E0ORG")
    slack.add_user("noor", team_id="T0OTHER")
    async with run_bot(slack, tmp_path, echo) as bot:
        received = await bot.mention_bot("noor", "general", "one")
        await bot.wait_for_messages(1)
        assert list_bot_texts(slack, received) == ["heard: noor: one"]
    missed = await slack.post_message("noor", "general", f"<@{slack.bot_user_id}> two")
    await slack.discard_pending()
    caplog.clear()
    async with run_bot(slack, tmp_path, echo) as bot:
        await wait_for_backfill(bot, caplog)
        assert list_bot_texts(slack, missed) == ["heard: noor: two"]
        assert len(await bot.list_inbox_messages()) == 2
        assert {row.session.split(":")[1] for row in await bot.list_inbox_messages()} == {slack.team_id}


@pytest.mark.parametrize("dm_sessions", ["thread", "single"])
async def test_the_backfill_finds_messages_in_older_threads_of_direct_messages(
    slack: SlackSimulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dm_sessions: Any
) -> None:
    monkeypatch.setattr(history, "THREAD_SECONDS", -30.0)  # the thread counts as older than the limit
    monkeypatch.setattr(backfill, "OVERLAP_SECONDS", 0.0)
    dm = slack.open_dm("ada")

    def has_answer(text: str) -> bool:
        return any(f"heard: {text}" in message.text for message in slack.messages(dm))

    async with run_bot(slack, tmp_path, echo, dm_sessions=dm_sessions) as bot:
        one = await slack.post_message("ada", dm, "one")
        await slack.wait_for(lambda: has_answer("one"))
        await bot.wait_for_turns(1)
    two = await slack.post_message("ada", dm, "two", thread_ts=one.ts)
    await slack.discard_pending()
    async with run_bot(slack, tmp_path, echo, dm_sessions=dm_sessions) as bot:
        await slack.wait_for(lambda: has_answer("two") or "heard: two" in bot.list_texts(two))
