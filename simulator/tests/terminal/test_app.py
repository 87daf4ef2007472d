import asyncio
import re
from collections.abc import AsyncIterator, Callable, Iterable
from html import unescape
from typing import Any

import discord
import pytest
from textual.pilot import Pilot
from textual.widgets import Input, ListItem, ListView, Select

from chatrig.client.discord import DiscordPlatform
from chatrig.client.extension import SimulatorExtension, TerminalCommand
from chatrig.client.slack import SlackPlatform
from chatrig.discord import DiscordSimulator
from chatrig.slack import SlackMessage, SlackSimulator
from chatrig.terminal.app import TerminalApp
from chatrig.terminal.rows import MessageRow
from tests.terminal.conftest import DiscordBot, SlackSdkBot

Screen = Pilot[None]


@pytest.fixture
async def screen(slack: SlackSimulator, server: DiscordSimulator) -> AsyncIterator[Screen]:
    app = TerminalApp(SlackPlatform(slack), DiscordPlatform(server), notices=["No tokens: this is the simulator."])
    async with app.run_test(size=(80, 24)) as pilot:
        yield pilot


def read_screen(screen: Screen) -> str:
    """Return the text on the screen, line by line."""
    svg = screen.app.export_screenshot()
    rows: dict[float, str] = {}
    for y, text in re.findall(r'<text[^>]*y="([\d.]+)"[^>]*clip-path[^>]*>(.*?)</text>', svg):
        rows[float(y)] = rows.get(float(y), "") + unescape(text).replace("\xa0", " ")
    return "\n".join(row for _, row in sorted(rows.items()))


async def wait_until(screen: Screen, condition: Callable[[], object]) -> None:
    try:
        async with asyncio.timeout(30):
            while not condition():
                await screen.pause()
                await asyncio.sleep(0.01)
    except TimeoutError:
        pytest.fail(f"not seen in time:\n{read_screen(screen)}")


async def wait_for_texts(screen: Screen, *texts: str) -> None:
    await wait_until(screen, lambda: all(text in read_screen(screen) for text in texts))


async def wait_until_hidden(screen: Screen, text: str) -> None:
    await wait_until(screen, lambda: text not in read_screen(screen))


async def run_line(screen: Screen, line: str) -> None:
    screen.app.query_one("#line", Input).insert_text_at_cursor(line)
    await screen.press("enter")


async def wait_for_message(slack: SlackSimulator, channel: str, text: str) -> SlackMessage:
    def find_message() -> SlackMessage | None:
        return next((m for m in slack.messages(channel) if m.content.text == text), None)

    message = await slack.wait_for(find_message)
    assert message is not None
    return message


def get_dm_id(slack: SlackSimulator, person: str = "ada") -> str:
    return slack.open_dm(person).id


async def test_the_screen_opens_in_direct_messages_with_a_hint(screen: Screen) -> None:
    await wait_for_texts(
        screen,
        "No tokens: this is the simulator.",
        "ada → @bot",
        "Type a question",
        "#general",
        "not connected yet",
        "Quit",
    )


class TeaExtension(SimulatorExtension):
    """Extension with a notice and the command `/brew`, which ends once `is_brewed` is set."""

    title = "Tea"

    def __init__(self) -> None:
        self.is_brewed = asyncio.Event()
        self.commands = {"/brew tea": TerminalCommand("/brew tea  make tea", "Brewing…", self.brew)}

    def list_notices(self) -> list[str]:
        return ["Tea is ready."] if self.is_brewed.is_set() else ["No tea yet."]

    async def brew(self) -> str:
        await self.is_brewed.wait()
        return "Enjoy."


async def test_an_extension_adds_a_title_notices_and_commands(slack: SlackSimulator) -> None:
    extension = TeaExtension()
    app = TerminalApp(SlackPlatform(slack), extension=extension, notices=["A notice."])
    async with app.run_test(size=(80, 24)) as screen:
        await wait_for_texts(screen, "Tea simulator", "A notice.", "No tea yet.")
        await run_line(screen, "/help")
        await wait_for_texts(screen, "/brew tea  make tea")
        await run_line(screen, " /brew  tea")
        await wait_for_texts(screen, "Brewing…")
        extension.is_brewed.set()
        await wait_for_texts(screen, "Enjoy.", "Tea is ready.")
    assert slack.messages("general") == []


async def test_the_bots_connection_is_shown(screen: Screen, bot: SlackSdkBot) -> None:
    await wait_for_texts(screen, "○ Slack not connected yet")
    await bot.connect()
    await wait_for_texts(screen, "● Slack connected")


