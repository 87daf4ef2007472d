import asyncio
import re
from collections.abc import AsyncIterator, Callable
from html import unescape

import pytest
from textual.pilot import Pilot
from textual.widgets import Input

from sandbox.discord import DiscordSandbox
from sandbox.slack import Message, SlackSandbox
from sandbox.terminal.app import Terminal
from sandbox.terminal.discord import DiscordPlatform
from sandbox.terminal.slack import SlackPlatform
from tests.sandbox.terminal.conftest import Bot

Screen = Pilot[None]


@pytest.fixture
async def screen(slack: SlackSandbox, discord: DiscordSandbox) -> AsyncIterator[Screen]:
    app = Terminal(SlackPlatform(slack), DiscordPlatform(discord), notices=["No tokens: this is the sandbox."])
    async with app.run_test(size=(80, 24)) as pilot:
        yield pilot


def seen(screen: Screen) -> str:
    """The letters on the screen, line by line."""
    svg = screen.app.export_screenshot()
    rows: dict[float, str] = {}
    for y, text in re.findall(r'<text[^>]*y="([\d.]+)"[^>]*clip-path[^>]*>(.*?)</text>', svg):
        rows[float(y)] = rows.get(float(y), "") + unescape(text).replace("\xa0", " ")
    return "\n".join(row for _, row in sorted(rows.items()))


async def until(screen: Screen, condition: Callable[[], object]) -> None:
    try:
        async with asyncio.timeout(5):
            while not condition():
                await screen.pause()
                await asyncio.sleep(0.01)
    except TimeoutError:
        pytest.fail(f"not seen in time:\n{seen(screen)}")


async def sees(screen: Screen, *texts: str) -> None:
    await until(screen, lambda: all(text in seen(screen) for text in texts))


async def does_not_see(screen: Screen, text: str) -> None:
    await until(screen, lambda: text not in seen(screen))


async def enter(screen: Screen, line: str) -> None:
    screen.app.query_one("#line", Input).insert_text_at_cursor(line)
    await screen.press("enter")


async def said(slack: SlackSandbox, channel: str, text: str) -> Message:
    def found() -> Message | None:
        return next((m for m in slack.messages(channel) if m.content.text == text), None)

    message = await slack.wait_for(found)
    assert message is not None
    return message


def dm(slack: SlackSandbox, person: str = "ada") -> str:
    return slack.open_dm(person).id


async def test_it_opens_in_the_direct_messages_and_says_what_to_do(screen: Screen) -> None:
    await sees(
        screen,
        "No tokens: this is the sandbox.",
        "ada → @parley",
        "Type a question",
        "#general",
        "not connected yet",
        "Quit",
    )


async def test_the_bots_connection_is_shown(screen: Screen, bot: Bot) -> None:
    await sees(screen, "○ Slack not connected yet")
    await bot.connect()
    await sees(screen, "● Slack connected")


async def test_what_is_typed_is_said_and_shown(screen: Screen, slack: SlackSandbox) -> None:
    await enter(screen, "hello")
    message = await said(slack, dm(slack), "hello")
    assert message.user == slack.people["ada"].id
    await sees(screen, "ada  ", "hello")


async def test_a_reply_grows_in_place(screen: Screen, slack: SlackSandbox, bot: Bot) -> None:
    await enter(screen, "hello")
    await said(slack, dm(slack), "hello")
    reply = await bot.posts(dm(slack), "Thinking")
    await sees(screen, "parley APP", "Thinking")
    await bot.updates(dm(slack), reply, "Good *morn*")
    await sees(screen, "Good morn", "(edited)")
    await bot.updates(dm(slack), reply, "Good *morning*, Ada")
    await sees(screen, "Good morning, Ada")
    assert "Thinking" not in seen(screen)
    assert seen(screen).count("parley APP") == 1


async def test_in_direct_messages_one_goes_along_into_the_conversation(
    screen: Screen, slack: SlackSandbox, bot: Bot
) -> None:
    await enter(screen, "hello")
    question = await said(slack, dm(slack), "hello")
    await bot.posts(dm(slack), "Hi Ada", question.ts)
    await sees(screen, "Hi Ada", "thread “hello”")
    await enter(screen, "again")
    assert (await said(slack, dm(slack), "again")).thread_ts == question.ts
    await screen.press("escape")
    await sees(screen, "ada → @parley ─", "2 replies")


async def test_a_mention_in_a_channel_reaches_the_bot_and_its_answer_is_shown_below(
    screen: Screen, slack: SlackSandbox, bot: Bot
) -> None:
    await bot.connect()
    await enter(screen, "/channel general")
    await sees(screen, "ada → #general")
    await enter(screen, "@parley why < 1?")
    channel, ts = await asyncio.wait_for(bot.mentions.get(), 5)
    assert slack.messages("general")[0].text == "@parley why < 1?"
    await bot.posts(channel, "So it is", ts)
    await sees(screen, "@parley why < 1?", "↳ 1 reply", "So it is")


async def test_enter_on_a_message_opens_its_thread(screen: Screen, slack: SlackSandbox, bot: Bot) -> None:
    question = await slack.say("grace", "general", "who knows?")
    await bot.posts(question.channel.id, "I do", question.ts)
    await enter(screen, "/channel general")
    await sees(screen, "who knows?")
    await screen.press("up", "enter")
    await sees(screen, "ada → #general, thread “who knows?”", "I do")
    await enter(screen, "tell me")
    assert (await said(slack, "general", "tell me")).thread_ts == question.ts


