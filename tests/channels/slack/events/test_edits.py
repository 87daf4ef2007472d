"""Edits and deletions of Slack messages before, during and after their turn."""

from pathlib import Path
from typing import Any

import pytest

from channels.i18n import messages as words
from chatrig.slack import SlackSimulator
from core.errors import StoreError
from core.inbox.store import InboxStore
from tests.channels.slack.conftest import WiredSlackBot, run_bot
from tests.channels.wiring import echo


async def test_a_streamed_answer_to_an_edited_question_offers_a_new_answer(
    slack: SlackSimulator, tmp_path: Path
) -> None:
    async with run_bot(slack, tmp_path, echo, streaming="native") as bot:
        question = await slack.post_message("ada", slack.open_dm("ada"), "tow")
        await bot.wait_for_texts(question, lambda texts: texts[-1] == "heard: tow")
        await bot.wait_for_turns(1)
        await slack.edit_message("ada", question, "two")
        answer = bot.list_thread(question)[-1]
        await slack.wait_for(lambda: words.ANSWER_EDITED in answer.buttons)
        assert await slack.click_button("ada", answer, answer.buttons[words.ANSWER_EDITED])
        await slack.wait_for(lambda: answer.text == "heard: two")
        assert not answer.edited
        assert len(bot.list_thread(question)) == 2


async def test_edits_of_other_messages_and_of_the_bot_do_nothing(slack: SlackSimulator, bot: WiredSlackBot) -> None:
    message = await slack.post_message("grace", "general", "hi")
    await slack.edit_message("grace", message, "hi all")
    await slack.delete_message("grace", message)
    question = await bot.mention_bot("ada", "general", "one")
    await bot.wait_for_texts(question, lambda texts: "heard: ada: one" in texts)
    await slack.wait_for(lambda: all(envelope.acknowledged_at for envelope in slack.envelopes))
    assert len(await bot.list_inbox_messages()) == 1


async def test_an_edit_that_cannot_be_stored_is_redelivered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    revise, refused = InboxStore.edit_message, 0

    async def fail_once(self: InboxStore, event_key: str, text: str, **how: Any) -> Any:
        nonlocal refused
        refused += 1
        if refused == 1:
            raise StoreError("out of reach")
        return await revise(self, event_key, text, **how)

    monkeypatch.setattr(InboxStore, "edit_message", fail_once)
    async with SlackSimulator(speed=20) as slack, run_bot(slack, tmp_path, echo) as bot:
        question = await slack.post_message("ada", slack.open_dm("ada"), "tow")
        await bot.wait_for_turns(1)
        await slack.edit_message("ada", question, "two")
        await slack.wait_for(lambda: words.ANSWER_EDITED in bot.list_thread(question)[-1].buttons)
        assert refused >= 2
