"""Follow-ups: the setting REPLY_WITHOUT_MENTION, `mute` and agents decide which messages of a thread are answered."""

import asyncio

import pytest

from channels.i18n import messages as words
from chatrig.models import CallTool, ReceivedRequest, ScriptedResponse
from tests.scenarios.chat import Chat, run_command, wait_for_answers
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
