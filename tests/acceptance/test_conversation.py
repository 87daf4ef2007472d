"""What a team member sees."""

import asyncio
import re
import signal
from collections.abc import Awaitable, Callable
from itertools import pairwise
from pathlib import Path

import pytest

from sandbox.models import Asked, Call, Fail, Pause, Say, ScriptedAnthropic, ScriptedGemini, Turn
from sandbox.slack import SlackSandbox
from tests.acceptance.conftest import Workspace

Start = Callable[..., Awaitable[Workspace]]


def memory(asked: Asked) -> Turn:
    """A model that remembers: asked what it knows, it says the words that followed `remember`."""
    if "what do you know" in asked.text:
        said = " ".join(text for role, text in asked.messages if role == "user")
        return "I know: " + (", ".join(re.findall(r"remember (\w+)", said)) or "nothing")
    return "Noted."


async def test_a_mention_is_answered_in_its_thread_and_the_reply_grows(start: Start) -> None:
    bot = await start([Say("The quick brown fox jumps over the lazy dog.", pieces=20, pace=0.15)])
    root = await bot.ask("say it", "The quick brown fox jumps over the lazy dog.")

    (reply,) = bot.replies(root)
    shown = [version.text for version in reply.versions]
    assert reply.thread_ts == root.ts
    assert shown[0] == "…"
    assert len(shown) > 3
    assert all(later.startswith(earlier) for earlier, later in pairwise(shown[1:]))
    assert not reply.edited, "people see no (edited) beside it"
    assert (reply.unfurl_links, reply.unfurl_media) == (False, False)


async def test_a_direct_message_is_answered_in_its_thread(start: Start, slack: SlackSandbox) -> None:
    bot = await start(["Hello, Ada."])
    said = await slack.say("ada", slack.open_dm("ada"), "hi")
    reply = await bot.reply(said, lambda text: text == "Hello, Ada.")
    assert reply.thread_ts == said.ts


async def test_a_thread_in_which_the_bot_speaks_is_followed_without_a_mention(
    start: Start, slack: SlackSandbox
) -> None:
    bot = await start(memory)
    root = await bot.ask("remember red", "Noted.")
    await slack.say("grace", "general", "what do you know?", thread_ts=root.ts)
    await bot.reply(root, lambda text: text == "I know: red")


async def test_each_thread_remembers_its_own_and_a_reset_forgets_only_one_even_after_a_restart(start: Start) -> None:
    bot = await start(memory)
    first = await bot.ask("remember red", "Noted.")
    second = await bot.ask("remember blue", "Noted.", user="grace")
    third = await bot.ask("remember green", "Noted.", channel="random")
    await bot.ask("what do you know", "I know: red", under=first)
    await bot.ask("what do you know", "I know: blue", under=second)

    await bot.ask("reset", "Started over: I remember nothing of this conversation.", under=first)
    heard = await bot.slack.command("ada", "random", "/reset")
    assert [message.text for message in heard] == ["Started over: I remember nothing of this conversation."]
    await bot.ask("what do you know", "I know: nothing", under=first)
    await bot.ask("what do you know", "I know: nothing", under=third)
    await bot.ask("what do you know", "I know: blue", under=second)

    assert await bot.program.end(signal.SIGTERM) == 0
    await bot.started()
    await bot.ask("what do you know", "I know: nothing", under=first)
    await bot.ask("what do you know", "I know: blue", under=second)


async def test_a_run_of_200_deltas_and_two_tool_calls_is_shown_as_its_steps_and_nothing_twice(start: Start) -> None:
    steps = [f"Step {number}: " + " ".join(f"w{number}.{word}" for word in range(66)) for number in (1, 2, 3)]

    def script(asked: Asked) -> Turn:
        done = sum(role == "tool" for role, _ in asked.messages)
        said = Say(steps[done], pieces=67, pace=0.01)
        return [said, Call("current_time", {"timezone": "UTC"}, id=f"call_{done}")] if done < 2 else [said]

    bot = await start(script)
    root = await bot.ask("work", "\n\n".join(steps))
    assert len(bot.replies(root)) == 1


@pytest.mark.parametrize(
    ("server", "vendor", "model"),
    [(ScriptedGemini, "GOOGLE", "gemini-test"), (ScriptedAnthropic, "ANTHROPIC", "anthropic/test")],
)
async def test_each_vendor_answers_through_its_own_wire(
    start: Start, server: type[ScriptedGemini | ScriptedAnthropic], vendor: str, model: str
) -> None:
    call = Call("current_time", {"timezone": "Asia/Seoul"}, id="call_1")
    async with server([[Say("Let me look. ", pieces=3), call], [Say("It is late.", pieces=3)]]) as scripted:
        address = {f"{vendor}_API_KEY": "sk-test-key", f"{vendor}_BASE_URL": scripted.base_url}
        bot = await start(MODEL=model, **address)
        await bot.ask("what time is it?", "Let me look. \n\nIt is late.")


async def test_messages_of_a_session_are_answered_one_at_a_time_and_in_order(start: Start, slack: SlackSandbox) -> None:
    bot = await start(lambda asked: [Say(f"Re: {asked.text}", pieces=4, pace=0.1)])
    root = await slack.say("ada", "general", f"{bot.mention} one")
    for text in ("two", "three"):
        await slack.say("ada", "general", f"{bot.mention} {text}", thread_ts=root.ts)
    await bot.reply(root, lambda text: text == "Re: ada: three")
    assert [reply.text for reply in bot.replies(root)] == ["Re: ada: one", "Re: ada: two", "Re: ada: three"]
    assert not any(message.reactions for message in slack.messages("general")), "no receipt is left behind"


