"""Edits and deletions of a question, and of the bot's reply."""

import asyncio

from channels.i18n import messages as words
from chatrig.models import Pause, ReceivedRequest, Say, ScriptedResponse
from tests.scenarios.chat import (
    Chat,
    list_buttons,
    list_texts,
    wait_for_answers,
    wait_for_private_message,
    wait_for_reactions,
    wait_for_texts,
)
from tests.scenarios.conftest import StartBot, echo, recall


def grow_at_tow(request: ReceivedRequest) -> ScriptedResponse:
    """Answer "tow" without an end, and echo other messages."""
    return [Say("Tow"), Pause(60)] if (text := echo(request)) == "heard tow" else text


async def wait_for_offer(chat: Chat, *, offered: bool = True) -> None:
    """Wait until the newest reply has, or has no more, the button for a new answer."""
    await chat.simulator.wait_for(lambda: (words.ANSWER_EDITED in chat.list_replies()[-1].buttons) is offered)


async def test_a_queued_question_is_answered_as_edited(start: StartBot) -> None:
    go_on = asyncio.Event()
    async with start(lambda request: [Pause(go_on), Say(echo(request))], while_running="queue") as chat:
        await chat.say("one")
        await wait_for_texts(chat, lambda texts: texts == [words.PLACEHOLDER])
        message = await chat.say("tow")
        await wait_for_reactions(chat, 1)
        await chat.edit(message, "two")
        go_on.set()
        await wait_for_answers(chat, "heard one", "heard two")


async def test_an_edit_during_an_answer_offers_a_new_one_in_its_place(start: StartBot) -> None:
    async with start(grow_at_tow) as chat:
        message = await chat.say("tow")
        await wait_for_texts(chat, lambda texts: texts == ["Tow"])
        await chat.edit(message, "two")
        await wait_for_offer(chat)
        assert words.STOP in chat.list_replies()[0].buttons
        await chat.press(words.ANSWER_EDITED)
        await wait_for_answers(chat, "heard two")


async def test_an_edit_after_the_answer_offers_a_new_one_to_its_author(start: StartBot) -> None:
    async with start(echo) as chat:
        message = await chat.say("tow")
        await wait_for_answers(chat, "heard tow")
        await chat.edit(message, "two")
        await wait_for_offer(chat)
        await chat.press(words.ANSWER_EDITED, user="grace")
        await wait_for_private_message(chat, words.RETRY_NOT_ALLOWED, user="grace")
        assert list_texts(chat) == ["heard tow"]
        await chat.press(words.ANSWER_EDITED)
        await wait_for_answers(chat, "heard two")
        await wait_for_offer(chat, offered=False)


async def test_an_edit_that_is_undone_takes_the_offer_back(start: StartBot) -> None:
    async with start(echo) as chat:
        message = await chat.say("one")
        await wait_for_answers(chat, "heard one")
        await chat.edit(message, "two")
        await wait_for_offer(chat)
        await chat.edit(message, "one")
        await wait_for_offer(chat, offered=False)


async def test_an_edit_between_two_processes_offers_a_new_answer(start: StartBot) -> None:
    async with start(grow_at_tow, shutdown_timeout_seconds=0.1) as chat:
        message = await chat.say("tow")
        await wait_for_texts(chat, lambda texts: texts == ["Tow"])
        await chat.edit(message, "two")
        await wait_for_offer(chat)
    async with start(lambda _: "Continued."):
        await wait_for_answers(chat, "Continued.")
        await wait_for_offer(chat)


async def test_an_edit_that_adds_a_mention_is_answered_once(start: StartBot) -> None:
    async with start(echo) as chat:
        message = await chat.say("who is on call?", mentions_bot=False)
        await chat.simulator.edit_message("ada", message, "who is on call today?")
        await chat.edit(message, "who is on call tonight?")
        await wait_for_answers(chat, "heard who is on call tonight?")
        await chat.edit(message, "who is on call tomorrow?")
        await wait_for_offer(chat)
        await chat.press(words.ANSWER_EDITED)
        await wait_for_answers(chat, "heard who is on call tomorrow?")