async def test_a_click_on_a_message_opens_its_thread(screen: Screen, slack: SlackSandbox) -> None:
    await slack.say("grace", "general", "who knows?")
    await enter(screen, "/channel general")
    await sees(screen, "who knows?")
    await screen.click("#messages Row")
    await sees(screen, "thread “who knows?”")


async def test_several_people_speak_in_one_thread(screen: Screen, slack: SlackSandbox) -> None:
    await enter(screen, "/channel general")
    await sees(screen, "ada → #general")
    await enter(screen, "hello")
    root = await said(slack, "general", "hello")
    await screen.press("ctrl+t", "ctrl+r")
    await sees(screen, "grace → #general, thread “hello”")
    await enter(screen, "hi")
    await enter(screen, "/as linus")
    await sees(screen, "linus → #general, thread “hello”")
    await enter(screen, "ho")
    await said(slack, "general", "ho")
    thread = slack.messages("general", thread_ts=root.ts)
    assert [message.user for message in thread] == [slack.people[name].id for name in ("ada", "grace", "linus")]


async def test_direct_messages_are_ones_own(screen: Screen, slack: SlackSandbox) -> None:
    await enter(screen, "for ada only")
    await sees(screen, "for ada only")
    await screen.press("ctrl+r")
    await sees(screen, "grace → @parley")
    assert "for ada only" not in seen(screen)
    await enter(screen, "I am grace")
    await said(slack, dm(slack, "grace"), "I am grace")


async def test_a_slash_command_goes_to_the_bot_and_its_answer_is_for_that_person_alone(
    screen: Screen, bot: Bot
) -> None:
    await bot.connect()
    await enter(screen, "/channel general")
    await enter(screen, "/reset")
    await sees(screen, "We start over.", "only visible to you")
    await screen.press("ctrl+r")
    await does_not_see(screen, "We start over.")


async def test_slack_refuses_a_slash_command_in_a_thread(screen: Screen, slack: SlackSandbox) -> None:
    await slack.say("grace", "general", "who knows?")
    await enter(screen, "/channel general")
    await sees(screen, "who knows?")
    await screen.press("ctrl+t")
    await sees(screen, "thread “who knows?”")
    await enter(screen, "/reset")
    await sees(screen, "/reset is not supported in threads. Sorry!")


async def test_news_elsewhere_are_marked_until_one_goes_there(screen: Screen, slack: SlackSandbox) -> None:
    await slack.say("grace", "random", "one")
    await slack.say("grace", "random", "two")
    await sees(screen, "#random (2)")
    await screen.press("ctrl+n")
    await sees(screen, "ada → #random", "two")
    await does_not_see(screen, "#random (2)")


async def test_a_thread_with_news_is_listed_first(screen: Screen, slack: SlackSandbox) -> None:
    for word in ("older", "newer"):
        root = await slack.say("grace", "general", word)
        await slack.say("linus", "general", "yes", thread_ts=root.ts)
    await sees(screen, "↳ newer (1)", "↳ older (1)")
    assert seen(screen).index("↳ newer") < seen(screen).index("↳ older")


async def test_reactions_come_and_go_and_what_is_deleted_is_gone(screen: Screen, slack: SlackSandbox, bot: Bot) -> None:
    await enter(screen, "hello")
    message = await said(slack, dm(slack), "hello")
    await bot.web.reactions_add(channel=dm(slack), timestamp=message.ts, name="eyes")
    await sees(screen, "👀 1")
    await bot.web.reactions_remove(channel=dm(slack), timestamp=message.ts, name="eyes")
    await does_not_see(screen, "👀 1")
    await slack.delete("ada", message)
    await sees(screen, "This is your direct line")


async def test_a_letter_typed_anywhere_lands_in_the_line(screen: Screen, slack: SlackSandbox) -> None:
    screen.app.query_one("#places").focus()
    await screen.press(*"hello", "enter")
    await said(slack, dm(slack), "hello")


async def test_places_are_chosen_with_the_keyboard(screen: Screen) -> None:
    await sees(screen, "#general")
    screen.app.query_one("#places").focus()
    await screen.press("down", "down", "enter")
    await sees(screen, "ada → #general")


async def test_help_tells_the_terminals_own_words(screen: Screen) -> None:
    await screen.press("f1")
    await sees(screen, "/as NAME", "ada, grace, linus", "/quit")


async def test_a_thread_whose_beginning_was_deleted_takes_no_more(screen: Screen, slack: SlackSandbox) -> None:
    root = await slack.say("ada", "general", "hello")
    await enter(screen, "/channel general")
    await sees(screen, "hello")
    await screen.press("ctrl+t")
    await sees(screen, "thread “hello”")
    await slack.delete("ada", root)
    await enter(screen, "too late")
    await sees(screen, "there is no message")


@pytest.mark.parametrize("keys", [["ctrl+c"], ["ctrl+d"], [*"/quit", "enter"]])
async def test_it_is_left_by_a_key_or_a_word(slack: SlackSandbox, keys: list[str]) -> None:
    async def leave(pilot: Pilot[object]) -> None:
        await pilot.press(*keys)

    app = Terminal(SlackPlatform(slack), notices=[])
    async with asyncio.timeout(5):
        await app.run_async(headless=True, auto_pilot=leave)