async def test_typed_text_is_posted_and_shown(screen: Screen, slack: SlackSimulator) -> None:
    await run_line(screen, "hello")
    message = await wait_for_message(slack, get_dm_id(slack), "hello")
    assert message.user == slack.people["ada"].id
    await wait_for_texts(screen, "ada  ", "hello")


async def test_a_reply_is_updated_in_place(screen: Screen, slack: SlackSimulator, bot: SlackSdkBot) -> None:
    await run_line(screen, "hello")
    await wait_for_message(slack, get_dm_id(slack), "hello")
    reply = await bot.post_message(get_dm_id(slack), "Thinking")
    await wait_for_texts(screen, "bot APP", "Thinking")
    await bot.update_message(get_dm_id(slack), reply, "Good *morn*")
    await wait_for_texts(screen, "Good morn", "(edited)")
    await bot.update_message(get_dm_id(slack), reply, "Good *morning*, Ada")
    await wait_for_texts(screen, "Good morning, Ada")
    assert "Thinking" not in read_screen(screen)
    assert read_screen(screen).count("bot APP") == 1


async def test_a_direct_message_opens_its_thread(screen: Screen, slack: SlackSimulator, bot: SlackSdkBot) -> None:
    await run_line(screen, "hello")
    question = await wait_for_message(slack, get_dm_id(slack), "hello")
    await bot.post_message(get_dm_id(slack), "Hi Ada", question.ts)
    await wait_for_texts(screen, "Hi Ada", "thread “hello”")
    await run_line(screen, "again")
    assert (await wait_for_message(slack, get_dm_id(slack), "again")).thread_ts == question.ts
    await screen.press("escape")
    await wait_for_texts(screen, "ada → @bot ─", "2 replies")


async def test_a_channel_mention_shows_its_answer_below(
    screen: Screen, slack: SlackSimulator, bot: SlackSdkBot
) -> None:
    await bot.connect()
    await run_line(screen, "/channel general")
    await wait_for_texts(screen, "ada → #general")
    await run_line(screen, "@bot why < 1?")
    channel, ts = await asyncio.wait_for(bot.mentions.get(), 30)
    assert slack.messages("general")[0].text == "@bot why < 1?"
    await bot.post_message(channel, "So it is", ts)
    await wait_for_texts(screen, "@bot why < 1?", "↳ 1 reply", "So it is")


async def test_enter_on_a_message_opens_its_thread(screen: Screen, slack: SlackSimulator, bot: SlackSdkBot) -> None:
    question = await slack.post_message("grace", "general", "who knows?")
    await bot.post_message(question.channel.id, "I do", question.ts)
    await run_line(screen, "/channel general")
    await wait_for_texts(screen, "who knows?")
    await screen.press("up", "enter")
    await wait_for_texts(screen, "ada → #general, thread “who knows?”", "I do")
    await run_line(screen, "tell me")
    assert (await wait_for_message(slack, "general", "tell me")).thread_ts == question.ts


