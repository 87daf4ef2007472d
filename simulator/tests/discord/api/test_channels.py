"""Channels and invites of the local Discord, with discord.py."""

from typing import Any

import discord
import pytest

from chatrig.discord import DiscordSimulator
from tests.discord.conftest import Connect, RecordingClient, call_route, create_intents, get_refusal


@pytest.fixture
async def bot(server: DiscordSimulator, connect: Connect) -> RecordingClient:
    server.permissions.add("manage_channels")
    return await connect(server, intents=create_intents("message_content", "invites"))


async def test_the_bot_creates_changes_and_deletes_channels(server: DiscordSimulator, bot: RecordingClient) -> None:
    guild: Any = bot.guilds[0]
    channel = await guild.create_text_channel("Lab Notes", topic="all of it", slowmode_delay=5)
    assert (channel.name, channel.topic, channel.slowmode_delay) == ("lab-notes", "all of it", 5)
    forum = await guild.create_forum("Lab Ideas")
    assert forum.name == "Lab Ideas"
    await channel.edit(name="Notes", nsfw=True)
    await server.post_message("ada", str(channel.id), "hello")
    assert str((await bot.next_message()).channel) == "notes"
    await channel.delete()
    assert await get_refusal(bot.fetch_channel(channel.id)) == (404, 10003)
    events = [event.name for event in server.events if event.name.startswith("CHANNEL")]
    assert events == ["CHANNEL_CREATE", "CHANNEL_CREATE", "CHANNEL_UPDATE", "CHANNEL_DELETE"]


async def test_channels_are_managed_with_a_permission(server: DiscordSimulator, bot: RecordingClient) -> None:
    channel = bot.get_simulator_channel(server, "general")
    server.permissions.discard("manage_channels")
    for refused in (channel.edit(topic="x"), channel.delete(), bot.guilds[0].create_text_channel("x")):
        assert await get_refusal(refused) == (403, 50013)


async def test_a_field_that_is_not_modelled_is_refused(server: DiscordSimulator, bot: RecordingClient) -> None:
    general, dm = server.channels["general"].id, server.open_dm("ada").id
    for path, body, code in (
        (f"/channels/{general}", {"position": 3}, 50035),
        (f"/channels/{general}", {"name": ""}, 50035),
        (f"/channels/{dm}", {"name": "x"}, 50003),
    ):
        assert (await call_route(server, "PATCH", path, body))[1]["code"] == code
    assert (await call_route(server, "POST", f"/guilds/{server.guild_id}/channels", {"name": "x", "type": 2}))[0] == 400


async def test_closed_direct_messages_open_again(server: DiscordSimulator, bot: RecordingClient) -> None:
    dm = server.open_dm("ada")
    assert (await call_route(server, "DELETE", f"/channels/{dm.id}"))[1]["id"] == dm.id
    await server.post_message("ada", dm, "hello")
    assert (await bot.next_message()).content == "hello"


async def test_threads_are_deleted_with_their_own_permission(server: DiscordSimulator, bot: RecordingClient) -> None:
    channel = bot.get_simulator_channel(server, "general")
    thread = await channel.create_thread(name="a talk", type=discord.ChannelType.public_thread)
    assert await get_refusal(thread.delete()) == (403, 50013)
    server.permissions.add("manage_threads")
    await thread.delete()
    assert server.threads("general") == []


async def test_invites_are_created_listed_and_deleted(server: DiscordSimulator, bot: RecordingClient) -> None:
    channel = bot.get_simulator_channel(server, "general")
    invite = await channel.create_invite(max_age=60, max_uses=2)
    forever = await channel.create_invite(max_age=0)
    assert [invite.code for invite in await channel.invites()] == [invite.code, forever.code]
    fetched = await bot.fetch_invite(invite.code, with_counts=True)
    assert (fetched.max_age, fetched.max_uses, fetched.approximate_member_count) == (60, 2, 4)
    assert (await bot.fetch_invite(forever.code)).expires_at is None
    await invite.delete()
    assert await get_refusal(bot.fetch_invite(invite.code)) == (404, 10006)
    codes = [event.data["code"] for event in server.events if event.name.startswith("INVITE")]
    assert codes == [invite.code, forever.code, invite.code]
    assert (await call_route(server, "POST", f"/channels/{server.open_dm('ada').id}/invites", {}))[1]["code"] == 50024
    server.permissions.discard("create_instant_invite")
    assert await get_refusal(channel.create_invite()) == (403, 50013)
