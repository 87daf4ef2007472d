import asyncio
from pathlib import Path
from typing import Any

import pytest

from channels.i18n import messages as words
from channels.slack import adapter as adapter_module
from chatrig.models import Pause, Say
from chatrig.slack import SlackSimulator
from core.errors import SettingsError, StoreError
from core.inbox.store import InboxStore
from tests.channels.slack.conftest import BOTH_MODES, WiredSlackBot, run_bot
from tests.channels.wiring import echo


def is_acknowledged(slack: SlackSimulator) -> bool:
    ids = {envelope.id for envelope in slack.envelopes}
    return ids == {envelope.id for envelope in slack.envelopes if envelope.acknowledged_at is not None}


@BOTH_MODES
async def test_a_mention_is_answered_in_its_thread_and_named_in_the_prompt(
    slack: SlackSimulator, bot: WiredSlackBot
) -> None:
    question = await bot.mention_bot("ada", "general", "ask <@" + slack.people["grace"].id + "> &amp; me")
    texts = await bot.wait_for_texts(question, lambda texts: "heard: ada: ask @grace & me" in texts)
    assert len(texts) == 2
    await slack.wait_for(lambda: is_acknowledged(slack))
    (row,) = await bot.wait_for_turns(1)
    assert (row.state, row.text) == ("done", "heard: ada: ask @grace & me")
    reply = bot.list_thread(question)[1]
    assert row.chunks == [reply.ts]
    assert (reply.thread_ts, reply.edited, reply.unfurl_links, reply.unfurl_media) == (question.ts, *[False] * 3)


async def test_an_event_is_acknowledged_only_when_it_is_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    accept, refused = InboxStore.accept, 0

    async def fail_once(self: InboxStore, inbound: Any) -> Any:
        nonlocal refused
        if refused < 1:
            refused += 1
            assert not any(envelope.acknowledged_at for envelope in slack.envelopes)
            raise StoreError("out of reach")
        return await accept(self, inbound)

    monkeypatch.setattr(InboxStore, "accept", fail_once)
    async with SlackSimulator(speed=2) as slack, run_bot(slack, tmp_path, echo) as bot:
        question = await slack.post_message("ada", slack.open_dm("ada"), "hello")
        await slack.wait_for(lambda: len(slack.envelopes) >= 2)
        assert slack.envelopes[0].acknowledged_at is None
        await bot.wait_for_texts(question, lambda texts: texts == ["hello", "heard: hello"])

        def list_deliveries() -> list[tuple[int, bool]]:
            envelopes = [e for e in slack.envelopes if e.payload["event"].get("ts") == question.ts]
            return [(envelope.attempt, envelope.acknowledged_at is not None) for envelope in envelopes]

        await slack.wait_for(lambda: list_deliveries() == [(0, True), (1, False)])  # the redelivery is acknowledged
        assert len(await bot.wait_for_turns(1)) == 1


async def test_an_event_is_accepted_while_the_web_api_fails(slack: SlackSimulator, bot: WiredSlackBot) -> None:
    slack.faults.fail("auth.test", 5, error="internal_error")
    question = await slack.post_message("ada", slack.open_dm("ada"), "hello")
    await bot.wait_for_texts(question, lambda texts: texts == ["hello", "heard: hello"])


async def test_known_and_unknown_envelopes_are_acknowledged(slack: SlackSimulator, bot: WiredSlackBot) -> None:
    message = await slack.post_message("ada", "general", "not for the bot")
    await slack.edit_message("ada", message, "still not")
    await slack.delete_message("ada", message)
    await slack.post_as_other_bot("other", "general", f"{bot.mention} hello")
    await slack.open_home("ada")
    await slack.run_command("ada", "general", "/help")
    await slack.wait_for(lambda: len(slack.envelopes) >= 6 and is_acknowledged(slack))
    assert await bot.list_inbox_messages() == []


async def test_a_bare_mention_is_described_to_the_model(slack: SlackSimulator, bot: WiredSlackBot) -> None:
    question = await slack.post_message("ada", "general", bot.mention)
    await bot.wait_for_texts(question, lambda texts: "heard: ada: [ada mentioned you without a text]" in texts)


async def test_an_author_name_is_fetched_once(slack: SlackSimulator, bot: WiredSlackBot) -> None:
    question = await bot.mention_bot("ada", "general", "one")
    await bot.wait_for_turns(1)
    await bot.mention_bot("ada", "general", "two", thread_ts=question.ts)
    await bot.wait_for_turns(2)
    ada = slack.people["ada"].id
    assert sum(call.method == "users.info" and call.arguments["user"] == ada for call in slack.calls) == 1


async def test_a_socket_that_cannot_be_opened_ends_the_start_with_an_error(
    slack: SlackSimulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adapter_module, "CONNECT_TIMEOUT_SECONDS", 0.2)
    slack.faults.refuse_handshakes(100)
    async with run_bot(slack, tmp_path, echo, connect=False) as bot:
        with pytest.raises(SettingsError, match="no socket could be opened within"):
            await bot.adapter.start()


async def test_a_reply_begins_in_the_default_language_if_the_locale_takes_too_long(
    slack: SlackSimulator, tmp_path: Path
) -> None:
    slack.add_user("minsu", locale="ko-KR")
    go_on = asyncio.Event()
    async with run_bot(slack, tmp_path, [Pause(go_on), Say("Yes.")], [Say("  ")]) as bot:
        slack.faults.delay("users.info", 2.0)
        question = await bot.mention_bot("minsu", "general", "안녕?")
        await bot.wait_for_texts(question, lambda texts: words.PLACEHOLDER in texts)
        assert list(bot.list_thread(question)[1].buttons) == [words.STOP]
        go_on.set()
        await bot.wait_for_texts(question, lambda texts: "Yes." in texts)
        question = await bot.mention_bot("minsu", "general", "안녕?")
        korean = words.messages_for("ko")
        await bot.wait_for_texts(question, lambda texts: korean(words.NO_ANSWER) in texts)
