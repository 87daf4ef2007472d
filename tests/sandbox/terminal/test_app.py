import asyncio
import re
from collections.abc import AsyncIterator, Callable
from html import unescape
from typing import Any

import pytest
from textual.pilot import Pilot
from textual.widgets import Input

from sandbox.client.discord import DiscordPlatform
from sandbox.client.slack import SlackPlatform
from sandbox.discord import DiscordSandbox
from sandbox.slack import SlackMessage, SlackSandbox
from sandbox.terminal.app import TerminalApp
from tests.sandbox.terminal.conftest import Bot, DiscordBot

Screen = Pilot[None]


@pytest.fixture
async def screen(slack: SlackSandbox, server: DiscordSandbox) -> AsyncIterator[Screen]:
    app = TerminalApp(SlackPlatform(slack), DiscordPlatform(server), notices=["No tokens: this is the sandbox."])
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
        async with asyncio.timeout(30):
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


async def said(slack: SlackSandbox, channel: str, text: str) -> SlackMessage:
    def found() -> SlackMessage | None:
        return next((m for m in slack.messages(channel) if m.content.text == text), None)

    message = await slack.wait_for(found)
    assert message is not None
    return message


def dm(slack: SlackSandbox, person: str = "ada") -> str:
    return slack.open_dm(person).id


async def test_the_screen_opens_in_direct_messages_with_a_hint(screen: Screen) -> None:
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


async def test_typed_text_is_posted_and_shown(screen: Screen, slack: SlackSandbox) -> None:
    await enter(screen, "hello")
    message = await said(slack, dm(slack), "hello")
    assert message.user == slack.people["ada"].id
    await sees(screen, "ada  ", "hello")


async def test_a_reply_is_updated_in_place(screen: Screen, slack: SlackSandbox, bot: Bot) -> None:
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


async def test_a_direct_message_opens_its_thread(screen: Screen, slack: SlackSandbox, bot: Bot) -> None:
    await enter(screen, "hello")
    question = await said(slack, dm(slack), "hello")
    await bot.posts(dm(slack), "Hi Ada", question.ts)
    await sees(screen, "Hi Ada", "thread “hello”")
    await enter(screen, "again")
    assert (await said(slack, dm(slack), "again")).thread_ts == question.ts
    await screen.press("escape")
    await sees(screen, "ada → @parley ─", "2 replies")


async def test_a_channel_mention_shows_its_answer_below(screen: Screen, slack: SlackSandbox, bot: Bot) -> None:
    await bot.connect()
    await enter(screen, "/channel general")
    await sees(screen, "ada → #general")
    await enter(screen, "@parley why < 1?")
    channel, ts = await asyncio.wait_for(bot.mentions.get(), 30)
    assert slack.messages("general")[0].text == "@parley why < 1?"
    await bot.posts(channel, "So it is", ts)
    await sees(screen, "@parley why < 1?", "↳ 1 reply", "So it is")


async def test_enter_on_a_message_opens_its_thread(screen: Screen, slack: SlackSandbox, bot: Bot) -> None:
    question = await slack.post_message("grace", "general", "who knows?")
    await bot.posts(question.channel.id, "I do", question.ts)
    await enter(screen, "/channel general")
    await sees(screen, "who knows?")
    await screen.press("up", "enter")
    await sees(screen, "ada → #general, thread “who knows?”", "I do")
    await enter(screen, "tell me")
    assert (await said(slack, "general", "tell me")).thread_ts == question.ts


async def test_a_click_on_a_message_opens_its_thread(screen: Screen, slack: SlackSandbox) -> None:
    await slack.post_message("grace", "general", "who knows?")
    await enter(screen, "/channel general")
    await sees(screen, "who knows?")
    await screen.click("#messages MessageRow")
    await sees(screen, "thread “who knows?”")


async def test_several_users_post_in_one_thread(screen: Screen, slack: SlackSandbox) -> None:
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


async def test_each_user_has_own_direct_messages(screen: Screen, slack: SlackSandbox) -> None:
    await enter(screen, "for ada only")
    await sees(screen, "for ada only")
    await screen.press("ctrl+r")
    await sees(screen, "grace → @parley")
    assert "for ada only" not in seen(screen)
    await enter(screen, "I am grace")
    await said(slack, dm(slack, "grace"), "I am grace")


async def test_a_slash_command_has_an_ephemeral_answer(screen: Screen, bot: Bot) -> None:
    await bot.connect()
    await enter(screen, "/channel general")
    await enter(screen, "/reset")
    await sees(screen, "We start over.", "only visible to you")
    await screen.press("ctrl+r")
    await does_not_see(screen, "We start over.")


