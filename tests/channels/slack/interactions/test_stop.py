"""Slack's own stop button of an agent's thread."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from channels.i18n import messages as words
from channels.slack.manifest import SESSION_STOPPED
from chatrig.models import Pause, Say
from chatrig.slack import SlackSimulator
from core.inbox.entries import EntryStore
from tests.channels.slack.conftest import run_bot


@pytest.mark.parametrize("streaming", ["edit", "native"])
async def test_the_stop_button_of_slack_stops_the_answer(slack: SlackSimulator, tmp_path: Path, streaming: Any) -> None:
    async with run_bot(slack, tmp_path, [Say("Once upon a time"), Pause(60)], "Again.", streaming=streaming) as bot:
        question = await slack.post_message("ada", slack.open_dm("ada"), "a story")
        await bot.wait_for_texts(question, lambda texts: texts[-1].startswith("Once"))
        session = slack.find_session(question)
        assert session is not None
        await slack.click_stop("ada", question)
        texts = await bot.wait_for_texts(question, lambda texts: words.STOPPED[1:-1] in texts[-1])
        assert texts[-1].startswith("Once")
        (row,) = await bot.wait_for_turns(1)
        assert (row.state, row.error) == ("cancelled", "stop")
        await slack.wait_for(lambda: session.status == "active")
        assert not bot.list_thread(question)[-1].edited
        await bot.model.wait_for_disconnects()
        await slack.post_message("ada", question.channel, "go on", thread_ts=question.ts)
        await bot.wait_for_texts(question, lambda texts: texts[-1] == "Again.")


async def test_a_stop_by_another_user_is_refused_and_edits_continue(slack: SlackSimulator, tmp_path: Path) -> None:
    go_on = asyncio.Event()
    script = [[Say("Once upon a time "), Pause(go_on), Say("there was a king.")]]
    async with run_bot(slack, tmp_path, *script, streaming="native") as bot:
        question = await bot.mention_bot("ada", "general", "a story")
        await slack.wait_for(lambda: bot.list_texts(question)[-1].startswith("Once"))
        await slack.click_stop("grace", question)
        await slack.wait_for(lambda: words.NOTHING_TO_STOP in bot.list_texts(question))
        go_on.set()
        await bot.wait_for_texts(question, lambda texts: "Once upon a time there was a king." in texts)
        (row,) = await bot.wait_for_turns(1)
        assert row.state == "done"
        (whispered,) = [message for message in bot.list_thread(question) if message.text == words.NOTHING_TO_STOP]
        assert whispered.ephemeral_to == slack.people["grace"].id


async def test_a_redelivered_stop_does_not_stop_a_later_answer(
    slack: SlackSimulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = asyncio.Event()
    async with run_bot(slack, tmp_path, [Say("Once"), Pause(60)], [Say("It is "), Pause(go_on), Say("blue.")]) as bot:
        question = await slack.post_message("ada", slack.open_dm("ada"), "a story")
        await bot.wait_for_texts(question, lambda texts: texts[-1] == "Once")
        await slack.click_stop("ada", question)
        await bot.wait_for_texts(question, lambda texts: words.STOPPED[1:-1] in texts[-1])
        (stopped,) = [e for e in slack.envelopes if e.payload["event"]["type"] == SESSION_STOPPED]
        later = await slack.post_message("ada", question.channel, "which colour?", thread_ts=question.ts)
        await bot.wait_for_texts(later, lambda texts: texts[-1].startswith("It is"))
        second_stop, append = asyncio.Event(), EntryStore.append

        async def append_and_signal(self: EntryStore, *args: Any) -> bool:
            is_new = await append(self, *args)
            second_stop.set()
            return is_new

        monkeypatch.setattr(EntryStore, "append", append_and_signal)
        await slack.redeliver(stopped)
        await asyncio.wait_for(second_stop.wait(), 30)
        go_on.set()
        await bot.wait_for_texts(later, lambda texts: any("It is blue." in text for text in texts))
        rows = await bot.wait_for_turns(2)
        assert [row.state for row in rows] == ["cancelled", "done"]
