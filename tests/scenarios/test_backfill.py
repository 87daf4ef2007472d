"""Backfill: a bot that starts handles the messages that were sent while no bot ran."""

from typing import Any

import pytest

from bot.settings import Settings
from channels.i18n import messages as words
from channels.settings import BackfillLimits
from chatrig.models import Pause, ReceivedRequest, Say, ScriptedResponse
from tests.scenarios.chat import Chat, list_texts, open_chat, wait_for_answers, wait_for_texts
from tests.scenarios.conftest import StartBot, echo


async def wait_for_heard(chat: Chat, *questions: str) -> None:
    """Wait until the answers of `echo` quote exactly these questions; one answer may quote several."""

    def list_questions(answers: list[str]) -> list[str]:
        quotes = [quote for answer in answers for quote in answer.removeprefix("heard ").split("\n\n")]
        return [quote.rpartition(": ")[2] for quote in quotes]

    await wait_for_texts(chat, lambda answers: list_questions(answers) == list(questions))


async def begin_conversation(start: StartBot) -> Chat:
    """Return a thread in which a bot has answered "one" before it stopped."""
    async with start(echo) as chat:
        await chat.open_thread()
        await chat.say("one")
        await wait_for_answers(chat, "heard one")
    return chat


async def test_missed_messages_are_answered_once_and_in_order(start: StartBot) -> None:
    chat = await begin_conversation(start)
    await chat.say("two", mentions_bot=False)
    await chat.say("three", user="grace")
    await chat.say("four")
    await chat.say("not for the bot", user="linus", mentions_bot=False)
    await chat.lose_events()
    async with start(echo):
        await wait_for_heard(chat, "one", "two", "three", "four")
        await chat.say("five")
        await wait_for_heard(chat, "one", "two", "three", "four", "five")


async def test_a_message_that_is_both_delivered_and_fetched_is_answered_once(start: StartBot) -> None:
    chat = await begin_conversation(start)
    await chat.say("two")  # Slack delivers it to the next bot
    async with start(echo):  # which fetches the last minute, "one" too
        await wait_for_answers(chat, "heard one", "heard two")
        await chat.say("three")
        await wait_for_answers(chat, "heard one", "heard two", "heard three")


async def test_missed_edits_and_deletions_apply(start: StartBot) -> None:
    chat = await begin_conversation(start)
    await chat.delete(await chat.say("never mind"))
    await chat.edit(await chat.say("tow"), "two")
    await chat.lose_events()
    async with start(echo):
        await wait_for_answers(chat, "heard one", "heard two")
        await chat.say("three")
        await wait_for_answers(chat, "heard one", "heard two", "heard three")


async def test_a_missed_reset_applies_in_its_order(start: StartBot) -> None:
    def count_questions(request: ReceivedRequest) -> str:
        return f"{sum(role == 'user' for role, _ in request.messages)} in this session"

    async with start(count_questions) as chat:
        await chat.say("one")
        await wait_for_answers(chat, "1 in this session")
    await chat.say("reset")
    await chat.say("two")
    await chat.lose_events()
    async with start(count_questions):
        await wait_for_texts(chat, lambda texts: texts.count("1 in this session") == 2 and words.RESET_DONE in texts)
        await chat.say("three")
        await wait_for_texts(chat, lambda texts: texts[3:] == ["2 in this session"])


async def test_a_missed_stop_ends_the_answer_that_the_next_bot_continues(start: StartBot) -> None:
    def answer(request: ReceivedRequest) -> ScriptedResponse:
        return [Say("Once"), Pause(60)] if "a story" in request.messages[-1][1] else echo(request)

    async with start(answer, shutdown_timeout_seconds=0.1) as chat:
        await chat.say("a story")
        await wait_for_texts(chat, lambda texts: texts == ["Once"])
    await chat.say("stop")
    await chat.lose_events()
    async with start(answer):
        await wait_for_texts(chat, lambda texts: texts[0].endswith(words.STOPPED))
        await chat.say("two")
        await wait_for_texts(chat, lambda texts: texts[0].endswith(words.STOPPED) and texts[1:] == ["heard two"])


async def test_messages_from_before_the_bot_came_to_a_place_are_not_answered(start: StartBot, simulator: Any) -> None:
    general, elsewhere = open_chat(simulator), open_chat(simulator, "random")
    await general.say("before the first start")
    await general.lose_events()
    chat = await begin_conversation(start)
    await elsewhere.say("is anybody here?")
    await chat.say("two")
    await chat.lose_events()
    async with start(echo):
        await wait_for_answers(chat, "heard one", "heard two")
        await elsewhere.say("now")
        await wait_for_answers(elsewhere, "heard now")
        assert "heard before the first start" not in list_texts(general)


async def test_of_too_many_missed_messages_the_newest_are_answered(
    start: StartBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    chat = await begin_conversation(start)
    await chat.say("two")
    await chat.say("three")
    await chat.lose_events()
    monkeypatch.setattr(Settings, "backfill_limits", BackfillLimits(messages=1))
    async with start(echo):
        await wait_for_answers(chat, "heard one", "heard three")
        await chat.say("four")
        await wait_for_answers(chat, "heard one", "heard three", "heard four")
