"""Follow-ups: messages without a mention in a thread, and messages while a turn runs.

The settings REPLY_WITHOUT_MENTION and WHILE_RUNNING, `mute` and agents decide how they are answered.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from channels.i18n import messages as words
from chatrig.models import CallTool, Fail, Pause, ReceivedRequest, Say, ScriptedResponse
from core.sessions.prompt_text import PART_SEPARATOR, QUOTE_CLOSE
from tests.scenarios import tools
from tests.scenarios.chat import (
    Chat,
    export,
    list_buttons,
    list_texts,
    run_command,
    wait_for_answers,
    wait_for_reactions,
    wait_for_texts,
)
from tests.scenarios.conftest import StartBot, echo


async def ask(chat: Chat, text: str, *answers: str, mentions_bot: bool = True) -> None:
    """Say something as Ada, and wait until the bot's public messages are exactly `answers`."""
    await chat.say(text, mentions_bot=mentions_bot)
    await wait_for_answers(chat, *answers)


def mention_grace(chat: Chat) -> str:
    return f"<@{chat.simulator.people['grace'].id}>"


@pytest.mark.parametrize(
    ("setting", "answered"),
    [
        ("never", ["one", "five"]),
        ("author", ["one", "two", "five"]),
        ("everyone", ["one", "two", "three", "four", "five"]),
    ],
)
async def test_the_setting_selects_the_answered_messages(start: StartBot, setting: str, answered: list[str]) -> None:
    async with start(echo, reply_without_mention=setting) as chat:
        await chat.open_thread()
        messages = [("ada", "one"), ("ada", "two"), ("grace", "three"), ("ada", "four"), ("ada", "five")]
        answers = list[str]()
        for user, text in messages:
            await chat.say(text, user=user, mentions_bot=text in ("one", "five"))
            if text in answered:
                answers.append(f"heard {text}")
                await wait_for_answers(chat, *answers)


async def test_a_message_to_others_is_not_answered_and_the_model_reads_it_later(start: StartBot) -> None:
    def answer(request: ReceivedRequest) -> str:
        return "I saw it" if "can you check this?" in request.text else "What?"

    async with start(answer) as chat:
        await chat.open_thread()
        await ask(chat, "one", "What?")
        await chat.say(f"{mention_grace(chat)} can you check this?", mentions_bot=False)
        await ask(chat, "two", "What?", "I saw it", mentions_bot=False)


async def test_the_answer_of_another_person_ends_the_follow_ups(start: StartBot) -> None:
    async with start(echo) as chat:
        await chat.open_thread()
        await ask(chat, "one", "heard one")
        await chat.say(f"{mention_grace(chat)} can you check this?", mentions_bot=False)
        await chat.say("I can", user="grace", mentions_bot=False)
        await chat.say("thanks", mentions_bot=False)
        await ask(chat, "two", "heard one", "heard two")


async def test_a_missed_message_to_others_is_not_answered(start: StartBot) -> None:
    async with start(echo) as chat:
        await chat.open_thread()
        await ask(chat, "one", "heard one")
    await chat.say(f"{mention_grace(chat)} can you check this?", mentions_bot=False)
    await chat.say("two", mentions_bot=False)
    await chat.lose_events()
    async with start(echo):
        await wait_for_answers(chat, "heard one", "heard two")


async def test_an_edit_that_mentions_the_bot_turns_a_message_to_others_into_a_question(start: StartBot) -> None:
    async with start(echo) as chat:
        await chat.open_thread()
        await ask(chat, "one", "heard one")
        aside = await chat.say(f"{mention_grace(chat)} look", mentions_bot=False)
        await ask(chat, "two", "heard one", "heard two")
        await chat.edit(aside, "look")
        await wait_for_answers(chat, "heard one", "heard two", "heard look")


