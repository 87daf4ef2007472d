"""Restarts: the next bot continues the turns of a bot that stopped."""

import re

from channels.i18n import messages as words
from chatrig.models import CallTool, Pause, ReceivedRequest, Say, ScriptedResponse
from tests.scenarios import tools
from tests.scenarios.chat import Chat, wait_for_answers, wait_for_texts
from tests.scenarios.conftest import StartBot, echo

#: Seconds in which a bot that stops lets running answers finish.
BRIEF = {"shutdown_timeout_seconds": 0.1}


async def cut_off_answer(start: StartBot, *script: ScriptedResponse, **settings: object) -> Chat:
    """Return a chat in which a bot stopped after "It is" of an answer."""
    async with start(*script, [Say("It is"), Pause(60)], **BRIEF, **settings) as chat:
        await chat.say("what time is it?")
        await wait_for_texts(chat, lambda texts: texts[-1:] == ["It is"])
    return chat


async def test_a_cut_off_answer_continues_in_its_message_and_shows_each_word_once(start: StartBot) -> None:
    chat = await cut_off_answer(start)
    await wait_for_texts(chat, lambda texts: texts == [f"It is\n\n{words.RESTARTING}"])
    async with start("It is late."):
        await wait_for_answers(chat, "It is late.")
        (versions,) = chat.list_versions()
        assert all(version.count("It is") <= 1 for version in versions)


async def test_an_answer_that_ends_soon_is_finished_before_the_bot_stops(start: StartBot) -> None:
    async with start([Say("It takes a moment.", pieces=4, pace=0.1)]) as chat:
        await chat.say("hi")
        await wait_for_texts(chat, lambda texts: texts and texts[0].startswith("It"))
    await wait_for_answers(chat, "It takes a moment.")


async def test_a_tool_call_that_ended_is_not_repeated(start: StartBot) -> None:
    def answer(request: ReceivedRequest) -> ScriptedResponse:
        return "Booked." if "Paris is booked" in str(request.tool_results) else CallTool("book", {"room": "Paris"})

    tools.booked_rooms.clear()
    settings = {"tools": ["tests.scenarios.tools:book"]}
    chat = await cut_off_answer(start, CallTool("book", {"room": "Paris"}), **settings)
    async with start(answer, **settings):
        await wait_for_answers(chat, "Booked.")
    assert tools.booked_rooms == ["Paris"]


async def test_queued_messages_are_answered_after_a_restart(start: StartBot) -> None:
    def answer(request: ReceivedRequest) -> ScriptedResponse:
        return [Say("Once"), Pause(60)] if has_started_once else echo(request)

    has_started_once = True
    async with start(answer, while_running="queue", **BRIEF) as chat:
        await chat.say("one")
        await wait_for_texts(chat, lambda texts: texts == ["Once"])
        await chat.say("two")
        await chat.say("three")
        await chat.simulator.wait_for(lambda: chat.count_reactions() == 2)
    has_started_once = False
    async with start(answer, while_running="queue"):
        await wait_for_texts(
            chat, lambda texts: texts[0] == "heard one" and re.search("two\n.*three$", texts[-1], re.S)
        )
        assert len(chat.list_replies()) == 2
        await chat.simulator.wait_for(lambda: not chat.count_reactions())


async def test_the_conversation_is_remembered_after_a_restart(start: StartBot) -> None:
    def recall(request: ReceivedRequest) -> str:
        return " and ".join(text.rpartition(" ")[2] for role, text in request.messages if role == "user")

    async with start(recall) as chat:
        await chat.say("remember red")
        await wait_for_answers(chat, "red")
    async with start(recall):
        await chat.say("remember blue")
        await wait_for_answers(chat, "red", "red and blue")