async def test_slack_refuses_a_slash_command_in_a_thread(screen: Screen, slack: SlackSandbox) -> None:
    await slack.post_message("grace", "general", "who knows?")
    await enter(screen, "/channel general")
    await sees(screen, "who knows?")
    await screen.press("ctrl+t")
    await sees(screen, "thread “who knows?”")
    await enter(screen, "/reset")
    await sees(screen, "/reset is not supported in threads. Sorry!")


async def test_unread_messages_are_counted_until_their_place_is_opened(screen: Screen, slack: SlackSandbox) -> None:
    await slack.post_message("grace", "random", "one")
    await slack.post_message("grace", "random", "two")
    await sees(screen, "#random (2)")
    await screen.press("ctrl+n")
    await sees(screen, "ada → #random", "two")
    await does_not_see(screen, "#random (2)")


async def test_a_thread_with_a_new_reply_is_listed_first(screen: Screen, slack: SlackSandbox) -> None:
    for word in ("older", "newer"):
        root = await slack.post_message("grace", "general", word)
        await slack.post_message("linus", "general", "yes", thread_ts=root.ts)
    await sees(screen, "↳ newer (1)", "↳ older (1)")
    assert seen(screen).index("↳ newer") < seen(screen).index("↳ older")


async def test_reactions_and_deletions_are_shown(screen: Screen, slack: SlackSandbox, bot: Bot) -> None:
    await enter(screen, "hello")
    message = await said(slack, dm(slack), "hello")
    await bot.web.reactions_add(channel=dm(slack), timestamp=message.ts, name="eyes")
    await sees(screen, "👀 1")
    await bot.web.reactions_remove(channel=dm(slack), timestamp=message.ts, name="eyes")
    await does_not_see(screen, "👀 1")
    await slack.delete_message("ada", message)
    await sees(screen, "This is the beginning of your")


async def test_typing_anywhere_goes_to_the_message_box(screen: Screen, slack: SlackSandbox) -> None:
    screen.app.query_one("#places").focus()
    await screen.press(*"hello", "enter")
    await said(slack, dm(slack), "hello")


async def test_places_are_selected_by_keyboard(screen: Screen) -> None:
    await sees(screen, "#general")
    screen.app.query_one("#places").focus()
    await screen.press("down", "down", "enter")
    await sees(screen, "ada → #general")


async def test_help_lists_the_terminals_commands(screen: Screen) -> None:
    await screen.press("f1")
    await sees(screen, "/as NAME", "ada, grace, linus", "/quit")


async def test_a_button_is_clicked(screen: Screen, slack: SlackSandbox, bot: Bot) -> None:
    await bot.connect()
    button = {"type": "button", "action_id": "again:1", "text": {"type": "plain_text", "text": "Again"}}
    blocks: list[dict[str, Any]] = [
        {"type": "markdown", "text": "It failed."},
        {"type": "actions", "elements": [button]},
    ]
    await bot.web.chat_postMessage(channel=slack.channels["general"].id, text="x", blocks=blocks)
    await enter(screen, "/channel general")
    await sees(screen, "It failed.", "[ Again ]")
    await screen.click("#messages MessageRow", offset=(3, 2))
    await until(screen, lambda: [e for e in slack.envelopes if e.type == "interactive"])
    await does_not_see(screen, "thread “It failed.”")


async def test_a_thread_without_its_first_message_takes_no_replies(screen: Screen, slack: SlackSandbox) -> None:
    root = await slack.post_message("ada", "general", "hello")
    await enter(screen, "/channel general")
    await sees(screen, "hello")
    await screen.press("ctrl+t")
    await sees(screen, "thread “hello”")
    await slack.delete_message("ada", root)
    await enter(screen, "too late")
    await sees(screen, "there is no message")


@pytest.mark.parametrize("way", ["f2", "ctrl+p", "/discord", "click"])
async def test_each_platform_keeps_its_open_place(screen: Screen, way: str) -> None:
    async def go(platform: str) -> None:
        if way == "click":
            await screen.click(f"#{platform}")
        elif way.startswith("/"):
            await enter(screen, f"/{platform.lower()}")
        else:
            await screen.press(way)

    await enter(screen, "/channel random")
    await sees(screen, "ada → #random")
    await go("Discord")
    await sees(screen, "ada → @parley", "#ideas")
    await go("Slack")
    await sees(screen, "ada → #random")
    await does_not_see(screen, "#ideas")


