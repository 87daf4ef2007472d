"""Deletions: of a question that waits, is being answered or is answered, and of the bot's reply."""

import asyncio

from channels.i18n import messages as words
from chatrig.models import Pause, Say
from tests.scenarios.chat import list_buttons, wait_for_answers, wait_for_reactions, wait_for_texts
from tests.scenarios.conftest import StartBot, echo, recall


async def test_a_queued_question_that_is_deleted_is_not_answered(start: StartBot) -> None:
    go_on = asyncio.Event()
    async with start(lambda request: [Pause(go_on), Say(echo(request))]) as chat:
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
    async with start([Pause(first), Say("One.")], [Say("Two"), Pause(second), Say(" and three.")]) as chat:
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
