"""Sandbox responses and discord.py's requests, checked against Discord's specification."""

import asyncio
import io
from collections.abc import AsyncIterator
from typing import Any

import discord
import pytest
from discord import app_commands

from sandbox.discord import DiscordSandbox
from tests.sandbox.discord.conftest import Bot, Connect, create_intents
from tests.sandbox.discord.shapes import OBJECTS, SHAPES, faults_of_event, faults_of_reply, faults_of_request

pytestmark = pytest.mark.skipif(not SHAPES, reason="PLATFORM_SHAPES names no folder with the platforms' shapes")

#: Routes that discord.py does not ask for in this walk.
_NOT_CALLED = {"GET /applications/{application}/guilds/{guild}/commands"}


async def refused(call: Any) -> None:
    with pytest.raises(discord.HTTPException):
        await call


class Walker(Bot):
    def __init__(self) -> None:
        super().__init__(create_intents("message_content", "reactions", "members", "presences"))

        @self.tree.command(name="reset", description="Begin anew")
        async def reset(interaction: discord.Interaction, why: str = "") -> None:
            await interaction.response.defer(ephemeral=True, thinking=True)
            await interaction.edit_original_response(content="done", view=button())
            await interaction.original_response()
            await (await interaction.followup.send("more", wait=True)).edit(content="still more")
            await interaction.delete_original_response()

        @self.tree.command(name="hello", description="Say it")
        @app_commands.allowed_contexts(guilds=True, dms=True, private_channels=True)
        @app_commands.allowed_installs(guilds=True, users=True)
        async def hello(interaction: discord.Interaction, what: str = "") -> None:
            await interaction.response.send_message("hi")

        @hello.autocomplete("what")
        async def complete(interaction: discord.Interaction, typed: str) -> list[app_commands.Choice[str]]:
            return [app_commands.Choice(name=typed, value=typed)]

        @self.tree.context_menu(name="Ask about this")
        @app_commands.allowed_installs(guilds=True, users=True)
        async def ask(interaction: discord.Interaction, message: discord.Message) -> None:
            await interaction.response.send_message(f"about {message.content}", ephemeral=True)
            await interaction.followup.send("more", ephemeral=True)

    async def on_interaction(self, interaction: discord.Interaction) -> None:
        if interaction.type is discord.InteractionType.component:
            await interaction.response.edit_message(content="pressed", view=None)


def button() -> discord.ui.View:
    view = discord.ui.View(timeout=None)
    view.add_item(discord.ui.Button(label="Stop", custom_id="stop"))
    return view


async def walk_through_the_events(server: DiscordSandbox) -> None:
    server.add_user("alan")
    await server.join_guild("edsger")
    server.add_channel("late")
    mention = f"<@{server.bot_id}> see <#{server.channels['random'].id}>, @everyone"
    for channel in (server.channels["general"], server.open_dm("ada")):
        root = await server.post_message("ada", channel, mention, files={"a.txt": b"text", "b.png": b"\x89PNG"})
        reply = await server.post_message("ada", channel, "more", reply_to=root)
        await server.edit_message("ada", reply, mention)
        await server.add_reaction("ada", reply, "👋")
        await server.pin_message("ada", root)
        await server.delete_message("ada", reply)
    root = await server.post_message("ada", "general", "a root")
    thread = await server.start_thread("ada", root, "a thread")
    await server.post_message("grace", thread, "in it")
    await server.archive_thread(thread)
    await server.start_forum_post("ada", "ideas", "a post", "what if")
    await server.post_as_bot("robot", "general", "beep")
    await server.post_as_bot("hook", "general", "beep", webhook=True)
    await server.unfurl_link(root)
    await server.delete_messages([await server.post_message("ada", "general", "spam") for _ in range(2)])
    await server.delete_channel(await server.start_forum_post("ada", "ideas", "to go", "what if"))
    await server.delete_channel("late")