async def test_the_first_message_replaces_the_hint_and_does_not_move(
    screen: Screen, slack: SlackSimulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    extend, first_tops = ListView.extend, list[int]()

    async def extend_and_paint(messages: ListView, rows: Iterable[ListItem]) -> None:
        await extend(messages, rows)
        await screen.pause()
        first_tops.extend(row.region.y for row in messages.query(MessageRow))

    monkeypatch.setattr(ListView, "extend", extend_and_paint)
    await wait_for_texts(screen, "This is the beginning")
    await slack.post_message("ada", "general", "hello")
    await run_line(screen, "/channel general")
    await wait_until(screen, lambda: first_tops)
    await screen.pause()
    assert first_tops[0] == screen.app.query_one(MessageRow).region.y


async def test_a_click_on_a_message_opens_its_thread(screen: Screen, slack: SlackSimulator) -> None:
    await slack.post_message("grace", "general", "who knows?")
    await run_line(screen, "/channel general")
    await wait_for_texts(screen, "who knows?")
    await screen.click("#messages MessageRow")
    await wait_for_texts(screen, "thread “who knows?”")


async def test_several_users_post_in_one_thread(screen: Screen, slack: SlackSimulator) -> None:
    await run_line(screen, "/channel general")
    await wait_for_texts(screen, "ada → #general")
    await run_line(screen, "hello")
    root = await wait_for_message(slack, "general", "hello")
    await screen.press("ctrl+t", "ctrl+r")
    await wait_for_texts(screen, "grace → #general, thread “hello”")
    await run_line(screen, "hi")
    await run_line(screen, "/as linus")
    await wait_for_texts(screen, "linus → #general, thread “hello”")
    await run_line(screen, "ho")
    await wait_for_message(slack, "general", "ho")
    thread = slack.messages("general", thread_ts=root.ts)
    assert [message.user for message in thread] == [slack.people[name].id for name in ("ada", "grace", "linus")]


async def test_each_user_has_own_direct_messages(screen: Screen, slack: SlackSimulator) -> None:
    await run_line(screen, "for ada only")
    await wait_for_texts(screen, "for ada only")
    await screen.press("ctrl+r")
    await wait_for_texts(screen, "grace → @bot")
    assert "for ada only" not in read_screen(screen)
    await run_line(screen, "I am grace")
    await wait_for_message(slack, get_dm_id(slack, "grace"), "I am grace")


async def test_a_slash_command_has_an_ephemeral_answer(screen: Screen, bot: SlackSdkBot) -> None:
    await bot.connect()
    await run_line(screen, "/channel general")
    await run_line(screen, "/reset")
    await wait_for_texts(screen, "We start over.", "only visible to you")
    await screen.press("ctrl+r")
    await wait_until_hidden(screen, "We start over.")


async def test_the_address_of_a_link_button_is_shown(screen: Screen, bot: SlackSdkBot) -> None:
    button = {"type": "button", "action_id": "read", "url": "https://a.example/"}
    blocks = [{"type": "actions", "elements": [{**button, "text": {"type": "plain_text", "text": "Read"}}]}]
    await run_line(screen, "/channel general")
    await bot.web.chat_postMessage(channel="general", text="Look", blocks=blocks)
    await wait_for_texts(screen, "Read: https://a.example/", "[ Read ]")


async def test_slack_refuses_a_slash_command_in_a_thread(screen: Screen, slack: SlackSimulator) -> None:
    await slack.post_message("grace", "general", "who knows?")
    await run_line(screen, "/channel general")
    await wait_for_texts(screen, "who knows?")
    await screen.press("ctrl+t")
    await wait_for_texts(screen, "thread “who knows?”")
    await run_line(screen, "/reset")
    await wait_for_texts(screen, "/reset is not supported in threads. Sorry!")


async def test_unread_messages_are_counted_until_their_place_is_opened(screen: Screen, slack: SlackSimulator) -> None:
    await slack.post_message("grace", "random", "one")
    await slack.post_message("grace", "random", "two")
    await wait_for_texts(screen, "#random (2)")
    await screen.press("ctrl+n")
    await wait_for_texts(screen, "ada → #random", "two")
    await wait_until_hidden(screen, "#random (2)")


async def test_a_thread_with_a_new_reply_is_listed_first(screen: Screen, slack: SlackSimulator) -> None:
    for word in ("older", "newer"):
        root = await slack.post_message("grace", "general", word)
        await slack.post_message("linus", "general", "yes", thread_ts=root.ts)
    await wait_for_texts(screen, "↳ newer (1)", "↳ older (1)")
    assert read_screen(screen).index("↳ newer") < read_screen(screen).index("↳ older")


async def test_reactions_and_deletions_are_shown(screen: Screen, slack: SlackSimulator, bot: SlackSdkBot) -> None:
    await run_line(screen, "hello")
    message = await wait_for_message(slack, get_dm_id(slack), "hello")
    await bot.web.reactions_add(channel=get_dm_id(slack), timestamp=message.ts, name="eyes")
    await wait_for_texts(screen, "👀 1")
    await bot.web.reactions_remove(channel=get_dm_id(slack), timestamp=message.ts, name="eyes")
    await wait_until_hidden(screen, "👀 1")
    await slack.delete_message("ada", message)
    await wait_for_texts(screen, "This is the beginning of your")


async def test_typing_anywhere_goes_to_the_message_box(screen: Screen, slack: SlackSimulator) -> None:
    screen.app.query_one("#places").focus()
    await screen.press(*"hello", "enter")
    await wait_for_message(slack, get_dm_id(slack), "hello")


async def test_places_are_selected_by_keyboard(screen: Screen) -> None:
    await wait_for_texts(screen, "#general")
    screen.app.query_one("#places").focus()
    await screen.press("down", "down", "enter")
    await wait_for_texts(screen, "ada → #general")


async def test_help_lists_the_terminals_commands(screen: Screen) -> None:
    await screen.press("f1")
    await wait_for_texts(screen, "/as NAME", "ada, grace, linus", "/quit")


async def test_a_button_is_clicked(screen: Screen, slack: SlackSimulator, bot: SlackSdkBot) -> None:
    await bot.connect()
    button = {"type": "button", "action_id": "again:1", "text": {"type": "plain_text", "text": "Again"}}
    blocks: list[dict[str, Any]] = [
        {"type": "markdown", "text": "It failed."},
        {"type": "actions", "elements": [button]},
    ]
    await bot.web.chat_postMessage(channel=slack.channels["general"].id, text="x", blocks=blocks)
    await run_line(screen, "/channel general")
    await wait_for_texts(screen, "It failed.", "[ Again ]")
    await screen.click("#messages MessageRow", offset=(3, 2))
    await wait_until(screen, lambda: [e for e in slack.envelopes if e.type == "interactive"])
    await wait_until_hidden(screen, "thread “It failed.”")


async def test_a_thread_without_its_first_message_takes_no_replies(screen: Screen, slack: SlackSimulator) -> None:
    root = await slack.post_message("ada", "general", "hello")
    await run_line(screen, "/channel general")
    await wait_for_texts(screen, "hello")
    await screen.press("ctrl+t")
    await wait_for_texts(screen, "thread “hello”")
    await slack.delete_message("ada", root)
    await run_line(screen, "too late")
    await wait_for_texts(screen, "there is no message")


@pytest.mark.parametrize("way", ["f2", "ctrl+p", "/discord", "click"])
async def test_each_platform_keeps_its_open_place(screen: Screen, way: str) -> None:
    async def switch_platform(platform: str) -> None:
        if way == "click":
            await screen.click(f"#{platform}")
        elif way.startswith("/"):
            await run_line(screen, f"/{platform.lower()}")
        else:
            await screen.press(way)

    await run_line(screen, "/channel random")
    await wait_for_texts(screen, "ada → #random")
    await switch_platform("Discord")
    await wait_for_texts(screen, "ada → @bot", "#ideas")
    await switch_platform("Slack")
    await wait_for_texts(screen, "ada → #random")
    await wait_until_hidden(screen, "#ideas")


async def test_each_platform_has_its_own_user_and_messages(
    screen: Screen, slack: SlackSimulator, server: DiscordSimulator
) -> None:
    await run_line(screen, "/as linus")
    await run_line(screen, "on Slack")
    await wait_for_texts(screen, "linus → @bot", "on Slack")
    await screen.press("f2")
    await wait_for_texts(screen, "ada → @bot")
    assert "on Slack" not in read_screen(screen)
    await run_line(screen, "on Discord")
    await wait_for_texts(screen, "on Discord")
    assert [message.text for message in server.messages(server.open_dm("ada"))] == ["on Discord"]
    assert [message.text for message in slack.messages(get_dm_id(slack, "linus"))] == ["on Slack"]


async def test_a_hidden_platform_shows_its_unread_count(
    screen: Screen, slack: SlackSimulator, server: DiscordSimulator
) -> None:
    await server.post_message("grace", "general", "one")
    await server.post_message("grace", "random", "two")
    await wait_for_texts(screen, "Discord not connected yet (2)")
    await run_line(screen, "/discord")
    await run_line(screen, "/channel general")
    await wait_for_texts(screen, "Discord not connected yet (1)", "#random (1)")
    await slack.post_message("grace", get_dm_id(slack, "grace"), "for grace only")
    await slack.post_message("grace", "general", "three")
    await wait_for_texts(screen, "Slack not connected yet (1)")


async def test_messages_of_a_hidden_place_are_unread(screen: Screen, slack: SlackSimulator) -> None:
    await run_line(screen, "/channel general")
    await screen.press("f2")
    await wait_for_texts(screen, "#ideas")
    await slack.post_message("grace", "general", "are you there?")
    await wait_for_texts(screen, "Slack not connected yet (1)")
    await screen.press("f2")
    await wait_for_texts(screen, "are you there?")
    await wait_until_hidden(screen, "(1)")


async def test_an_answer_on_a_hidden_platform_is_unread(
    screen: Screen, slack: SlackSimulator, bot: SlackSdkBot
) -> None:
    await run_line(screen, "hello")
    question = await wait_for_message(slack, get_dm_id(slack), "hello")
    await screen.press("f2")
    await wait_for_texts(screen, "#ideas")
    await bot.post_message(get_dm_id(slack), "Hi Ada", question.ts)
    await wait_for_texts(screen, "Slack not connected yet (1)")
    await screen.press("f2")
    await wait_for_texts(screen, "Hi Ada", "thread “hello”")
    await wait_until_hidden(screen, "(1)")


async def test_each_platform_shows_the_bots_connection(screen: Screen, discord_bot: DiscordBot) -> None:
    await wait_for_texts(screen, "○ Slack not connected yet", "● Discord connected")


async def test_a_conversation_on_discord_is_shown(
    screen: Screen, server: DiscordSimulator, discord_bot: DiscordBot
) -> None:
    await run_line(screen, "/discord")
    await run_line(screen, "/channel general")
    await run_line(screen, "@bot why?")
    received = await discord_bot.next_message()
    await received.reply("**So** it is")
    await wait_for_texts(screen, "╭ ada: @bot why?", "bot APP", "So it is")
    await screen.press("ctrl+t")
    await wait_for_texts(screen, "ada → #general, thread “**So** it is”")
    await run_line(screen, "I see")
    await discord_bot.next_message()
    await wait_for_texts(screen, "↳ **So** it is", "I see")
    assert len(server.threads("general")) == 1


async def test_a_deferred_response_shows_thinking_first(screen: Screen, discord_bot: DiscordBot) -> None:
    await run_line(screen, "/discord")
    await run_line(screen, "/ask the weather")
    await wait_for_texts(screen, "bot is thinking…", "only visible to you")
    discord_bot.answers.set()
    await wait_for_texts(screen, "About the weather", "only visible to you")
    await wait_until_hidden(screen, "bot is thinking…")


async def test_a_forum_post_opens_once_the_bot_answers(screen: Screen, discord_bot: DiscordBot) -> None:
    await run_line(screen, "/discord")
    await run_line(screen, "/channel ideas")
    await wait_for_texts(screen, "New post: @bot")
    await run_line(screen, "@bot paint it blue")
    received = await discord_bot.next_message()
    await received.channel.send("Blue it is")
    await wait_for_texts(screen, "ada → #ideas, thread “", "Blue it is")


async def test_discord_direct_messages_have_no_threads(screen: Screen, discord_bot: DiscordBot) -> None:
    await run_line(screen, "/discord")
    await run_line(screen, "hello")
    await wait_for_texts(screen, "hello")
    await screen.press("ctrl+t")
    await wait_for_texts(screen, "Direct messages in Discord have no threads.", "ada → @bot ─")


@pytest.mark.parametrize("keys", [["ctrl+c"], ["ctrl+d"], [*"/quit", "enter"]])
async def test_a_key_or_a_command_quits(slack: SlackSimulator, keys: list[str]) -> None:
    async def press_keys(pilot: Pilot[object]) -> None:
        await pilot.press(*keys)

    app = TerminalApp(SlackPlatform(slack), notices=[])
    async with asyncio.timeout(30):
        await app.run_async(headless=True, auto_pilot=press_keys)


async def post_order(discord_bot: DiscordBot) -> None:
    view = discord.ui.View()
    view.add_item(discord.ui.Button(label="Order", custom_id="form"))
    sizes = [discord.SelectOption(label=size, value=size[0]) for size in ("Small", "Large")]
    view.add_item(discord.ui.Select(custom_id="sizes", placeholder="Size", options=sizes))
    view.stop()
    await (await discord_bot.next_message()).channel.send("What?", view=view)


async def test_a_form_opens_over_the_messages_until_it_is_accepted(
    screen: Screen, server: DiscordSimulator, discord_bot: DiscordBot
) -> None:
    await run_line(screen, "/discord")
    await run_line(screen, "hello")
    await post_order(discord_bot)
    await wait_for_texts(screen, "[ Size ▾ ]", "[ Order ]")
    await run_line(screen, "/press order")
    await wait_for_texts(screen, "╭─ Order ─", "For the cup", "Choose an option", "Extras (optional)", "Submit")
    await screen.press(*"Ada Lovelace", "enter")
    await wait_for_texts(screen, "takes 0 to 5 characters")
    screen.app.screen.query_one("#entry-0", Input).value = "Ada"
    screen.app.screen.query_one("#entry-1", Select).value = "s"
    await screen.click("#submit")
    await wait_for_texts(screen, "Received Ada; ['s']; ['m']")
    await run_line(screen, "/press order")
    await wait_for_texts(screen, "╭─ Order ─")
    await screen.press("escape")
    await wait_until_hidden(screen, "╭─ Order ─")
    assert not server.modals("ada")


async def test_an_option_of_a_menu_is_selected(screen: Screen, discord_bot: DiscordBot) -> None:
    await run_line(screen, "/discord")
    await run_line(screen, "hello")
    await post_order(discord_bot)
    await wait_for_texts(screen, "[ Size ▾ ]")
    await screen.click("#messages MessageRow:last-of-type", offset=(3, 2))
    await wait_for_texts(screen, "╭─ Size ─", "Large")
    await screen.press("down", "enter")
    await wait_for_texts(screen, "Selected L")