async def test_each_platform_has_its_own_user_and_messages(
    screen: Screen, slack: SlackSandbox, server: DiscordSandbox
) -> None:
    await enter(screen, "/as linus")
    await enter(screen, "on Slack")
    await sees(screen, "linus → @parley", "on Slack")
    await screen.press("f2")
    await sees(screen, "ada → @parley")
    assert "on Slack" not in seen(screen)
    await enter(screen, "on Discord")
    await sees(screen, "on Discord")
    assert [message.text for message in server.messages(server.open_dm("ada"))] == ["on Discord"]
    assert [message.text for message in slack.messages(dm(slack, "linus"))] == ["on Slack"]


async def test_a_hidden_platform_shows_its_unread_count(
    screen: Screen, slack: SlackSandbox, server: DiscordSandbox
) -> None:
    await server.post_message("grace", "general", "one")
    await server.post_message("grace", "random", "two")
    await sees(screen, "Discord not connected yet (2)")
    await enter(screen, "/discord")
    await enter(screen, "/channel general")
    await sees(screen, "Discord not connected yet (1)", "#random (1)")
    await slack.post_message("grace", dm(slack, "grace"), "for grace only")
    await slack.post_message("grace", "general", "three")
    await sees(screen, "Slack not connected yet (1)")


async def test_messages_of_a_hidden_place_are_unread(screen: Screen, slack: SlackSandbox) -> None:
    await enter(screen, "/channel general")
    await screen.press("f2")
    await sees(screen, "#ideas")
    await slack.post_message("grace", "general", "are you there?")
    await sees(screen, "Slack not connected yet (1)")
    await screen.press("f2")
    await sees(screen, "are you there?")
    await does_not_see(screen, "(1)")


async def test_an_answer_on_a_hidden_platform_is_unread(screen: Screen, slack: SlackSandbox, bot: Bot) -> None:
    await enter(screen, "hello")
    question = await said(slack, dm(slack), "hello")
    await screen.press("f2")
    await sees(screen, "#ideas")
    await bot.posts(dm(slack), "Hi Ada", question.ts)
    await sees(screen, "Slack not connected yet (1)")
    await screen.press("f2")
    await sees(screen, "Hi Ada", "thread “hello”")
    await does_not_see(screen, "(1)")


async def test_each_platform_shows_the_bots_connection(screen: Screen, discord_bot: DiscordBot) -> None:
    await sees(screen, "○ Slack not connected yet", "● Discord connected")


async def test_a_conversation_on_discord_is_shown(
    screen: Screen, server: DiscordSandbox, discord_bot: DiscordBot
) -> None:
    await enter(screen, "/discord")
    await enter(screen, "/channel general")
    await enter(screen, "@parley why?")
    heard = await discord_bot.next_message()
    await heard.reply("**So** it is")
    await sees(screen, "╭ ada: @parley why?", "parley APP", "So it is")
    await screen.press("ctrl+t")
    await sees(screen, "ada → #general, thread “**So** it is”")
    await enter(screen, "I see")
    await discord_bot.next_message()
    await sees(screen, "↳ **So** it is", "I see")
    assert len(server.threads("general")) == 1


async def test_a_deferred_response_shows_thinking_first(screen: Screen, discord_bot: DiscordBot) -> None:
    await enter(screen, "/discord")
    await enter(screen, "/ask the weather")
    await sees(screen, "parley is thinking…", "only visible to you")
    discord_bot.answers.set()
    await sees(screen, "About the weather", "only visible to you")
    await does_not_see(screen, "parley is thinking…")


async def test_a_forum_post_opens_once_the_bot_answers(screen: Screen, discord_bot: DiscordBot) -> None:
    await enter(screen, "/discord")
    await enter(screen, "/channel ideas")
    await sees(screen, "New post: @parley")
    await enter(screen, "@parley paint it blue")
    heard = await discord_bot.next_message()
    await heard.channel.send("Blue it is")
    await sees(screen, "ada → #ideas, thread “", "Blue it is")


async def test_discord_direct_messages_have_no_threads(screen: Screen, discord_bot: DiscordBot) -> None:
    await enter(screen, "/discord")
    await enter(screen, "hello")
    await sees(screen, "hello")
    await screen.press("ctrl+t")
    await sees(screen, "Direct messages in Discord have no threads.", "ada → @parley ─")


@pytest.mark.parametrize("keys", [["ctrl+c"], ["ctrl+d"], [*"/quit", "enter"]])
async def test_a_key_or_a_command_quits(slack: SlackSandbox, keys: list[str]) -> None:
    async def leave(pilot: Pilot[object]) -> None:
        await pilot.press(*keys)

    app = TerminalApp(SlackPlatform(slack), notices=[])
    async with asyncio.timeout(30):
        await app.run_async(headless=True, auto_pilot=leave)
