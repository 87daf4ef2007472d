"""Content of Discord messages: embeds and components of apps, files, forwards."""

from pathlib import Path
from typing import Any

import discord
import pytest
from hypothesis import given
from hypothesis import strategies as st

from channels.discord.events.content import read_content
from channels.i18n import messages as words
from chatrig.discord import DiscordMessage, DiscordSimulator
from tests.channels.discord.conftest import WiredDiscordBot, run_bot
from tests.channels.wiring import echo

ALERT = {
    "author": {"name": "Build server"},
    "title": "Build 512 failed",
    "url": "https://ci.example/512",
    "description": "main: 3 tests failed",
    "fields": [{"name": "Branch", "value": "main"}],
    "footer": {"text": "after 4 minutes"},
}
ALERT_LINES = [
    "Build server",
    "Build 512 failed",
    "https://ci.example/512",
    "main: 3 tests failed",
    "Branch: main",
    "after 4 minutes",
]
SHIPPED = {
    "type": 17,
    "components": [
        {
            "type": 9,
            "components": [{"type": 10, "content": "Order 77 shipped"}],
            "accessory": {"type": 2, "style": 5, "label": "Track", "url": "https://shop.example/77"},
        },
        {"type": 14},
        {"type": 12, "items": [{"media": {"url": "https://shop.example/box.png"}, "description": "a red box"}]},
        {"type": 10, "content": "Arrives on Friday"},
        {"type": 1, "components": [{"type": 2, "style": 1, "label": "Cancel", "custom_id": "cancel"}]},
    ],
}
SHIPPED_LINES = [
    "Order 77 shipped",
    "[link: Track, https://shop.example/77]",
    "[picture: a red box]",
    "Arrives on Friday",
]


async def post_alert(server: DiscordSimulator, place: Any = "general", text: str = "") -> DiscordMessage:
    return await server.post_as_other_bot("CI", place, text, webhook=True, embeds=[ALERT])


async def post_shipped(server: DiscordSimulator, place: Any = "general") -> DiscordMessage:
    return await server.post_as_other_bot("Shop", place, "", components=[SHIPPED])


def quote(author: str, lines: list[str]) -> str:
    """Return the lines of a message as they stand in a quote."""
    return f"> {author}: " + "\n>     ".join(lines) + "\n"


@pytest.mark.parametrize(
    ("post", "author", "lines"), [(post_alert, "CI", ALERT_LINES), (post_shipped, "Shop", SHIPPED_LINES)]
)
async def test_the_message_of_an_app_is_read_wherever_it_is(
    server: DiscordSimulator, tmp_path: Path, post: Any, author: str, lines: list[str]
) -> None:
    async with run_bot(server, tmp_path, echo, follow="never") as bot:
        message = await post(server)
        await bot.mention_bot("ada", "general", "what is it?", reply_to=message)
        await bot.wait_for_turns(1)
        assert quote(author, lines) in bot.list_model_messages()[-1]
        await server.forward_message("ada", message, server.open_dm("ada"))
        await bot.wait_for_turns(2)
        assert quote("somebody", lines) in bot.list_model_messages()[-1]
        await bot.mention_bot("ada", await server.start_thread("ada", message, "a thread"), "what is it?")
        await bot.wait_for_turns(3)
        assert quote(author, lines) in bot.list_model_messages()[-1]
        opening = await server.post_message("grace", "general", "look")
        thread = await server.start_thread("grace", opening, "another")
        await post(server, thread)
        await bot.mention_bot("ada", thread, "summarise the thread")
        await bot.wait_for_turns(4)
        assert f"> Grace Hopper: look\n{quote(author, lines)}" in bot.list_model_messages()[-1]
        (response,) = await server.run_message_command("ada", message, words.ASK_ABOUT)
        await bot.wait_for_turns(5)
        assert quote(author, lines) in bot.list_model_messages()[-1]
        assert response.content.text.startswith(f"> {lines[0]} {lines[1]}")


async def test_the_text_and_the_embed_of_an_app_are_both_read(server: DiscordSimulator, bot: WiredDiscordBot) -> None:
    message = await post_alert(server, text="New alert")
    lines = ["New alert", *ALERT_LINES]
    await server.forward_message("ada", message, server.open_dm("ada"))
    await bot.wait_for_turns(1)
    assert quote("somebody", lines) in bot.list_model_messages()[-1]
    await server.run_message_command("ada", message, words.ASK_ABOUT)
    await bot.wait_for_turns(2)
    assert quote("CI", lines) in bot.list_model_messages()[-1]


async def test_an_alert_in_an_outage_is_read_with_the_later_question(server: DiscordSimulator, tmp_path: Path) -> None:
    async with run_bot(server, tmp_path, echo) as bot:
        thread = await server.start_thread("ada", await bot.mention_bot("ada", "general", "hello"), "a thread")
        await bot.mention_bot("ada", thread, "hello")
        await bot.wait_for_turns(2)
    await post_alert(server, thread)
    await bot.mention_bot("ada", thread, "what is it?")
    async with run_bot(server, tmp_path, echo) as bot:
        await bot.wait_for_turns(3)
        assert quote("CI", ALERT_LINES) in bot.list_model_messages()[-1]


