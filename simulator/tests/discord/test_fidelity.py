"""Simulator responses and discord.py's requests, checked by Discord's specification."""

import asyncio
import datetime
import io
from collections.abc import AsyncIterator
from typing import Any

import discord
import pytest
from discord import app_commands

from chatrig.discord import DiscordSimulator
from chatrig.discord.api.request_schemas import SCHEMAS_FILE
from chatrig.discord.catalog import EVENTS, MODELLED_EVENTS
from chatrig.discord.schema_table import create_schema_table
from chatrig.discord.shapes import (
    OBJECTS,
    SHAPES,
    find_event_errors,
    find_request_errors,
    find_response_errors,
    load_specification,
)
from chatrig.discord.state.permissions import PERMISSIONS
from tests.discord.conftest import Connect, RecordingClient, create_intents
from tests.discord.test_oauth import REDIRECT_URI, get_me, post_form, sign_in

pytestmark = pytest.mark.skipif(not SHAPES, reason="PLATFORM_SHAPES names no folder with the platforms' shapes")

ALL_INTENTS = (
    "dm_polls dm_reactions dm_typing emojis_and_stickers guild_polls guild_reactions guild_typing invites members "
    "message_content presences webhooks"
)
PIXEL = b"\x89PNG\r\n\x1a\n" + bytes(20)


async def check_rejection(call: Any) -> None:
    with pytest.raises(discord.HTTPException):
        await call


class FidelityBot(RecordingClient):
    """discord.py client that responds to every kind of interaction."""

    def __init__(self) -> None:
        super().__init__(create_intents(*ALL_INTENTS.split()))

        @self.tree.command(name="reset", description="Begin anew")
        async def reset(interaction: discord.Interaction, why: str = "") -> None:
            await interaction.response.defer(ephemeral=True, thinking=True)
            await interaction.edit_original_response(content="done", view=create_button())
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


def create_button() -> discord.ui.View:
    view = discord.ui.View(timeout=None)
    view.add_item(discord.ui.Button(label="Stop", custom_id="stop"))
    return view


async def trigger_every_event(server: DiscordSimulator) -> None:
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
    await server.start_forum_post("ada", "ideas", "a post", "what if", tags=["new"], files={"a.txt": b"text"})
    await server.post_as_other_bot("robot", "general", "beep", files={"b.txt": b"text"})
    embed = {"title": "beep", "url": "https://a.example", "author": {"name": "me"}, "footer": {"text": "end"}}
    alert = await server.post_as_other_bot("hook", "general", "beep", webhook=True, embeds=[embed])
    await server.post_as_other_bot("hook", "random", "", components=[{"type": 10, "content": "beep"}])
    await server.forward_message("ada", await server.forward_message("ada", alert, "general"), "random")
    await server.unfurl_link(root)
    await server.delete_messages([await server.post_message("ada", "general", "spam") for _ in range(2)])
    await server.delete_channel(await server.start_forum_post("ada", "ideas", "to go", "what if"))
    await server.delete_channel("late")
    await server.start_typing("ada", "general")
    await server.start_typing("ada", server.open_dm("ada"))
    server.set_nickname("ada", "Countess")
    server.leave_guild("edsger")
    await server.set_guild_available(False)
    await server.set_guild_available(True)


async def call_message_routes(server: DiscordSimulator, bot: RecordingClient) -> None:
    general, ideas = bot.get_simulator_channel(server, "general"), bot.get_simulator_channel(server, "ideas")
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
    question = await server.post_message("ada", "general", f"<@{server.bot_id}> hi")
    answer = await general.send(
        "…",
        reference=discord.MessageReference(message_id=int(question.id), channel_id=general.id, guild_id=guild.id),
        nonce="n1",
        view=create_button(),
        embed=discord.Embed(title="t", description="d", url="https://a.example").add_field(name="n", value="v"),
        allowed_mentions=discord.AllowedMentions(users=[ada], replied_user=True),
    )
    await answer.edit(content="done", allowed_mentions=discord.AllowedMentions.none())
    with_file = await general.send("a file", file=discord.File(io.BytesIO(b"x"), "answer.md", description="all"))
    await with_file.edit(attachments=[])
    await general.fetch_message(answer.id)
    assert [m.id async for m in general.history(after=discord.Object(question.id), limit=10)]
    await answer.add_reaction("👀")
    await answer.remove_reaction("👀", discord.Object(int(server.bot_id)))
    async with general.typing():
        pass
    thread = await answer.create_thread(name="a thread", auto_archive_duration=60)
    await check_rejection(answer.create_thread(name="again"))
    await thread.send("in it")
    await bot.fetch_channel(thread.id)
    await thread.edit(archived=True)
    await thread.edit(archived=False)
    await general.create_thread(name="of nothing", type=discord.ChannelType.public_thread)
    await ideas.create_thread(name="a post", content="what if", file=discord.File(io.BytesIO(b"x"), "a.md"))
    await bot.tree.fetch_commands()
    await bot.tree.sync(guild=guild)
    await with_file.delete()
    await check_rejection(general.send("x" * 2001))
    await check_rejection(general.send(" "))
    await check_rejection(general.fetch_message(1))
    await check_rejection(bot.fetch_channel(1))
    server.faults.rate_limit("GET /users/{user}", 0.01, scope="shared")
    await bot.fetch_user(ada.id)
    server.faults.fail("GET /users/{user}", status=403, code=50001)
    await check_rejection(bot.fetch_user(ada.id))


