"""Stop and reset: a running answer ends, what it shows so far stays; a reset also clears the memory."""

import asyncio

from channels.i18n import messages as words
from chatrig.models import Pause, ReceivedRequest, Say, ScriptedResponse
from tests.scenarios.chat import (
    list_buttons,
    list_texts,
    open_chat,
    wait_for_answers,
    wait_for_private_message,
    wait_for_reactions,
    wait_for_texts,
)
from tests.scenarios.conftest import StartBot, echo, recall

GROWING: ScriptedResponse = [Say("Once"), Pause(60)]


def grow_at_one(request: ReceivedRequest) -> ScriptedResponse:
    """Answer "one" without an end, and echo other messages."""
    return GROWING if (text := echo(request)) == "heard one" else text


async def test_only_the_author_stops_a_growing_answer(start: StartBot) -> None:
    async with start(GROWING) as chat:
        await chat.say("hi")
        await wait_for_texts(chat, lambda texts: texts == ["Once"])
        await chat.press(words.STOP, user="grace")
        await wait_for_private_message(chat, words.STOP_NOT_ALLOWED, user="grace")
        await chat.press(words.STOP)
        await wait_for_answers(chat, f"Once\n\n{words.STOPPED}")
        assert words.REGENERATE in list_buttons(chat)[0]
        assert not chat.list_private_messages("ada")


async def test_an_answer_is_stopped_before_its_first_text(start: StartBot) -> None:
    async with start([Pause(60)]) as chat:
        await chat.say("hi")
        await wait_for_texts(chat, lambda texts: texts == [words.PLACEHOLDER])
        await chat.press(words.STOP)
        await wait_for_answers(chat, words.STOPPED)


async def test_a_stop_by_the_button_leaves_the_next_message_to_be_answered(start: StartBot) -> None:
    async with start(GROWING, "Two.") as chat:
        await chat.say("one")
        await wait_for_texts(chat, lambda texts: texts == ["Once"])
        await chat.say("two")
        await wait_for_reactions(chat, 1)
        await chat.press(words.STOP)
        await wait_for_answers(chat, f"Once\n\n{words.STOPPED}", "Two.")


async def test_a_stop_command_drops_only_the_messages_of_its_author(start: StartBot) -> None:
    async with start(grow_at_one) as chat:
        await chat.say("one")
        await wait_for_texts(chat, lambda texts: texts == ["Once"])
        await chat.say("two")
        await chat.say("three", user="grace")
        await wait_for_reactions(chat, 2)
        await chat.say("stop")
        await wait_for_answers(chat, f"Once\n\n{words.STOPPED}", "heard three")
        await wait_for_reactions(chat, 0)


async def test_a_slash_command_stops_only_the_answer_of_its_user(start: StartBot) -> None:
    async with start(GROWING) as chat:
        await chat.say("hi")
        await wait_for_texts(chat, lambda texts: texts == ["Once"])
        await chat.run_command("stop", user="grace")
        await chat.simulator.wait_for(lambda: len(chat.list_private_messages("grace")) == 1)
        assert list_texts(chat) == ["Once"]
        await chat.run_command("stop")
        await wait_for_answers(chat, f"Once\n\n{words.STOPPED}")


async def test_a_stop_after_the_end_changes_nothing_and_says_so(start: StartBot) -> None:
    go_on = asyncio.Event()
    async with start([Say("Once"), Pause(go_on), Say(" upon a time.")]) as chat:
        await chat.say("hi")
        await wait_for_texts(chat, lambda texts: texts == ["Once"])
        await chat.delay_edit()
        go_on.set()
        await chat.simulator.wait_for(chat.is_editing)
        await chat.press(words.STOP)
        await wait_for_answers(chat, "Once upon a time.")
        await wait_for_private_message(chat, words.ALREADY_ENDED)
        await chat.say("stop")
        await wait_for_answers(chat, "Once upon a time.", words.NOTHING_TO_STOP)


async def test_a_stop_between_two_processes_ends_the_answer(start: StartBot) -> None:
    async with start(GROWING, shutdown_timeout_seconds=0.1) as chat:
        await chat.say("hi")
        await wait_for_texts(chat, lambda texts: texts == ["Once"])
    assert list_texts(chat) == [f"Once\n\n{words.RESTARTING}"]
    assert list_buttons(chat) == [[words.STOP]]
    await chat.say("stop")
    async with start(GROWING, shutdown_timeout_seconds=0.1):
        await wait_for_texts(chat, lambda texts: len(texts) == 1 and texts[0].endswith(words.STOPPED))


