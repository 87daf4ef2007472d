"""Retry and Regenerate: the author replaces a failed or complete answer in place."""

import asyncio
from itertools import count

from channels.i18n import messages as words
from chatrig.models import Fail, Pause, ReceivedRequest, Say
from tests.scenarios.chat import (
    Chat,
    list_buttons,
    list_texts,
    run_command,
    wait_for_answers,
    wait_for_private_message,
    wait_for_texts,
)
from tests.scenarios.conftest import StartBot

FAILURE = Fail(400, "no")


async def fail_turn(chat: Chat) -> None:
    await chat.say("what is it?")
    await chat.simulator.wait_for(lambda: list_buttons(chat) == [[words.RETRY]])
    assert list_texts(chat)[0].startswith("⚠️")


async def test_only_the_author_retries_a_failed_turn_in_place(start: StartBot) -> None:
    async with start(FAILURE, FAILURE, "It is 42.") as chat:
        await fail_turn(chat)
        await chat.press(words.RETRY, user="grace")
        await wait_for_private_message(chat, words.RETRY_NOT_ALLOWED, user="grace")
        await chat.press(words.RETRY)
        await chat.simulator.wait_for(lambda: sum(text.startswith("⚠️") for text in chat.list_versions()[0]) == 2)
        await chat.press(words.RETRY)
        await wait_for_answers(chat, "It is 42.")
        assert words.RETRY not in list_buttons(chat)[0]
        assert not chat.list_private_messages("ada")


async def test_repeated_presses_retry_once(start: StartBot) -> None:
    go_on = asyncio.Event()
    async with start(FAILURE, [Pause(go_on), Say("It is 42.")], "next") as chat:
        await fail_turn(chat)
        await asyncio.gather(*(chat.press(words.RETRY) for _ in range(4)))
        go_on.set()
        await wait_for_answers(chat, "It is 42.")
        await chat.say("and?")
        await wait_for_answers(chat, "It is 42.", "next")


async def test_a_retry_works_after_a_restart_and_survives_the_next(start: StartBot) -> None:
    async with start(FAILURE) as chat:
        await fail_turn(chat)
    async with start([Say("Once"), Pause(60)]) as chat:
        await chat.press(words.RETRY)
        await wait_for_texts(chat, lambda texts: texts == ["Once"])
    async with start("It is 42.") as chat:
        await wait_for_answers(chat, "It is 42.")


async def test_a_retry_waits_for_the_running_answer(start: StartBot) -> None:
    go_on = asyncio.Event()
    async with start(FAILURE, [Say("Wait"), Pause(go_on), Say(" for it.")], "It is 42.") as chat:
        await fail_turn(chat)
        await chat.say("and then?")
        await wait_for_texts(chat, lambda texts: texts[-1] == "Wait")
        await chat.press(words.RETRY)
        await chat.simulator.wait_for(chat.count_reactions)
        go_on.set()
        await wait_for_answers(chat, "It is 42.", "Wait for it.")
        await chat.simulator.wait_for(lambda: not chat.count_reactions())


async def test_a_turn_before_a_reset_cannot_be_retried(start: StartBot) -> None:
    async with start(FAILURE) as chat:
        await fail_turn(chat)
        assert await run_command(chat, "reset") == words.RESET_DONE
        await chat.press(words.RETRY)
        await chat.simulator.wait_for(lambda: words.RETRY_EXPIRED in chat.list_private_messages())
        assert len(list_texts(chat)) == 1


async def test_only_the_author_regenerates_an_answer_in_place(start: StartBot) -> None:
    numbers = count(1)

    def list_roles(request: ReceivedRequest) -> str:
        return f"{next(numbers)}: {' '.join(role for role, _ in request.messages)}"

    async with start(list_roles) as chat:
        await chat.say("one")
        await wait_for_answers(chat, "1: user")
        await chat.say("two")
        await wait_for_answers(chat, "1: user", "2: user assistant user")
        await chat.press(words.REGENERATE, user="grace")
        await wait_for_private_message(chat, words.RETRY_NOT_ALLOWED, user="grace")
        for answer in ("3: user assistant user", "4: user assistant user"):
            await chat.press(words.REGENERATE)
            await wait_for_answers(chat, "1: user", answer)