async def call_channel_routes(server: DiscordSimulator, bot: RecordingClient) -> None:
    guild: Any = bot.guilds[0]
    news = await guild.create_text_channel("News Of Today", news=True, topic="all")
    await news.edit(topic="none", slowmode_delay=5)
    announced = await news.send("read this")
    await announced.publish()
    for _ in range(2):
        await announced.pin()
        assert [pin.id async for pin in news.pins()] == [announced.id]
        await announced.unpin()
    for method, path in (("PUT", "pins/{message}"), ("GET", "pins"), ("DELETE", "pins/{message}")):
        await request_route(bot, method, f"/channels/{{channel}}/{path}", channel=news.id, message=announced.id)
    invite = await news.create_invite(max_age=60)
    await bot.fetch_invite(invite.code)
    assert (
        [invite.code for invite in await news.invites()]
        == [invite.code for invite in await guild.invites()]
        == [invite.code]
    )
    await invite.delete()
    await news.delete_messages([await news.send(text) for text in "ab"])
    webhook = await news.create_webhook(name="hook")
    assert [hook.id for hook in await news.webhooks()] == [hook.id for hook in await guild.webhooks()] == [webhook.id]
    await bot.fetch_webhook(webhook.id)
    message = await webhook.send("beep", username="Robot", wait=True)
    await message.edit(content="boop")
    await webhook.fetch_message(message.id)
    await message.delete()
    await webhook.send("boop")
    await webhook.edit(name="hook 2")
    ids = {"webhook": webhook.id, "token": webhook.token}
    await request_route(bot, "GET", "/webhooks/{webhook}/{token}", **ids)
    await request_route(bot, "PATCH", "/webhooks/{webhook}/{token}", {"name": "hook 3"}, **ids)
    await request_route(bot, "DELETE", "/webhooks/{webhook}/{token}", **ids)
    await (await news.create_webhook(name="hook")).delete()
    await news.delete()


async def call_member_routes(server: DiscordSimulator, bot: RecordingClient) -> None:
    guild: Any = bot.guilds[0]
    ada, grace = (guild.get_member(int(server.people[name].id)) for name in ("ada", "grace"))
    assert len([member async for member in guild.fetch_members(limit=None)]) == len(guild.members)
    path = "/guilds/{guild}/members/search?query=ad&limit=5"
    assert [one["user"]["username"] for one in await request_route(bot, "GET", path, guild=guild.id)] == ["ada"]
    await guild.me.edit(nick="Parser")
    await ada.edit(nick="Countess")
    emoji = await guild.create_custom_emoji(name="wave", image=PIXEL)
    await emoji.edit(name="waves")
    assert [emoji.name for emoji in await guild.fetch_emojis()] == ["waves"]
    question = await server.post_message("ada", "general", "vote", stickers=["Wave"])
    channel = bot.get_simulator_channel(server, "general")
    message = await channel.fetch_message(int(question.id))
    for reaction in ("👀", await guild.fetch_emoji(emoji.id)):
        await message.add_reaction(reaction)
        await server.add_reaction("ada", question, str(reaction) if isinstance(reaction, str) else f"waves:{emoji.id}")
        await server.add_reaction(
            "grace", question, str(reaction) if isinstance(reaction, str) else f"waves:{emoji.id}"
        )
        await message.remove_reaction(reaction, ada)
    first, second = (await channel.fetch_message(int(question.id))).reactions
    assert [user.name async for user in first.users()] == ["grace", "bot"]
    await second.clear()
    await message.clear_reactions()
    await emoji.delete()
    sticker = (await guild.fetch_stickers())[0]
    await bot.fetch_sticker(sticker.id)
    await channel.send(stickers=[sticker])
    await message.forward(channel)
    poll = discord.Poll("Which?", duration=datetime.timedelta(hours=1)).add_answer(text="this").add_answer(text="that")
    asked_poll = await channel.send(poll=poll)
    newest = server.messages("general")[-1]
    await server.vote("ada", newest, 1)
    await server.vote("ada", newest, 2)
    assert [user.id async for user in asked_poll.poll.get_answer(2).voters()] == [ada.id]
    await asked_poll.end_poll()
    thread = await channel.create_thread(name="a secret", type=discord.ChannelType.private_thread)
    await thread.add_user(grace)
    assert len(await thread.fetch_members()) == 2
    await thread.fetch_member(grace.id)
    await thread.remove_user(grace)
    await thread.edit(archived=True)
    public = await channel.create_thread(name="a talk", type=discord.ChannelType.public_thread)
    await public.leave()
    await public.join()
    await public.edit(archived=True)
    for options, name in (
        ({}, "a talk"),
        ({"private": True}, "a secret"),
        ({"private": True, "joined": True}, "a secret"),
    ):
        assert name in [thread.name async for thread in channel.archived_threads(**options)]