async def walk_through_the_api(server: DiscordSandbox, bot: Bot) -> None:
    general, ideas = bot.get_sandbox_channel(server, "general"), bot.get_sandbox_channel(server, "ideas")
    ada = await bot.fetch_user(int(server.people["ada"].id))
    await bot.guilds[0].chunk()
    guild = await bot.fetch_guild(int(server.guild_id))
    await guild.fetch_channels()
    await guild.fetch_member(ada.id)
    await guild.active_threads()
    await guild.fetch_roles()
    assert [mine.id async for mine in bot.fetch_guilds()] == [guild.id]
    await bot.http.request(discord.http.Route("GET", "/gateway"))
    await bot.http.get_bot_gateway()
    await bot.http.request(discord.http.Route("GET", "/applications/@me"))
    await bot.fetch_channel(general.id)
    await (await ada.create_dm()).send("hello")
    await bot.fetch_channel((await ada.create_dm()).id)
    asked = await server.post_message("ada", "general", f"<@{server.bot_id}> hi")
    answer = await general.send(
        "…",
        reference=discord.MessageReference(message_id=int(asked.id), channel_id=general.id, guild_id=guild.id),
        nonce="n1",
        view=button(),
        embed=discord.Embed(title="t", description="d", url="https://a.example").add_field(name="n", value="v"),
        allowed_mentions=discord.AllowedMentions(users=[ada], replied_user=True),
    )
    await answer.edit(content="done", allowed_mentions=discord.AllowedMentions.none())
    with_file = await general.send("a file", file=discord.File(io.BytesIO(b"x"), "answer.md", description="all"))
    await with_file.edit(attachments=[])
    await general.fetch_message(answer.id)
    assert [m.id async for m in general.history(after=discord.Object(asked.id), limit=10)]
    await answer.add_reaction("👀")
    await answer.remove_reaction("👀", discord.Object(int(server.bot_id)))
    async with general.typing():
        pass
    thread = await answer.create_thread(name="a thread", auto_archive_duration=60)
    await refused(answer.create_thread(name="again"))
    await thread.send("in it")
    await bot.fetch_channel(thread.id)
    await thread.edit(archived=True)
    await thread.edit(archived=False)
    await general.create_thread(name="of nothing", type=discord.ChannelType.public_thread)
    await ideas.create_thread(name="a post", content="what if", file=discord.File(io.BytesIO(b"x"), "a.md"))
    await bot.tree.fetch_commands()
    await bot.tree.sync(guild=guild)
    await with_file.delete()
    await refused(general.send("x" * 2001))
    await refused(general.send(" "))
    await refused(general.fetch_message(1))
    await refused(bot.fetch_channel(1))
    server.faults.rate_limit("GET /users/{user}", 0.01, scope="shared")
    await bot.fetch_user(ada.id)
    server.faults.fail("GET /users/{user}", status=403, code=50001)
    await refused(bot.fetch_user(ada.id))


async def walk_through_the_interactions(server: DiscordSandbox) -> None:
    for channel in (server.channels["general"], server.open_dm("ada")):
        seen = await server.run_command("ada", channel, "/reset", why="so")
        await server.wait_for(lambda seen=seen: len(seen) == 2 and seen[0].deleted)  # type: ignore[misc]
        await server.run_command("ada", channel, "/hello")
        assert await server.autocomplete_option("ada", channel, "/hello", "what", "w") == ["w"]
        assert await server.run_message_command(
            "grace", await server.post_message("ada", channel, "this"), "Ask about this"
        )
    for channel in (server.open_group_dm("us", "ada", "grace"), server.add_foreign_channel("there", "ada")):
        await server.run_command("ada", channel, "/hello", what="w")
        await server.run_message_command("ada", await server.post_message("ada", channel, "this"), "Ask about this")
    shown = next(m for m in server.messages("general") if m.content.components and m.author.is_bot)
    await server.click_button("ada", shown, "stop")
    await server.wait_for(lambda: shown.text == "pressed")


@pytest.fixture
async def server() -> AsyncIterator[DiscordSandbox]:
    async with DiscordSandbox(rate_limits=False) as sandbox:
        yield sandbox


async def test_responses_events_and_requests_match_discords_specification(
    server: DiscordSandbox, connect: Connect
) -> None:
    bot = await connect(server, bot=Walker())
    await walk_through_the_events(server)
    await walk_through_the_api(server, bot)
    await walk_through_the_interactions(server)
    await server.drop_sockets()
    await asyncio.wait_for(bot.resumed.wait(), 30)

    found = [fault for call in server.calls for fault in (*faults_of_request(call), *faults_of_reply(call))]
    found += [fault for event in server.events for fault in faults_of_event(event)]
    assert sorted(set(found)) == []
    assert {event.name for event in server.events} == set(OBJECTS)
    assert {call.route for call in server.calls} == set(server.faults.routes) - _NOT_CALLED