async def test_an_agent_that_stays_silent_leaves_no_trace(start: StartBot) -> None:
    def answer(request: ReceivedRequest) -> ScriptedResponse:
        if request.text.endswith("two"):
            asked.set()
        is_refused = "addressed to you" in str(request.tool_results)
        return echo(request) if request.text.endswith("one") or is_refused else CallTool("stay_silent")

    asked = asyncio.Event()
    async with start(answer, tools=["core.tools:stay_silent"]) as chat:
        await chat.open_thread()
        await ask(chat, "one", "heard one")
        await chat.say("two", mentions_bot=False)
        await asked.wait()
        await ask(chat, "three", "heard one", "heard three")  # it may not ignore a mention
        await chat.simulator.wait_for(lambda: not chat.count_reactions())


async def test_a_muted_bot_answers_only_mentions_until_it_is_unmuted(start: StartBot) -> None:
    async with start(echo, reply_without_mention="everyone") as chat:
        await chat.open_thread()
        await ask(chat, "one", answers := "heard one")
        await ask(chat, "mute", answers, words.MUTED)
        assert words.MUTED in await run_command(chat, "info")
        await chat.say("two", mentions_bot=False)
        await ask(chat, "three", answers, words.MUTED, "heard three")
        await ask(chat, "listen", answers, words.MUTED, "heard three", words.UNMUTED)
        await ask(chat, "four", answers, words.MUTED, "heard three", words.UNMUTED, "heard four", mentions_bot=False)


# Messages while a turn runs

TOOLS = {"tools": ["tests.scenarios.tools:look_up"]}

#: An event that has happened.
OPEN = asyncio.Event()
OPEN.set()

#: Seconds in which a bot that stops lets running answers finish.
BRIEF = {"shutdown_timeout_seconds": 0.1}


@pytest.fixture(autouse=True)
def gate() -> tools.Gate:
    tools.gate = tools.Gate()
    return tools.gate


class Model:
    """Model that looks up "tea" for the question "look", and else repeats the users' messages since "look".

    Attributes:
        requests: the roles and texts of each request since "look".
        may_answer: the first answer begins after this event.
        endings: for each answer, what is done after its first words; nothing by default.
    """

    def __init__(self, *endings: Any, may_answer: asyncio.Event = OPEN) -> None:
        self.requests: list[list[tuple[str, str]]] = []
        self.may_answer = may_answer
        self.endings = list(endings)

    def __call__(self, request: ReceivedRequest) -> ScriptedResponse:
        texts = [(role, read_text(text) if role == "user" else text) for role, text in request.messages]
        start = max((place for place, (_, text) in enumerate(texts) if text.startswith("look")), default=0)
        self.requests.append(texts[start:])
        if not any(role == "tool" for role, _ in texts[start:]) and "look" in texts[-1][1]:
            return CallTool("look_up", {"topic": "tea"})
        answer = f"heard {' + '.join(text for role, text in texts[start:] if role == 'user')}"
        return [Pause(self.may_answer), Say(answer), *([self.endings.pop(0)] if self.endings else [])]


def read_text(text: str) -> str:
    """Return the texts of the users in a prompt, without quotes and names, joined by " + "."""
    own = text.rpartition(QUOTE_CLOSE)[2].strip()
    return " + ".join(part.partition(": ")[2] or part for part in own.split(PART_SEPARATOR))


async def ask_meanwhile(chat: Chat, gate: tools.Gate, *messages: str, user: str = "ada") -> list[Any]:
    """Ask "look" as Ada, post messages while the tool runs, and let the tool return once they are accepted."""
    await chat.say("look")
    await gate.is_called.wait()
    posted = list[Any]()
    for message in messages:
        posted.append(await chat.say(message, user=user))
        await wait_for_reactions(chat, len(posted))
    return posted


def roles(request: Sequence[tuple[str, str]]) -> list[str]:
    return [role for role, _ in request]


