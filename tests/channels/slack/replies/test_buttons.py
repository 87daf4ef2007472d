"""Buttons under answers in Slack: Regenerate, ratings, Stop and Retry."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from channels.base import Button
from channels.i18n import messages as words
from channels.slack.client.blocks import LABEL_SIZE, button_blocks, pressed_id
from chatrig.models import Pause, Say
from chatrig.slack import SlackMessage, SlackSimulator
from chatrig.slack.state.controls import find_controls
from core.conversations.feedback import FeedbackStore
from core.errors import StoreError
from core.inbox.store import InboxStore
from tests.channels.slack.conftest import WiredSlackBot, run_bot

EITHER = pytest.mark.parametrize("streaming", ["edit", "native"])


def list_accessibility_labels(message: SlackMessage) -> list[str]:
    """Return the accessibility labels of a message's buttons, for screen readers."""
    return [control.accessibility_label for control in find_controls(message.blocks or ())]


async def wait_for_answer(bot: WiredSlackBot, question: SlackMessage, text: str) -> SlackMessage:
    await bot.wait_for_texts(question, lambda texts: texts[-1] == text)
    answer = bot.list_thread(question)[-1]
    await bot.slack.wait_for(lambda: words.REGENERATE in answer.buttons)
    return answer


@EITHER
async def test_an_answer_has_labelled_buttons_to_regenerate_and_rate(
    slack: SlackSimulator, tmp_path: Path, streaming: Any
) -> None:
    async with run_bot(slack, tmp_path, [Say("Blue "), Say("it is.")], streaming=streaming) as bot:
        question = await slack.post_message("ada", slack.open_dm("ada"), "which colour?")
        answer = await wait_for_answer(bot, question, "Blue it is.")
        assert list_accessibility_labels(answer) == [words.REGENERATE, words.GOOD_ANSWER, words.BAD_ANSWER]
        assert [block["type"] for block in answer.blocks or ()] == ["markdown", "actions", "context_actions"]
        assert not answer.edited


async def test_buttons_are_added_by_the_end_of_a_stream_without_another_call(
    slack: SlackSimulator, tmp_path: Path
) -> None:
    go_on = asyncio.Event()
    script = [[Say("Because of the way in which light is scattered. "), Pause(go_on), Say("Blue most.")]]
    async with run_bot(slack, tmp_path, *script, streaming="native") as bot:
        question = await slack.post_message("ada", slack.open_dm("ada"), "why?")
        await bot.wait_for_texts(question, lambda texts: "scattered" in texts[-1])
        go_on.set()
        await wait_for_answer(bot, question, "Because of the way in which light is scattered. Blue most.")
        await bot.wait_for_turns(1)
        ends = [call.method for call in slack.calls if call.method in ("chat.stopStream", "chat.update")]
        assert ends.count("chat.stopStream") == 1
        stopped = next(call for call in slack.calls if call.method == "chat.stopStream")
        assert stopped.arguments["blocks"]


async def test_a_press_is_acknowledged_before_it_is_processed(
    slack: SlackSimulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with run_bot(slack, tmp_path, "Blue.") as bot:
        question = await bot.mention_bot("ada", "general", "which colour?")
        answer = await wait_for_answer(bot, question, "Blue.")
        back = asyncio.Event()

        async def fail_late(*_: Any, **__: Any) -> Any:
            await back.wait()
            raise StoreError("out of reach")

        monkeypatch.setattr(InboxStore, "request_rerun", fail_late)
        monkeypatch.setattr(FeedbackStore, "save_feedback", fail_late)
        for label in (words.REGENERATE, words.GOOD_ANSWER):
            assert await asyncio.wait_for(slack.click_button("ada", answer, answer.buttons[label]), 30)
        back.set()
        await slack.wait_for(lambda: sum(StoreError.public in text for text in bot.list_texts(question)) == 2)


def test_buttons_that_share_an_action_id_differ_by_their_value() -> None:
    both = [Button("good:1", "Good"), Button("bad:1", "Bad")]
    (block,) = button_blocks(both)
    (element,) = block["elements"]
    for side, id_ in (("positive_button", "good:1"), ("negative_button", "bad:1")):
        assert pressed_id({"action_id": element["action_id"], "value": element[side]["value"]}) == id_
    assert pressed_id({"action_id": "retry:1"}) == "retry:1"


def test_a_lone_rating_is_an_ordinary_button_and_long_labels_are_truncated() -> None:
    (block,) = button_blocks([Button("good:1", "x" * 100, "primary")])
    (element,) = block["elements"]
    assert (element["type"], element["style"], len(element["text"]["text"])) == ("button", "primary", LABEL_SIZE)