async def test_a_mention_that_is_added_in_a_thread_is_answered(start: StartBot) -> None:
    async with start(echo) as chat:
        await chat.open_thread()
        await chat.say("one")
        await wait_for_answers(chat, "heard one")
        message = await chat.say("and two?", user="grace", mentions_bot=False)
        await chat.say("three")
        await wait_for_answers(chat, "heard one", "heard three")
        await chat.edit(message, "and two?", user="grace")
        await wait_for_answers(chat, "heard one", "heard three", "heard and two?")


async def test_an_edit_of_a_command_is_no_question(start: StartBot) -> None:
    async with start(echo) as chat:
        message = await chat.say("stop")
        await wait_for_answers(chat, words.NOTHING_TO_RESET)
        await chat.edit(message, "stop now, please")
        await chat.say("two")
        await wait_for_answers(chat, words.NOTHING_TO_RESET, "heard two")


# Deletions


async def test_a_queued_question_that_is_deleted_is_not_answered(start: StartBot) -> None:
    go_on = asyncio.Event()
    async with start(lambda request: [Pause(go_on), Say(echo(request))], while_running="queue") as chat:
        await chat.say("one")
        await wait_for_texts(chat, lambda texts: texts == [words.PLACEHOLDER])
        message = await chat.say("two")
        await wait_for_reactions(chat, 1)
        await chat.delete(message)
        await chat.say("three")
        await wait_for_reactions(chat, 1)
        go_on.set()
        await wait_for_answers(chat, "heard one", "heard three")


async def test_an_answer_to_a_deleted_question_stops_with_a_notice(start: StartBot) -> None:
    async with start([Say("Once"), Pause(60)], "Two.") as chat:
        message = await chat.say("one")
        await wait_for_texts(chat, lambda texts: texts == ["Once"])
        await chat.delete(message)
        await wait_for_answers(chat, f"Once\n\n{words.STOPPED_BY_DELETION}")
        assert list_buttons(chat) == [[]]
        await chat.say("two")
        await wait_for_answers(chat, f"Once\n\n{words.STOPPED_BY_DELETION}", "Two.")


async def test_a_finished_answer_to_a_deleted_question_gets_a_notice(start: StartBot) -> None:
    async with start(recall) as chat:
        message = await chat.say("remember red")
        await wait_for_answers(chat, "knows red")
        await chat.delete(message)
        await wait_for_answers(chat, f"knows red\n\n{words.STOPPED_BY_DELETION}")
        assert list_buttons(chat) == [[]]


async def test_one_of_two_questions_of_an_answer_is_deleted_and_it_goes_on(start: StartBot) -> None:
    first, second = asyncio.Event(), asyncio.Event()
    script = [Pause(first), Say("One.")], [Say("Two"), Pause(second), Say(" and three.")]
    async with start(*script, while_running="queue") as chat:
        await chat.say("one")
        await wait_for_texts(chat, lambda texts: texts == [words.PLACEHOLDER])
        message = await chat.say("two")
        await chat.say("three")
        await wait_for_reactions(chat, 2)
        first.set()
        await wait_for_texts(chat, lambda texts: texts == ["One.", "Two"])
        await chat.delete(message)
        second.set()
        await wait_for_answers(chat, "One.", "Two and three.")


async def test_a_growing_reply_that_is_deleted_is_posted_again(start: StartBot) -> None:
    go_on = asyncio.Event()
    async with start([Say("Once"), Pause(go_on), Say(" upon a time.")], "Two.") as chat:
        await chat.say("one")
        await wait_for_texts(chat, lambda texts: texts == ["Once"])
        await chat.delete_reply(chat.list_replies()[0])
        go_on.set()
        await wait_for_answers(chat, "Once upon a time.")


async def test_a_deleted_reply_does_not_come_back_by_an_edit_of_its_question(start: StartBot) -> None:
    async with start(echo) as chat:
        message = await chat.say("one")
        await wait_for_answers(chat, "heard one")
        await chat.delete_reply(chat.list_replies()[0])
        await chat.edit(message, "two")
        await chat.say("three")
        await wait_for_answers(chat, "heard three")