async def test_a_message_during_a_tool_call_reaches_the_next_model_call_once(start: StartBot, gate: tools.Gate) -> None:
    model = Model(may_answer=asyncio.Event())
    async with start(model, **TOOLS) as chat:
        await ask_meanwhile(chat, gate, "and milk")
        gate.may_return.set()
        await wait_for_texts(chat, lambda texts: texts == [words.READ_MESSAGE])
        await wait_for_reactions(chat, 0)
        model.may_answer.set()
        await wait_for_answers(chat, "heard look + and milk")
        assert roles(model.requests[1]) == ["user", "assistant", "tool", "user"]
        await chat.say("thanks")
        await wait_for_texts(chat, lambda texts: texts[1:] == ["heard look + and milk + thanks"])
        assert [text for _, text in model.requests[2]].count("and milk") == 1
        assert "and milk" in await export(chat)


async def test_messages_are_read_in_their_order(start: StartBot, gate: tools.Gate) -> None:
    async with start(Model(), **TOOLS) as chat:
        await ask_meanwhile(chat, gate, "one", "two", "three")
        gate.may_return.set()
        await wait_for_answers(chat, "heard look + one + two + three")
        await wait_for_reactions(chat, 0)


async def test_the_files_of_a_message_are_read_with_it(start: StartBot, gate: tools.Gate) -> None:
    model = Model()
    async with start(model, **TOOLS) as chat:
        await ask_meanwhile(chat, gate)
        await chat.say("and this", files={"list.txt": b"milk and sugar"})
        await wait_for_reactions(chat, 1)
        gate.may_return.set()
        await wait_for_texts(chat, lambda texts: texts and "and this" in texts[0])
        assert "milk and sugar" in model.requests[1][-1][1]


async def test_a_message_of_another_person_waits(start: StartBot, gate: tools.Gate) -> None:
    model = Model()
    async with start(model, **TOOLS) as chat:
        await ask_meanwhile(chat, gate, "and milk", user="grace")
        gate.may_return.set()
        await wait_for_texts(chat, lambda texts: texts == ["heard look", "heard look + and milk"])
        assert roles(model.requests[1]) == ["user", "assistant", "tool"]


async def test_messages_wait_for_the_next_turn_if_the_setting_says_so(start: StartBot, gate: tools.Gate) -> None:
    async with start(Model(), while_running="queue", **TOOLS) as chat:
        await ask_meanwhile(chat, gate, "and milk")
        gate.may_return.set()
        await wait_for_answers(chat, "heard look", "heard look + and milk")


async def test_a_message_during_the_last_model_call_is_the_next_turn(start: StartBot, gate: tools.Gate) -> None:
    gate.may_return.set()
    model = Model(Pause(may_end := asyncio.Event()))
    async with start(model, **TOOLS) as chat:
        await chat.say("look")
        await wait_for_texts(chat, lambda texts: texts == ["heard look"])
        await chat.say("and milk")
        await wait_for_reactions(chat, 1)
        may_end.set()
        await wait_for_answers(chat, "heard look", "heard look + and milk")


async def test_stop_ends_the_turn_and_the_messages_that_it_has_not_read(start: StartBot, gate: tools.Gate) -> None:
    model = Model()
    async with start(model, **TOOLS) as chat:
        await ask_meanwhile(chat, gate, "and milk")
        await run_command(chat, "stop")
        await wait_for_texts(chat, lambda texts: texts and words.STOPPED in texts[0])
        await wait_for_reactions(chat, 0)
        assert len(model.requests) == 1


async def test_stop_after_a_message_was_read_ends_the_turn(start: StartBot, gate: tools.Gate) -> None:
    async with start(Model(Pause(60)), **TOOLS) as chat:
        await ask_meanwhile(chat, gate, "and milk")
        gate.may_return.set()
        await wait_for_texts(chat, lambda texts: texts == ["heard look + and milk"])
        await run_command(chat, "stop")
        await wait_for_texts(chat, lambda texts: texts == [f"heard look + and milk\n\n{words.STOPPED}"])