async def test_a_model_that_fails_ends_in_one_sentence_and_the_thread_goes_on(
    start: Start, slack: SlackSandbox
) -> None:
    secret = "sk-" + "z" * 30
    bot = await start([Fail(500, f"boom {secret}"), "Fine again."])
    root = await slack.say("ada", "general", f"{bot.mention} hi")
    failed = await bot.reply(root, lambda text: text.startswith("⚠️"))
    assert re.fullmatch(
        r"⚠️ The model cannot be reached right now\. Please try again in a moment\. \(turn `\w{10}`\)", failed.text
    )
    await bot.ask("again", "Fine again.", under=root)
    assert secret not in bot.program.log


async def test_whatever_is_said_gets_an_answer(start: Start, slack: SlackSandbox) -> None:
    bot = await start(lambda _asked: "An answer.")
    for text, files in [
        ("", ()),
        ("", ("cat.png",)),
        ("x" * 39_000, ()),
        ("nul \0 byte", ()),
        ("half a pair \ud83d here", ()),
        ("&lt;b&gt; <https://example.com|link> <!here>", ()),
    ]:
        said = await slack.say("ada", slack.open_dm("ada"), text, files=files)
        await bot.reply(said, lambda shown: shown == "An answer.")


async def test_a_long_answer_is_shown_whole_over_several_messages(start: Start) -> None:
    lines = [f"{number}. " + "lorem ipsum dolor " * 6 for number in range(80)]
    bot = await start([Say("\n".join(lines), pieces=50)])
    root = await bot.slack.say("ada", "general", f"{bot.mention} long")
    await bot.reply(root, lambda text: lines[-1].strip() in text)
    shown = "\n".join(reply.text for reply in bot.replies(root))
    assert [line.strip() for line in shown.splitlines() if line.strip()] == [line.strip() for line in lines]


async def test_nothing_that_the_model_says_pings_anyone(start: Start, slack: SlackSandbox) -> None:
    evil = f"<!channel> <!here> <@{slack.people['grace'].id}> `<!everyone>`\n```\n<!channel>\n```"
    bot = await start([Say(evil, pieces=30)])
    root = await slack.say("ada", "general", f"{bot.mention} go")
    reply = await bot.reply(root, lambda text: "```" in text)
    assert not any(version.pings for version in reply.versions)


async def test_a_stop_in_mid_answer_lets_it_finish(start: Start, slack: SlackSandbox) -> None:
    bot = await start([Say("It takes a moment to say all of this.", pieces=10, pace=0.2)])
    root = await slack.say("ada", "general", f"{bot.mention} hi")
    await bot.reply(root, lambda text: text.startswith("It"))
    assert await bot.program.end(signal.SIGTERM) == 0
    assert [reply.text for reply in bot.replies(root)] == ["It takes a moment to say all of this."]


async def test_a_stop_that_cannot_wait_closes_the_answer_with_a_word(start: Start, slack: SlackSandbox) -> None:
    bot = await start([[Say("A beginning"), Pause(60.0)]], STOP_SECONDS="1")
    root = await slack.say("ada", "general", f"{bot.mention} hi")
    await bot.reply(root, lambda text: text.startswith("A beginning"))
    assert await bot.program.end(signal.SIGINT) == 0
    (reply,) = bot.replies(root)
    assert reply.text == "A beginning\n\n⚠️ I was restarted before I could finish this answer. Please ask again."


async def test_a_tool_that_never_returns_holds_up_neither_the_others_nor_the_end(
    start: Start, slack: SlackSandbox, tmp_path: Path
) -> None:
    source = """
import time
from core.tools import Tool
def function() -> str:
    "Never returns."
    time.sleep(3600)
handler = Tool("handler", "Never returns.", lambda _arguments: time.sleep(3600))
"""
    (tmp_path / "endless.py").write_text(source)
    bot = await start(
        lambda asked: [Call("function"), Call("handler")] if "go" in asked.text else "Here.",
        TOOLS="endless:function,endless:handler",
        STOP_SECONDS="1",
    )
    root = await slack.say("ada", "general", f"{bot.mention} go")
    await bot.reply(root, lambda text: text.startswith("_Using"))
    await bot.ask("still there?", "Here.")
    assert await bot.program.end(signal.SIGTERM, within=15) == 0
    assert [reply.text for reply in bot.replies(root)] == [
        "⚠️ I was restarted before I could finish this answer. Please ask again."
    ]


async def test_a_second_ctrl_c_ends_the_program_at_once(start: Start, slack: SlackSandbox) -> None:
    bot = await start([[Say("A beginning"), Pause(60.0)]])
    root = await slack.say("ada", "general", f"{bot.mention} hi")
    await bot.reply(root, lambda text: text.startswith("A beginning"))
    ending = asyncio.create_task(bot.program.end(signal.SIGINT))
    await slack.wait_for(lambda: not slack.connected)
    await bot.program.end(signal.SIGINT, within=5)
    await ending


async def test_what_a_killed_process_left_is_answered_by_the_next_one(start: Start, slack: SlackSandbox) -> None:
    bot = await start(lambda asked: [Say("Beginning"), Pause(60.0)] if "first" in asked.text else "The second answer.")
    root = await slack.say("ada", "general", f"{bot.mention} first")
    await bot.reply(root, lambda text: text.startswith("Beginning"))
    waiting = await slack.say("ada", "general", f"{bot.mention} second", thread_ts=root.ts)
    await slack.wait_for(lambda: waiting.reactions)

    await bot.program.end(signal.SIGKILL)
    await slack.wait_for(lambda: not slack.connected)
    await bot.started()
    await bot.reply(root, lambda text: text == "The second answer.")
    assert [reply.text for reply in bot.replies(root)] == [
        "⚠️ I was restarted before I could finish this answer. Please ask again.",
        "The second answer.",
    ]
