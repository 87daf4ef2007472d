"""Answers: they grow in place, in the order of the questions, from the memory of their conversation."""

import asyncio
import re
from itertools import pairwise

import pytest

from channels.i18n import messages as words
from chatrig.models import CallTool, Fail, Pause, ReceivedRequest, Say, ScriptedResponse
from core.errors import ProviderRequestError
from tests.scenarios.chat import (
    list_buttons,
    list_texts,
    open_chat,
    wait_for_answers,
    wait_for_reactions,
    wait_for_texts,
)
from tests.scenarios.conftest import StartBot, echo, recall


async def test_an_answer_grows_in_place_of_a_placeholder(start: StartBot) -> None:
    first, second = asyncio.Event(), asyncio.Event()
    async with start([Pause(first), Say("The quick "), Pause(second), Say("brown fox.")]) as chat:
        await chat.say("hi")
        await wait_for_texts(chat, lambda texts: texts == [words.PLACEHOLDER])
        first.set()
        await wait_for_texts(chat, lambda texts: texts == ["The quick"])
        assert list_buttons(chat) == [[words.STOP]]
        second.set()
        await wait_for_answers(chat, "The quick brown fox.")
        (versions,) = chat.list_versions()
        assert versions[0] == words.PLACEHOLDER
        assert all(later.startswith(earlier) for earlier, later in pairwise(versions[1:]))


async def test_an_answer_remembers_its_conversation_and_no_other(start: StartBot) -> None:
    async with start(recall) as chat:
        other = open_chat(chat.simulator, "random")
        await chat.say("remember red")
        await wait_for_answers(chat, "knows red")
        await other.say("remember blue")
        await wait_for_answers(other, "knows blue")
        await chat.say("and now?")
        await wait_for_answers(chat, "knows red", "knows red")


async def test_a_direct_message_needs_no_mention(start: StartBot) -> None:
    async with start(lambda request: f"heard {request.text}") as chat:
        await chat.say("unheard", mentions_bot=False)
        await chat.open_dm()
        await chat.say("hello", mentions_bot=False)
        await wait_for_answers(chat, "heard hello")


async def test_messages_during_an_answer_share_the_next_one_in_their_order(start: StartBot) -> None:
    go_on = asyncio.Event()

    def answer(request: ReceivedRequest) -> ScriptedResponse:
        return [Pause(go_on), Say(", ".join(re.findall("say ([a-z]+)", request.text)))]

    async with start(answer, while_running="queue") as chat:
        await chat.say("say one")
        await wait_for_texts(chat, lambda texts: texts == [words.PLACEHOLDER])
        await chat.say("say two")
        await wait_for_reactions(chat, 1)
        await chat.say("say three", user="grace")
        await wait_for_reactions(chat, 2)
        go_on.set()
        await wait_for_answers(chat, "one", "two, three")
        await wait_for_reactions(chat, 0)


async def test_a_message_that_arrives_twice_is_answered_once(start: StartBot) -> None:
    async with start(echo) as chat:
        message = await chat.say("one")
        await wait_for_answers(chat, "heard one")
        await chat.redeliver(message)
        await chat.say("two")
        await wait_for_answers(chat, "heard one", "heard two")


async def test_users_in_two_channels_do_not_wait_for_each_other(start: StartBot) -> None:
    go_on = asyncio.Event()
    async with start(lambda request: [Pause(go_on), Say("Slow.")] if "slow" in request.text else "Fast.") as chat:
        other = open_chat(chat.simulator, "random")
        await chat.say("a slow one")
        await wait_for_texts(chat, lambda texts: texts == [words.PLACEHOLDER])
        await other.say("another one", user="grace")
        await wait_for_answers(other, "Fast.")
        assert list_texts(chat) == [words.PLACEHOLDER]
        go_on.set()
        await wait_for_answers(chat, "Slow.")


async def test_a_long_answer_is_complete_in_several_messages(start: StartBot) -> None:
    lines = [f"{number}. {'lorem ipsum dolor ' * 6}".strip() for number in range(60)]
    async with start(Say("\n".join(lines), pieces=10)) as chat:
        await chat.say("long")
        await wait_for_texts(chat, lambda texts: "\n".join(texts).split("\n") == lines)
        assert len(chat.list_replies()) > 1
        assert not chat.list_files()


async def test_an_error_of_the_model_is_one_sentence_and_the_next_question_is_answered(start: StartBot) -> None:
    async with start(Fail(400, "boom"), "Fine again.") as chat:
        await chat.say("hi")
        apology = re.escape(words.ENGLISH.format_error_with_id(ProviderRequestError.public, "ID")).replace("ID", r"\w+")
        await wait_for_texts(chat, lambda texts: len(texts) == 1 and re.fullmatch(apology, texts[0]))
        await chat.simulator.wait_for(lambda: words.RETRY in list_buttons(chat)[0])
        await chat.say("again")
        await wait_for_texts(chat, lambda texts: texts[1:] == ["Fine again."])


async def test_an_answer_in_steps_shows_each_step_once(start: StartBot) -> None:
    steps = [f"Step {number}: " + " ".join(f"w{number}.{word}" for word in range(66)) for number in (1, 2, 3)]

    def work(request: ReceivedRequest) -> ScriptedResponse:
        done = sum(role == "tool" for role, _ in request.messages)
        step = Say(steps[done], pieces=67, pace=0.01)
        return [step, CallTool("current_time", {"timezone": "UTC"}, id=f"c{done}")] if done < 2 else [step]

    async with start(work) as chat:
        await chat.say("work")
        await wait_for_answers(chat, "\n\n".join(steps))


@pytest.mark.parametrize(
    ("text", "files"),
    [
        ("", {"cat.png": b"a cat"}),
        ("x" * 1_990, {}),
        ("nul \0 byte", {}),
        ("half a pair \ud83d here", {}),
        ("&lt;b&gt; <https://example.com|link> <!here> @everyone", {}),
    ],
    ids=["only a file", "long", "nul", "half a surrogate pair", "marks"],
)
async def test_every_text_gets_an_answer(start: StartBot, text: str, files: dict[str, bytes]) -> None:
    async with start("An answer.") as chat:
        await chat.open_dm()
        await chat.say(text, mentions_bot=False, files=files)
        await wait_for_answers(chat, "An answer.")