async def test_a_message_is_read_as_it_was_edited_or_not_at_all(start: StartBot, gate: tools.Gate) -> None:
    async with start(Model(), **TOOLS) as chat:
        edited, deleted = await ask_meanwhile(chat, gate, "and mlik", "and sugar")
        await chat.edit(edited, "and milk")
        await chat.delete(deleted)
        await chat.simulator.wait_for(lambda: chat.count_reactions() == 1)
        await export(chat)  # the bot has received the edit and the deletion
        gate.may_return.set()
        await wait_for_answers(chat, "heard look + and milk")


async def test_the_edit_of_a_read_message_offers_a_new_answer(start: StartBot, gate: tools.Gate) -> None:
    async with start(Model(), **TOOLS) as chat:
        (message,) = await ask_meanwhile(chat, gate, "and mlik")
        gate.may_return.set()
        await wait_for_answers(chat, "heard look + and mlik")
        await chat.edit(message, "and milk")
        await chat.simulator.wait_for(lambda: words.ANSWER_EDITED in list_buttons(chat)[-1])
        await chat.press(words.ANSWER_EDITED)
        await wait_for_answers(chat, "heard look + and milk")


async def test_the_deletion_of_a_read_message_does_not_end_the_turn(start: StartBot, gate: tools.Gate) -> None:
    async with start(Model(Pause(may_end := asyncio.Event())), **TOOLS) as chat:
        (message,) = await ask_meanwhile(chat, gate, "and milk")
        gate.may_return.set()
        await wait_for_texts(chat, lambda texts: texts == ["heard look + and milk"])
        await chat.delete(message)
        await export(chat)
        may_end.set()
        await wait_for_answers(chat, "heard look + and milk")


async def test_regenerate_answers_all_messages_of_the_turn(start: StartBot, gate: tools.Gate) -> None:
    model = Model()
    async with start(model, **TOOLS) as chat:
        await ask_meanwhile(chat, gate, "and milk")
        gate.may_return.set()
        await wait_for_answers(chat, "heard look + and milk")
        await chat.press(words.REGENERATE)
        await chat.simulator.wait_for(lambda: len(model.requests) == 4)
        await wait_for_answers(chat, "heard look + and milk")
        assert model.requests[2] == [("user", "look + and milk")]


async def test_retry_goes_on_after_the_messages_that_the_run_has_read(start: StartBot, gate: tools.Gate) -> None:
    model = Model(Fail(400, "no"))
    async with start(model, **TOOLS) as chat:
        await ask_meanwhile(chat, gate, "and milk")
        gate.may_return.set()
        await chat.simulator.wait_for(lambda: words.RETRY in list_buttons(chat)[-1])
        await chat.press(words.RETRY)
        await wait_for_answers(chat, "heard look + and milk")
        assert roles(model.requests[-1]) == ["user", "assistant", "tool", "user"]


async def test_the_next_process_reads_a_message_that_waits(start: StartBot, gate: tools.Gate) -> None:
    async with start(Model(), **TOOLS, **BRIEF) as chat:
        await ask_meanwhile(chat, gate, "and milk")
    gate.may_return.set()
    model = Model()
    async with start(model, **TOOLS):
        await wait_for_answers(chat, "heard look + and milk")
        await wait_for_reactions(chat, 0)


async def test_the_next_process_goes_on_after_a_message_that_was_read(start: StartBot, gate: tools.Gate) -> None:
    async with start(Model(Pause(60)), **TOOLS, **BRIEF) as chat:
        await ask_meanwhile(chat, gate, "and milk")
        gate.may_return.set()
        await wait_for_texts(chat, lambda texts: texts == ["heard look + and milk"])
    model = Model()
    async with start(model, **TOOLS):
        await wait_for_answers(chat, "heard look + and milk")
        assert roles(model.requests[0]) == ["user", "assistant", "tool", "user"]
    assert list_texts(chat) == ["heard look + and milk"]
