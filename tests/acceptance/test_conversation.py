"""Conversations of users with the bot, on both platforms."""

import re
from collections.abc import Iterator
from itertools import pairwise

import pytest

from channels.i18n import messages as words
from chatrig.models import CallTool, Fail, ReceivedRequest, Say, ScriptedResponse
from tests.acceptance.conftest import AcceptanceBot
from tests.acceptance.platforms import Platform

pytestmark = pytest.mark.asyncio(loop_scope="session")


def answer_from_memory(request: ReceivedRequest) -> ScriptedResponse:
    """Answer a question for the agent's memory from the words after `remember`.

    All other messages are answered by "Noted.".
    """
    if "what do you know" in request.text:
        questions = " ".join(text for role, text in request.messages if role == "user")
        return "I know: " + (", ".join(re.findall(r"remember (\w+)", questions)) or "nothing")
    return "Noted."


@pytest.fixture
def bot(shared_bot: AcceptanceBot) -> Iterator[AcceptanceBot]:
    answer = shared_bot.answer
    yield shared_bot
    shared_bot.answer = answer


@pytest.fixture(params=["slack", "discord"])
def platform(request: pytest.FixtureRequest, shared_bot: AcceptanceBot) -> Platform:
    return next(platform for platform in shared_bot.platforms if platform.name == request.param)


async def test_a_mention_is_answered_by_a_growing_reply(bot: AcceptanceBot, platform: Platform) -> None:
    bot.answer = lambda _request: Say("The quick brown fox jumps over the lazy dog.", pieces=20, pace=0.2)
    conversation = platform.start_conversation()
    await bot.ask(platform, conversation, "say it", "The quick brown fox jumps over the lazy dog.")

    (reply,) = conversation.replies()
    assert reply.versions[0] == words.PLACEHOLDER
    assert len(reply.versions) > 3
    assert all(later.startswith(earlier) for earlier, later in pairwise(reply.versions[1:]))


async def test_a_direct_message_is_answered(bot: AcceptanceBot, platform: Platform) -> None:
    bot.answer = lambda request: f"You said: {request.text}"
    await bot.ask(platform, platform.start_dm("ada"), "hi", "You said: hi")


async def test_a_thread_with_the_bot_needs_no_further_mention(bot: AcceptanceBot, platform: Platform) -> None:
    bot.answer = answer_from_memory
    thread = await platform.start_thread()
    await bot.ask(platform, thread, "remember red", "Noted.")
    await thread.say("what do you know?", mentions_bot=False)
    await bot.wait_for_reply(platform, thread, lambda text: text == "I know: red")


async def test_in_a_thread_the_bot_answers_its_messages_until_it_is_muted(
    bot: AcceptanceBot, platform: Platform
) -> None:
    bot.answer = lambda request: f"{request.text.rpartition(': ')[2]}!"
    thread = await platform.start_thread()
    await bot.ask(platform, thread, "one", "one!")
    await thread.say("two", mentions_bot=False)
    await bot.wait_for_reply(platform, thread, lambda text: text == "two!")
    await thread.say("lunch?", user="grace", mentions_bot=False)
    await thread.say("yes, at noon", mentions_bot=False)  # a reply to Grace
    await bot.ask(platform, thread, "three", "three!", user="grace")
    await thread.say("four", user="grace", mentions_bot=False)
    await bot.wait_for_reply(platform, thread, lambda text: text == "four!")
    await bot.ask(platform, thread, "mute", words.MUTED)
    await thread.say("all by myself", mentions_bot=False)
    await bot.ask(platform, thread, "five", "five!")
    await bot.ask(platform, thread, "listen", words.UNMUTED)
    await thread.say("six", mentions_bot=False)
    await bot.wait_for_reply(platform, thread, lambda text: text == "six!")
    texts = [reply.text for reply in thread.replies()]
    assert texts == ["one!", "two!", "three!", "four!", words.MUTED, "five!", words.UNMUTED, "six!"]


async def test_messages_without_a_mention_start_no_turn(bot: AcceptanceBot, platform: Platform) -> None:
    bot.answer = lambda _request: "Yes?"
    before = platform.bot_message_count
    await platform.send_unrelated_messages()
    await bot.ask(platform, platform.start_conversation(), "are you there?", "Yes?")
    assert platform.bot_message_count == before + 1


async def test_a_reset_clears_the_history_of_one_session_only(bot: AcceptanceBot, platform: Platform) -> None:
    bot.answer = answer_from_memory
    first, second, third = platform.start_conversation(), platform.start_conversation(), await platform.start_thread()
    await bot.ask(platform, first, "remember red", "Noted.")
    await bot.ask(platform, second, "remember blue", "Noted.", user="grace")
    await bot.ask(platform, third, "remember green", "Noted.")

    await bot.ask(platform, first, "reset", words.RESET_DONE)
    assert await third.reset() == words.RESET_DONE
    await bot.ask(platform, first, "what do you know", "I know: nothing")
    await bot.ask(platform, third, "what do you know", "I know: nothing")
    await bot.ask(platform, second, "what do you know", "I know: blue")


