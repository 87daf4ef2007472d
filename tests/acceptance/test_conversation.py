"""Conversations of users with the bot, on both platforms."""

import asyncio
import re
import signal
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from channels.i18n import messages as words
from chatrig.models import CallTool, Fail, ReceivedRequest, Say, ScriptedResponse
from tests.acceptance.conftest import AcceptanceBot
from tests.acceptance.platforms import Platform

#: Seconds for which a bot keeps its connections to simulators that do not answer.
MAX_PAUSE_SECONDS = 10.0

pytestmark = pytest.mark.asyncio(loop_scope="session")


def answer_from_memory(request: ReceivedRequest) -> ScriptedResponse:
    """Answer a question for the agent's memory from the words after `remember`.

    All other messages are answered by "Noted.".
    """
    if "what do you know" in request.text:
        questions = " ".join(text for role, text in request.messages if role == "user")
        return "I know: " + (", ".join(re.findall(r"remember (\w+)", questions)) or "nothing")
    return "Noted."


@pytest_asyncio.fixture(loop_scope="session")
async def bot(shared_bot: AcceptanceBot) -> AsyncIterator[AcceptanceBot]:
    """Yield the shared bot, which is started again if other tests of this worker ran for a while since its last use.

    The simulators did not answer meanwhile, so that it may have lost its connections.
    """
    loop = asyncio.get_running_loop()
    if loop.time() > shared_bot.used_at + MAX_PAUSE_SECONDS:
        await shared_bot.program.stop(signal.SIGKILL)
        await shared_bot.start()
    answer = shared_bot.answer
    yield shared_bot
    shared_bot.answer = answer
    shared_bot.used_at = loop.time()


@pytest.fixture(params=["slack", "discord"])
def platform(request: pytest.FixtureRequest, shared_bot: AcceptanceBot) -> Platform:
    return next(platform for platform in shared_bot.platforms if platform.name == request.param)


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


async def test_a_secret_in_an_error_of_the_model_is_not_logged(bot: AcceptanceBot, platform: Platform) -> None:
    secret = "sk-" + "z" * 30
    bot.answer = lambda _request: Fail(400, f"boom {secret}")
    conversation = platform.start_conversation()
    await conversation.say("hi")
    await bot.wait_for_reply(platform, conversation, lambda text: text.startswith("⚠️"))
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


async def test_model_text_pings_nobody(bot: AcceptanceBot, platform: Platform) -> None:
    evil = (
        f"<!channel> <!here> @everyone @here {platform.mention('grace')} `<!everyone>`\n```\n<!channel> @everyone\n```"
    )
    bot.answer = lambda _request: Say(evil, pieces=30, pace=0.05)
    conversation = platform.start_conversation()
    await conversation.say("go")
    reply = await bot.wait_for_reply(platform, conversation, lambda text: "```" in text)
    assert not reply.pings
