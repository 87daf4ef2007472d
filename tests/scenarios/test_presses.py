"""Presses and commands are answered at once during a long answer, and once if a restart comes between."""

from typing import Any

from channels.i18n import messages as words
from chatrig.models import CallTool, Pause, Say
from tests.scenarios.chat import (
    export,
    list_buttons,
    list_texts,
    run_command,
    wait_for_answers,
    wait_for_private_message,
    wait_for_texts,
)
from tests.scenarios.conftest import StartBot

GROWING = [Say("Once"), Pause(60)]
PAYING: dict[str, Any] = {"tools": ("tests.scenarios.tools:confirmed_pay",)}


async def test_presses_and_commands_are_answered_during_a_long_answer(start: StartBot) -> None:
    async with start("Blue.", GROWING) as chat:
        await chat.say("which colour?")
        await wait_for_answers(chat, "Blue.")
        await chat.say("a story")
        await wait_for_texts(chat, lambda texts: texts == ["Blue.", "Once"])
        await chat.rate(words.GOOD_ANSWER, user="grace")
        await wait_for_private_message(chat, words.FEEDBACK_THANKS, user="grace")
        assert words.HELP_COMMANDS in await run_command(chat, "help")
        assert words.STATUS_ANSWERING in await run_command(chat, "info")
        await chat.press(words.REGENERATE)
        await chat.simulator.wait_for(lambda: words.NEWER_MESSAGES in chat.list_private_messages())
        assert list_texts(chat) == ["Blue.", "Once"]


async def test_an_approval_is_decided_during_a_long_answer(start: StartBot) -> None:
    async with start(CallTool("pay", {"to": "Bob"}), GROWING, **PAYING) as chat:
        await chat.say("pay!")
        await chat.simulator.wait_for(lambda: any(words.DENY in labels for labels in list_buttons(chat)))
        await chat.say("a story")
        await wait_for_texts(chat, lambda texts: texts[-1] == "Once")
        await chat.press(words.DENY)
        await wait_for_texts(chat, lambda texts: "⛔" in texts[1])
        assert list_texts(chat)[-1] == "Once"


async def test_any_reader_may_rate_an_answer_and_change_the_rating(start: StartBot) -> None:
    async with start("Blue.") as chat:
        await chat.say("which colour?")
        await wait_for_answers(chat, "Blue.")
        for user, rating, thanks in (
            ("ada", words.GOOD_ANSWER, 1),
            ("ada", words.BAD_ANSWER, 2),
            ("grace", words.GOOD_ANSWER, 1),
        ):
            await chat.rate(rating, user=user)
            wanted = [words.FEEDBACK_THANKS] * thanks
            await chat.simulator.wait_for(lambda: chat.list_private_messages(user) == wanted)  # noqa: B023 (it is waited for)
        assert "Feedback: 1 bad, 1 good" in await export(chat)


async def test_an_acknowledged_press_is_answered_after_a_restart(start: StartBot) -> None:
    async with start("Blue.") as chat:
        await chat.say("which colour?")
        await wait_for_answers(chat, "Blue.")
        chat.hold_private_message()
        await chat.rate(words.GOOD_ANSWER)
    async with start("unused") as chat:
        await wait_for_private_message(chat, words.FEEDBACK_THANKS)


async def test_an_acknowledged_command_is_answered_after_a_restart(start: StartBot) -> None:
    other = "openai/other"
    async with start("Blue.", models=(other,)) as chat:
        await chat.say("which colour?")
        await wait_for_answers(chat, "Blue.")
        chat.hold_private_message()
        responses = await chat.run_command("model", other)
        assert not [message for message in responses if message.text]
    async with start("unused", models=(other,)) as chat:
        await wait_for_private_message(chat, words.MODEL_CHANGED.format(model=other))


async def test_buttons_and_commands_of_an_old_answer_work_after_a_restart(start: StartBot) -> None:
    async with start("Blue.") as chat:
        await chat.say("which colour?")
        await wait_for_answers(chat, "Blue.")
    async with start("Green.") as chat:
        await chat.rate(words.GOOD_ANSWER, user="grace")
        await wait_for_private_message(chat, words.FEEDBACK_THANKS, user="grace")
        await chat.press(words.REGENERATE)
        await wait_for_answers(chat, "Green.")