# Reset


STOPPED = f"Once\n\n{words.STOPPED_BY_RESET}"


def grow_at_red(request: ReceivedRequest) -> ScriptedResponse:
    """Answer "remember red" without an end, and other messages from memory."""
    return GROWING if request.text.endswith("remember red") else recall(request)


async def test_a_reset_clears_the_memory_of_its_conversation_only(start: StartBot) -> None:
    async with start(recall) as chat:
        other = open_chat(chat.simulator, "random")
        await chat.say("remember red")
        await other.say("remember blue")
        await wait_for_answers(chat, "knows red")
        await wait_for_answers(other, "knows blue")
        await chat.say("Reset!")
        await wait_for_answers(chat, "knows red", words.RESET_DONE)
        await chat.say("and now?")
        await other.say("and now?")
        await wait_for_answers(chat, "knows red", words.RESET_DONE, "knows nothing")
        await wait_for_answers(other, "knows blue", "knows blue")


async def test_the_slash_command_resets_and_answers_privately(start: StartBot) -> None:
    async with start(recall) as chat:
        await chat.say("remember red")
        await wait_for_answers(chat, "knows red")
        await chat.run_command("reset")
        await wait_for_private_message(chat, words.RESET_DONE)
        await chat.say("and now?")
        await wait_for_answers(chat, "knows red", "knows nothing")


async def test_only_the_word_alone_is_a_reset(start: StartBot) -> None:
    async with start(echo) as chat:
        await chat.say("reset")
        await wait_for_answers(chat, words.NOTHING_TO_RESET)
        await chat.say("reset my password")
        await wait_for_answers(chat, words.NOTHING_TO_RESET, "heard reset my password")


async def test_a_reset_stops_the_answer_and_drops_queued_messages(start: StartBot) -> None:
    async with start(grow_at_red) as chat:
        await chat.say("remember red")
        await wait_for_texts(chat, lambda texts: texts == ["Once"])
        await chat.say("remember blue", user="grace")
        await wait_for_reactions(chat, 1)
        await chat.say("reset")
        await wait_for_texts(chat, lambda texts: sorted(texts) == sorted([STOPPED, words.RESET_DONE]))
        await wait_for_reactions(chat, 0)
        await chat.say("and now?")
        await wait_for_texts(chat, lambda texts: texts == [STOPPED, words.RESET_DONE, "knows nothing"])


async def test_a_reset_does_not_mark_a_complete_answer_as_stopped(start: StartBot) -> None:
    go_on = asyncio.Event()
    story = [Say("Once"), Pause(go_on), Say(" upon a time.")]
    async with start(lambda request: story if request.text.endswith("red") else recall(request)) as chat:
        await chat.say("remember red")
        await wait_for_texts(chat, lambda texts: texts == ["Once"])
        await chat.delay_edit()
        go_on.set()
        await chat.simulator.wait_for(chat.is_editing)
        await chat.say("reset")
        await wait_for_answers(chat, "Once upon a time.", words.RESET_DONE)
        await chat.say("and now?")
        await wait_for_answers(chat, "Once upon a time.", words.RESET_DONE, "knows nothing")


async def test_a_reset_that_arrives_twice_is_confirmed_once(start: StartBot) -> None:
    async with start(echo) as chat:
        await chat.say("one")
        await wait_for_answers(chat, "heard one")
        reset = await chat.say("reset")
        await wait_for_answers(chat, "heard one", words.RESET_DONE)
        await chat.redeliver(reset)
        await chat.say("two")
        await wait_for_answers(chat, "heard one", words.RESET_DONE, "heard two")


async def test_a_reset_between_two_processes_stops_the_answer_and_clears_the_memory(start: StartBot) -> None:
    async with start(grow_at_red, shutdown_timeout_seconds=0.1) as chat:
        await chat.say("remember red")
        await wait_for_texts(chat, lambda texts: texts == ["Once"])
    assert list_texts(chat) == [f"Once\n\n{words.RESTARTING}"]
    await chat.say("reset")
    async with start(grow_at_red):
        await wait_for_texts(chat, lambda texts: texts[0].endswith(words.STOPPED_BY_RESET) and len(texts) == 2)
        await chat.say("and now?")
        await wait_for_texts(chat, lambda texts: texts[1:] == [words.RESET_DONE, "knows nothing"])
