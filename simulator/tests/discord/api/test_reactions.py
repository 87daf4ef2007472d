"""Reactions and server emojis in the local Discord, with discord.py."""

from typing import Any

import discord
import pytest

from chatrig.discord import DiscordSimulator
from tests.discord.conftest import Connect, RecordingClient, call_route, create_intents, get_refusal

PIXEL = b"\x89PNG\r\n\x1a\n" + bytes(20)


@pytest.fixture
async def bot(server: DiscordSimulator, connect: Connect) -> RecordingClient:
    return await connect(server, intents=create_intents("message_content", "reactions", "emojis_and_stickers"))


async def test_reactions_are_added_and_removed(server: DiscordSimulator, bot: RecordingClient) -> None:
    message = await server.post_message("ada", "general", "look")
    received = await bot.next_message()
    await server.add_reaction("grace", message, "👀")
    await received.add_reaction("👀")
    assert message.reactions == {"👀": [server.people["grace"].id, server.bot_id]}
    await received.remove_reaction("👀", discord.Object(server.bot_id))
    assert message.reactions == {"👀": [server.people["grace"].id]}
    assert await get_refusal(received.add_reaction("no_emoji")) == (400, 10014)


async def test_only_the_first_reaction_with_an_emoji_needs_a_permission(
    server: DiscordSimulator, bot: RecordingClient
) -> None:
    message = await server.post_message("ada", "general", "look")
    received = await bot.next_message()
    server.permissions.discard("add_reactions")
    await server.add_reaction("grace", message, "👀")
    await received.add_reaction("👀")
    assert await get_refusal(received.add_reaction("👋")) == (403, 50013)


async def test_users_of_a_reaction_are_listed_by_page(server: DiscordSimulator, bot: RecordingClient) -> None:
    message = await server.post_message("ada", "general", "look")
    for user in ("linus", "ada", "grace"):
        await server.add_reaction(user, message, "👀")
    (reaction,) = (await (await bot.next_message()).fetch()).reactions
    assert {user.name async for user in reaction.users()} == {"ada", "grace", "linus"}
    assert [user.name async for user in reaction.users(limit=1, after=get_user_object(server, "ada"))] == ["grace"]
    path = f"/channels/{message.channel.id}/messages/{message.id}/reactions/👀"
    assert (await call_route(server, "GET", f"{path}?type=1")) == (200, [])
    assert (await call_route(server, "GET", f"{path}?limit=101"))[1]["code"] == 50035


def get_user_object(server: DiscordSimulator, name: str) -> discord.Object:
    return discord.Object(int(server.people[name].id))


async def test_moderators_remove_reactions_of_others(server: DiscordSimulator, bot: RecordingClient) -> None:
    message = await server.post_message("ada", "general", "look")
    for user, emoji in (("ada", "👀"), ("grace", "👀"), ("ada", "👋"), ("ada", "🔥")):
        await server.add_reaction(user, message, emoji)
    received: Any = await bot.next_message()
    for refused in (
        received.remove_reaction("👀", get_user_object(server, "ada")),
        received.clear_reaction("👋"),
        received.clear_reactions(),
    ):
        assert await get_refusal(refused) == (403, 50013)
    server.permissions.add("manage_messages")
    await received.remove_reaction("👀", get_user_object(server, "ada"))
    await received.clear_reaction("👋")
    await received.clear_reaction("😶")
    assert message.reactions == {"👀": [server.people["grace"].id], "🔥": [server.people["ada"].id]}
    await received.clear_reactions()
    assert message.reactions == {}
    events = [event.name for event in server.events if event.name.startswith("MESSAGE_REACTION")][4:]
    assert events == ["MESSAGE_REACTION_REMOVE", "MESSAGE_REACTION_REMOVE_EMOJI", "MESSAGE_REACTION_REMOVE_ALL"]


async def test_emojis_of_the_server_are_reactions(server: DiscordSimulator, bot: RecordingClient) -> None:
    (guild,) = bot.guilds
    assert await get_refusal(guild.create_custom_emoji(name="wave", image=PIXEL)) == (403, 50013)
    server.permissions.add("manage_guild_expressions")
    emoji = await guild.create_custom_emoji(name="wave", image=PIXEL)
    await emoji.edit(name="waves")
    message = await server.post_message("ada", "general", "look")
    received: Any = await bot.next_message()
    await received.add_reaction(emoji)
    assert message.reactions == {f"waves:{emoji.id}": [server.bot_id]}
    reaction = next(event.data for event in server.events if event.name == "MESSAGE_REACTION_ADD")
    assert reaction["emoji"] == {"id": str(emoji.id), "name": "waves"}
    await emoji.delete()
    assert await get_refusal(guild.fetch_emoji(emoji.id)) == (404, 10014)
    assert await get_refusal(received.add_reaction(emoji)) == (400, 10014)
    assert len([event for event in server.events if event.name == "GUILD_EMOJIS_UPDATE"]) == 3
    path, body = f"/guilds/{guild.id}/emojis", {"name": "wave", "image": "nonsense"}
    assert (await call_route(server, "POST", path, body))[1]["code"] == 50035