async def call_command_routes(server: DiscordSimulator, bot: RecordingClient) -> None:
    application = {"application": int(server.bot_id), "guild": int(server.guild_id)}
    command = {"name": "one", "description": "One", "type": 1}
    for place in ("/applications/{application}/commands", "/applications/{application}/guilds/{guild}/commands"):
        added = await request_route(bot, "POST", place, command, **application)
        ids = {**application, "command": added["id"]}
        assert added in await request_route(bot, "GET", place, **application)
        changed = await request_route(bot, "PATCH", place + "/{command}", {"description": "The first"}, **ids)
        assert changed == await request_route(bot, "GET", place + "/{command}", **ids)
        await request_route(bot, "DELETE", place + "/{command}", **ids)


async def call_user_routes(server: DiscordSimulator) -> None:
    server.oauth.redirect_urls.add(REDIRECT_URI)
    token = (await sign_in(server, scope="identify email"))["access_token"]
    assert [(await get_me(server, token, path))[0] for path in ("/users/@me", "/oauth2/@me")] == [200, 200]
    assert (await post_form(server, "/oauth2/token/revoke", token=token))[0] == 200


async def request_route(bot: RecordingClient, method: str, path: str, body: Any = None, **ids: Any) -> Any:
    """Call a route that discord.py has no method for, and return the parsed response.

    Args:
        path: such as "/channels/{channel_id}".
        ids: the ids in the path.
    """
    options = {} if body is None else {"json": body}
    return await bot.http.request(discord.http.Route(method, path, **ids), **options)


async def trigger_every_interaction(server: DiscordSimulator) -> None:
    for channel in (server.channels["general"], server.open_dm("ada")):
        responses = await server.run_command("ada", channel, "/reset", why="so")
        await server.wait_for(lambda responses=responses: len(responses) == 2 and responses[0].deleted)  # type: ignore[misc]
        await server.run_command("ada", channel, "/hello")
        assert await server.autocomplete_option("ada", channel, "/hello", "what", "w") == ["w"]
        assert await server.run_message_command(
            "grace", await server.post_message("ada", channel, "this"), "Ask about this"
        )
    for channel in (server.open_group_dm("us", "ada", "grace"), server.add_foreign_channel("there", "ada")):
        await server.run_command("ada", channel, "/hello", what="w")
        await server.run_message_command("ada", await server.post_message("ada", channel, "this"), "Ask about this")
    message = next(m for m in server.messages("general") if m.content.components and m.author.is_bot)
    await server.click_button("ada", message, "stop")
    await server.wait_for(lambda: message.text == "pressed")


@pytest.fixture
async def server() -> AsyncIterator[DiscordSimulator]:
    async with DiscordSimulator(rate_limits=False) as simulator:
        simulator.permissions |= set(PERMISSIONS)
        yield simulator


async def test_responses_events_and_requests_match_discords_specification(
    server: DiscordSimulator, connect: Connect
) -> None:
    bot = await connect(server, bot=FidelityBot())
    await trigger_every_event(server)
    await call_message_routes(server, bot)
    await call_channel_routes(server, bot)
    await call_member_routes(server, bot)
    await call_command_routes(server, bot)
    await call_user_routes(server)
    await trigger_every_interaction(server)
    await server.drop_sockets()
    await asyncio.wait_for(bot.resumed.wait(), 30)

    found = [fault for call in server.calls for fault in (*find_request_errors(call), *find_response_errors(call))]
    found += [fault for event in server.events for fault in find_event_errors(event)]
    assert sorted(set(found)) == []
    assert {event.name for event in server.events} == set(OBJECTS)
    assert {call.route for call in server.calls} == set(server.faults.routes)


async def test_request_schemas_are_those_of_the_specification() -> None:
    command = "run python -m chatrig.discord.schema_table PATH/discord_openapi.json"
    assert SCHEMAS_FILE.read_text() == create_schema_table(load_specification()), command


async def test_events_of_the_walk_are_those_that_the_catalog_lists() -> None:
    assert set(OBJECTS) == set(MODELLED_EVENTS) <= set(EVENTS)
