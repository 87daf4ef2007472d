"""Direct messages on Slack: a session per thread, or one for the whole DM."""

from pathlib import Path
from typing import Any

import pytest

from channels.i18n import messages as words
from chatrig.models import Pause, Say
from chatrig.slack import SlackSimulator
from tests.channels.slack.conftest import run_bot


def count(request: Any) -> str:
    return f"{sum(role == 'user' for role, _ in request.messages)}: {request.text}"


@pytest.mark.parametrize("streaming", ["edit", "auto", "native"])
async def test_direct_messages_can_share_a_session_without_threads(
    slack: SlackSimulator, tmp_path: Path, streaming: str
) -> None:
    async with run_bot(slack, tmp_path, count, dm_sessions="single", streaming=streaming) as bot:  # type: ignore[arg-type]
        direct = slack.open_dm("ada")
        for number, text in enumerate(("one", "two"), start=1):
            await slack.post_message("ada", direct, text)
            await bot.wait_for_turns(number)
        assert [message.text for message in slack.messages(direct)] == ["one", "1: one", "two", "2: two"]
        assert {message.thread_ts for message in slack.messages(direct)} == {None}
        thread = slack.messages(direct)[0]
        await slack.post_message("ada", direct, "three", thread_ts=thread.ts)
        await bot.wait_for_texts(thread, lambda texts: texts[-1] == "3: three")
        assert len({row.session for row in await bot.list_inbox_messages()}) == 1
        assert {call.error for call in slack.calls} == {None}


async def test_channels_keep_their_threads(slack: SlackSimulator, tmp_path: Path) -> None:
    async with run_bot(slack, tmp_path, count, dm_sessions="single") as bot:
        question = await bot.mention_bot("ada", "general", "one")
        await bot.wait_for_texts(question, lambda texts: "1: ada: one" in texts)


async def test_a_reply_without_a_thread_is_found_after_a_crash(slack: SlackSimulator, tmp_path: Path) -> None:
    async with run_bot(slack, tmp_path, [Say("Once"), Pause(60)], "Once upon a time.", dm_sessions="single") as bot:
        direct = slack.open_dm("ada")
        await slack.post_message("ada", direct, "a story")
        await slack.wait_for(lambda: slack.messages(direct)[-1].text == "Once")
        await bot.restart_worker(chunks=[])
        await slack.wait_for(lambda: slack.messages(direct)[-1].text == "Once upon a time.")
        assert len(slack.messages(direct)) == 2


async def test_missed_messages_without_a_thread_are_answered(slack: SlackSimulator, tmp_path: Path) -> None:
    async with run_bot(slack, tmp_path, count, dm_sessions="single") as bot:
        direct = slack.open_dm("ada")
        await slack.post_message("ada", direct, "one")
        await bot.wait_for_turns(1)
        await slack.freeze_sockets()
        await slack.post_message("ada", direct, "two")
        await slack.discard_pending()
        await slack.wait_for(lambda: slack.messages(direct)[-1].text == "2: two", timeout=20)


async def test_a_reset_clears_the_shared_session(slack: SlackSimulator, tmp_path: Path) -> None:
    async with run_bot(slack, tmp_path, count, dm_sessions="single") as bot:
        direct = slack.open_dm("ada")
        await slack.post_message("ada", direct, "one")
        await bot.wait_for_turns(1)
        await slack.post_message("ada", direct, "reset")
        await slack.wait_for(lambda: slack.messages(direct)[-1].text == words.RESET_DONE)
        await slack.post_message("ada", direct, "two")
        await slack.wait_for(lambda: slack.messages(direct)[-1].text == "1: two")
