"""Members and their names in the local Discord, with discord.py."""

from typing import Any

import discord
import pytest

from chatrig.discord import DiscordSimulator
from tests.discord.conftest import Connect, RecordingClient, call_route, create_intents, get_refusal


@pytest.fixture
async def bot(server: DiscordSimulator, connect: Connect) -> RecordingClient:
    return await connect(server, intents=create_intents("members"))


async def test_members_are_listed_by_page_with_the_intent(server: DiscordSimulator, bot: RecordingClient) -> None:
    (guild,) = bot.guilds
    server.leave_guild("linus")
    assert {member.name async for member in guild.fetch_members(limit=None)} == {"bot", "ada", "grace"}
    after = discord.Object(int(server.people["ada"].id))
    assert [member.name async for member in guild.fetch_members(after=after)] == ["grace"]
    assert await get_refusal(guild.fetch_member(int(server.people["linus"].id))) == (404, 10007)
    path = f"/guilds/{server.guild_id}/members"
    assert len((await call_route(server, "GET", path))[1]) == 1
    assert (await call_route(server, "GET", f"{path}?limit=1001"))[1]["code"] == 50035
    assert (await call_route(server, "GET", f"{path}?after=ada"))[1]["code"] == 50035
    server.privileged_intents.discard("guild_members")
    assert (await call_route(server, "GET", path))[1]["code"] == 50001


async def test_members_are_found_by_the_start_of_a_name(server: DiscordSimulator, bot: RecordingClient) -> None:
    server.set_nickname("grace", "Admiral")
    path = f"/guilds/{server.guild_id}/members/search"
    _, found = await call_route(server, "GET", f"{path}?query=AD&limit=5")
    assert [member["user"]["username"] for member in found] == ["ada", "grace"]
    assert len((await call_route(server, "GET", f"{path}?query=ad"))[1]) == 1
    assert (await call_route(server, "GET", path))[1]["code"] == 50035


async def test_nicknames_take_a_permission_and_update_the_member(
    server: DiscordSimulator, bot: RecordingClient
) -> None:
    guild: Any = bot.guilds[0]
    ada = await guild.fetch_member(int(server.people["ada"].id))
    assert await get_refusal(ada.edit(nick="Countess")) == (403, 50013)
    server.permissions.add("manage_nicknames")
    await ada.edit(nick="Countess")
    await guild.me.edit(nick="Parser")
    assert (await guild.fetch_member(ada.id)).display_name == "Countess"
    await ada.edit(nick=None)
    updates = [(e.data["user"]["id"], e.data["nick"]) for e in server.events if e.name == "GUILD_MEMBER_UPDATE"]
    assert updates == [(str(ada.id), "Countess"), (server.bot_id, "Parser"), (str(ada.id), None)]
    assert (await call_route(server, "PATCH", f"/guilds/{server.guild_id}/members/{ada.id}", {"mute": True}))[0] == 400


async def test_calls_of_a_removed_bot_are_refused(server: DiscordSimulator, connect: Connect) -> None:
    bot = await connect(server)
    (guild,), channel = bot.guilds, bot.get_simulator_channel(server, "general")
    sent = await channel.send("hello")
    server.remove_bot()
    for call in (channel.send("again"), sent.edit(content="again"), sent.delete(), guild.fetch_member(1)):
        assert await get_refusal(call) == (403, 50001)
    assert await get_refusal(bot.fetch_guild(guild.id)) == (404, 10004)
    dm = await (await bot.fetch_user(int(server.people["ada"].id))).create_dm()
    await dm.send("hello")