async def test_the_preview_of_a_persons_link_is_no_text(server: DiscordSimulator, bot: WiredDiscordBot) -> None:
    message = await server.post_message("grace", "general", "see https://a.example")
    await server.unfurl_link(message)
    await bot.mention_bot("ada", "general", "what is it?", reply_to=message)
    await bot.wait_for_turns(1)
    assert "> Grace Hopper: see https://a.example\n⟦" in bot.list_model_messages()[-1]
    await server.forward_message("ada", message, server.open_dm("ada"))
    await bot.wait_for_turns(2)
    assert "> somebody: see https://a.example\n⟦" in bot.list_model_messages()[-1]


async def test_the_preview_of_an_apps_link_is_no_text(server: DiscordSimulator, bot: WiredDiscordBot) -> None:
    message = await server.post_as_other_bot("CI", "general", "see https://a.example")
    await server.unfurl_link(message)
    await bot.mention_bot("ada", "general", "what is it?", reply_to=message)
    await bot.wait_for_turns(1)
    assert "> CI: see https://a.example\n⟦" in bot.list_model_messages()[-1]


async def test_a_mention_in_an_embed_is_read_as_a_name(server: DiscordSimulator, bot: WiredDiscordBot) -> None:
    embed = {"description": f"see <#{server.channels['random'].id}> <t:0>"}
    message = await server.post_as_other_bot("CI", "general", "", embeds=[embed])
    await bot.mention_bot("ada", "general", "what is it?", reply_to=message)
    await bot.wait_for_turns(1)
    assert "> CI: see #random 1970-01-01 00:00 UTC\n" in bot.list_model_messages()[-1]


async def test_a_forward_of_a_forward_of_a_forward_is_read(server: DiscordSimulator, bot: WiredDiscordBot) -> None:
    message = await server.post_message("grace", "general", "lunch?", stickers=["Wave"])
    for _ in range(2):
        message = await server.forward_message("ada", message, "random")
    await server.forward_message("ada", message, server.open_dm("ada"))
    await bot.wait_for_turns(1)
    assert "> somebody: lunch?\n>     [sticker: Wave]\n" in bot.list_model_messages()[-1]


async def test_a_forwarded_message_without_content_is_named(server: DiscordSimulator, bot: WiredDiscordBot) -> None:
    joined = await server.join_guild("edsger")
    await server.forward_message("ada", joined, server.open_dm("ada"))
    await bot.wait_for_turns(1)
    assert "> somebody: [a message that cannot be read here]\n" in bot.list_model_messages()[-1]


async def test_a_forward_can_be_asked_about(server: DiscordSimulator, bot: WiredDiscordBot) -> None:
    message = await server.post_message("grace", "general", "lunch?")
    forward = await server.forward_message("linus", message, "random")
    await server.run_message_command("ada", forward, words.ASK_ABOUT)
    await bot.wait_for_turns(1)
    assert "> Linus Pauling: lunch?\n" in bot.list_model_messages()[-1]


TEXTS = st.text(max_size=20)
EMBEDS = st.builds(
    lambda parts, kind, provider: {"type": kind, **parts, **({"provider": {"name": "P"}} if provider else {})},
    st.fixed_dictionaries(
        {},
        optional={
            "title": TEXTS,
            "url": TEXTS,
            "description": TEXTS,
            "author": st.fixed_dictionaries({"name": TEXTS}),
            "footer": st.fixed_dictionaries({"text": TEXTS}),
            "image": st.fixed_dictionaries({"url": TEXTS}),
            "fields": st.lists(st.fixed_dictionaries({"name": TEXTS, "value": TEXTS}), max_size=3),
        },
    ),
    st.sampled_from(["rich", "link", "article", "gifv"]),
    st.booleans(),
)
LEAVES = st.one_of(
    TEXTS.map(lambda text: {"type": 10, "content": text}),
    st.just({"type": 14}),
    TEXTS.map(lambda text: {"type": 2, "style": 5, "label": text, "url": f"https://a.example/{text}"}),
    TEXTS.map(lambda text: {"type": 12, "items": [{"media": {"url": f"https://a.example/{text}"}}]}),
    st.just({"type": 99}),
)
COMPONENTS = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=4).map(lambda parts: {"type": 17, "components": parts}),
    max_leaves=12,
)


@given(text=TEXTS, embeds=st.lists(EMBEDS, max_size=3), components=st.lists(COMPONENTS, max_size=3))
def test_each_text_of_an_app_is_in_its_content(text: str, embeds: list[Any], components: list[Any]) -> None:
    content = read_content(create_message(content=text, embeds=embeds, components=components))
    written = [
        embed["description"]
        for embed in embeds
        if embed["type"] == "rich" and "provider" not in embed and "description" in embed
    ]
    parts = [text, *written, *list_displays(components)]
    assert [part for part in parts if part not in content.markup] == []


def list_displays(components: list[Any]) -> list[str]:
    nested = (list_displays(component.get("components", [])) for component in components)
    own = (component["content"] for component in components if component["type"] == 10)
    return [*own, *(text for texts in nested for text in texts)]


def create_message(**fields: Any) -> discord.Message:
    """Return a message of another bot, as discord.py parses it."""
    state = discord.Client(intents=discord.Intents.none())._connection
    data: Any = {
        "id": "1",
        "type": 0,
        "channel_id": "2",
        "author": {"id": "3", "username": "CI", "discriminator": "0", "avatar": None, "bot": True},
        "mentions": [],
        "mention_roles": [],
        "mention_everyone": False,
        "attachments": [],
        "timestamp": "2026-01-31T09:00:00+00:00",
        "edited_timestamp": None,
        "pinned": False,
        "tts": False,
        **fields,
    }
    return discord.Message(state=state, channel=discord.PartialMessageable(state=state, id=2), data=data)