async def test_a_run_of_200_deltas_and_two_tool_calls_shows_each_step_once(
    bot: AcceptanceBot, platform: Platform
) -> None:
    steps = [f"Step {number}: " + " ".join(f"w{number}.{word}" for word in range(66)) for number in (1, 2, 3)]

    def script(request: ReceivedRequest) -> ScriptedResponse:
        result_count = sum(role == "tool" for role, _ in request.messages)
        step = Say(steps[result_count], pieces=67, pace=0.01)
        return (
            [step, CallTool("current_time", {"timezone": "UTC"}, id=f"call_{result_count}")]
            if result_count < 2
            else [step]
        )

    bot.answer = script
    conversation = platform.start_conversation()
    await bot.ask(platform, conversation, "work", "\n\n".join(steps))
    assert len(conversation.replies()) == 1


async def test_messages_sent_during_a_turn_share_the_next_turn(bot: AcceptanceBot, platform: Platform) -> None:
    def script(request: ReceivedRequest) -> ScriptedResponse:
        quotes = [line.rpartition(" ")[2] for line in request.text.splitlines() if line]
        return Say(f"Re: {', '.join(quotes)}", pieces=4, pace=0.1)

    bot.answer = script
    conversation = platform.start_conversation()
    await conversation.say("one")
    await platform.wait_for(conversation.replies)
    for text in ("two", "three"):
        await conversation.say(text)
    await platform.wait_for(lambda: conversation.count_reactions() == 2)
    await bot.wait_for_reply(platform, conversation, lambda text: text == "Re: two, three")
    assert [reply.text for reply in conversation.replies()] == ["Re: one", "Re: two, three"]
    await platform.wait_for(lambda: not conversation.count_reactions())


async def test_a_model_error_ends_in_one_sentence_and_the_session_goes_on(
    bot: AcceptanceBot, platform: Platform
) -> None:
    secret = "sk-" + "z" * 30
    bot.answer = lambda request: Fail(400, f"boom {secret}") if "hi" in request.text else "Fine again."
    conversation = platform.start_conversation()
    await conversation.say("hi")
    failed = await bot.wait_for_reply(platform, conversation, lambda text: text.startswith("⚠️"))
    assert re.fullmatch(r"⚠️ The model refused this request\. \(turn `\w{10}`\)", failed.text)
    await bot.ask(platform, conversation, "again", "Fine again.")
    assert secret not in bot.program.log


@pytest.mark.parametrize(
    ("text", "files"),
    [
        ("", ("cat.png",)),
        ("x" * 1_990, ()),
        ("nul \0 byte", ()),
        ("half a pair \ud83d here", ()),
        ("&lt;b&gt; <https://example.com|link> <!here> @everyone", ()),
    ],
    ids=["only a file", "long", "nul", "half a surrogate pair", "marks"],
)
async def test_every_text_gets_an_answer(
    bot: AcceptanceBot, platform: Platform, text: str, files: tuple[str, ...]
) -> None:
    bot.answer = lambda _request: "An answer."
    conversation = platform.start_dm("grace")
    before = len(conversation.replies())
    await conversation.say(text, user="grace", files=files)
    await platform.wait_for(
        lambda: len(conversation.replies()) > before and conversation.replies()[-1].text == "An answer."
    )


async def test_a_mention_without_text_gets_an_answer(bot: AcceptanceBot, platform: Platform) -> None:
    bot.answer = lambda _request: "Yes?"
    await bot.ask(platform, platform.start_conversation(), "", "Yes?")


async def test_a_long_answer_is_shown_completely_in_several_chunks(bot: AcceptanceBot, platform: Platform) -> None:
    lines = [f"{number}. " + "lorem ipsum dolor " * 6 for number in range(60)]
    bot.answer = lambda _request: Say("\n".join(lines), pieces=50)
    conversation = platform.start_conversation()
    await conversation.say("long")
    await bot.wait_for_reply(platform, conversation, lambda text: lines[-1].strip() in text)
    assert len(conversation.replies()) > 1
    visible = "\n".join(reply.text for reply in conversation.replies())
    assert [line.strip() for line in visible.splitlines() if line.strip()] == [line.strip() for line in lines]


async def test_model_text_pings_nobody(bot: AcceptanceBot, platform: Platform) -> None:
    evil = (
        f"<!channel> <!here> @everyone @here {platform.mention('grace')} `<!everyone>`\n```\n<!channel> @everyone\n```"
    )
    bot.answer = lambda _request: Say(evil, pieces=30, pace=0.05)
    conversation = platform.start_conversation()
    await conversation.say("go")
    reply = await bot.wait_for_reply(platform, conversation, lambda text: "```" in text)
    assert not reply.pings
