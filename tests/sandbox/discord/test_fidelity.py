"""What the sandbox answers and tells, and what discord.py asks of it, held against Discord's own specification.

`PLATFORM_SHAPES` names a folder with `discord_openapi.json` (OpenAPI 3.1, so its schemas are JSON Schema 2020-12).
A reply is held against what its route and status are specified to answer, a request against what its route takes, and
the objects within an event against the components of their kind, as the specification has no events.

Two things are let pass. discord.py sends some ids as numbers (`_NUMBERS`), and Discord takes them. And the
specification has the code of one field's error as a number, where Discord's pages show it as text
(`BASE_TYPE_MAX_LENGTH`), and so does the sandbox.
"""

import asyncio
import io
import json
import os
import re
from collections.abc import AsyncIterator, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import discord
import pytest
from jsonschema import Draft202012Validator

from sandbox.discord import Call, DiscordSandbox, Event
from tests.sandbox.discord.conftest import Bot, Connect, intents_of

_SHAPES = os.environ.get("PLATFORM_SHAPES")
pytestmark = pytest.mark.skipif(not _SHAPES, reason="PLATFORM_SHAPES names no folder with the platforms' shapes")

_CHANNEL = ("GuildChannelResponse", "PrivateChannelResponse", "ThreadResponse")
#: Of each event, the objects within it and the components that they may be; `[]` is each of a list.
_OBJECTS: dict[str, dict[str, tuple[str, ...]]] = {
    "READY": {"user": ("UserPIIResponse",)},
    "RESUMED": {},
    "GUILD_CREATE": {
        "": ("GuildWithCountsResponse",),
        "channels[]": ("GuildChannelResponse",),
        "threads[]": ("ThreadResponse",),
        "members[]": ("GuildMemberResponse",),
    },
    "GUILD_MEMBER_ADD": {"": ("GuildMemberResponse",)},
    "GUILD_MEMBERS_CHUNK": {"members[]": ("GuildMemberResponse",)},
    "CHANNEL_CREATE": {"": ("GuildChannelResponse",)},
    "THREAD_CREATE": {"": ("ThreadResponse",)},
    "THREAD_UPDATE": {"": ("ThreadResponse",)},
    "MESSAGE_CREATE": {"": ("MessageResponse",)},
    "MESSAGE_UPDATE": {"": ("MessageResponse",)},
    "MESSAGE_DELETE": {},
    "MESSAGE_REACTION_ADD": {"emoji": ("MessageReactionEmojiResponse",), "member": ("GuildMemberResponse",)},
    "MESSAGE_REACTION_REMOVE": {"emoji": ("MessageReactionEmojiResponse",)},
    "INTERACTION_CREATE": {
        "channel": _CHANNEL,
        "member": ("GuildMemberResponse",),
        "user": ("UserResponse",),
        "message": ("MessageResponse",),
    },
}

#: Where discord.py writes ids as numbers.
_NUMBERS = {
    "message_reference.message_id",
    "message_reference.channel_id",
    "message_reference.guild_id",
    "allowed_mentions.users",
    "allowed_mentions.roles",
    "attachments.id",
    "message.attachments.id",
    "recipient_id",
}
#: Routes that discord.py does not ask for in this walk.
_NOT_CALLED = {"GET /applications/{application}/guilds/{guild}/commands"}


@cache
def spec() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((Path(_SHAPES or "") / "discord_openapi.json").read_text())
    return loaded


def faults(value: Any, schema: dict[str, Any], where: str) -> Iterator[str]:
    validator = Draft202012Validator({"components": spec()["components"], **schema})
    for error in validator.iter_errors(value):
        best = min(error.context or [error], key=lambda inner: -len(inner.absolute_path))
        yield f"{where}: {'.'.join(map(str, best.absolute_path))}: {best.message[:200]}"


def of_kinds(*names: str) -> dict[str, Any]:
    return {"anyOf": [{"$ref": f"#/components/schemas/{name}"} for name in names]}


@cache
def operation(route: str) -> dict[str, Any]:
    """What the specification says of a route, whatever it calls the ids in it."""
    method, path = re.sub(r"\{\w+\}", "{}", route).split(" ")
    (found,) = (about for known, about in spec()["paths"].items() if re.sub(r"\{\w+\}", "{}", known) == path)
    about: dict[str, Any] = found[method.lower()]
    return about


def faults_of_request(call: Call) -> Iterator[str]:
    wanted = operation(call.route).get("requestBody")
    if wanted is None:
        if call.body:
            yield f"{call.route}: takes no body"
        return
    body = with_textual_ids(call.body)
    yield from faults(body, wanted["content"]["application/json"]["schema"], f"request {call.route}")


def with_textual_ids(body: Any, path: str = "") -> Any:
    """The same, text in place of the numbers that are let pass."""
    if isinstance(body, dict):
        return {name: with_textual_ids(value, f"{path}.{name}".lstrip(".")) for name, value in body.items()}
    if isinstance(body, list):
        return [with_textual_ids(value, path) for value in body]
    return str(body) if path in _NUMBERS and isinstance(body, int) else body


def faults_of_reply(call: Call) -> Iterator[str]:
    responses = operation(call.route)["responses"]
    answer = responses.get(str(call.status)) or responses["4XX"]
    if "$ref" in answer:
        answer = spec()["components"]["responses"][answer["$ref"].rsplit("/", 1)[-1]]
    if "content" not in answer:
        if call.reply is not None:
            yield f"{call.route} {call.status}: has no body"
        return
    where = f"reply {call.route} {call.status}"
    reply = with_numbers(call.reply) if call.code == 50035 else call.reply
    yield from faults(reply, answer["content"]["application/json"]["schema"], where)


def with_numbers(errors: Any) -> Any:
    """The same, the texts in place of codes replaced by a number."""
    if isinstance(errors, list):
        return [with_numbers(error) for error in errors]
    if not isinstance(errors, dict):
        return errors
    return {n: 0 if n == "code" and isinstance(v, str) else with_numbers(v) for n, v in errors.items()}


def faults_of_event(event: Event) -> Iterator[str]:
    for path, kinds in _OBJECTS[event.name].items():
        name = path.removesuffix("[]")
        value = event.data.get(name) if name else event.data
        for part in value if path.endswith("[]") and value else [value]:
            if part:
                yield from faults(part, of_kinds(*kinds), f"event {event.name} {path}")


async def refused(call: Any) -> None:
    with pytest.raises(discord.HTTPException):
        await call


class Walker(Bot):
    def __init__(self) -> None:
        super().__init__(intents_of("message_content", "reactions", "members", "presences"))

        @self.tree.command(name="reset", description="Begin anew")
        async def reset(interaction: discord.Interaction, why: str = "") -> None:
            await interaction.response.defer(ephemeral=True, thinking=True)
            await interaction.edit_original_response(content="done", view=button())
            await interaction.original_response()
            await (await interaction.followup.send("more", wait=True)).edit(content="still more")
            await interaction.delete_original_response()

        @self.tree.command(name="hello", description="Say it")
        async def hello(interaction: discord.Interaction) -> None:
            await interaction.response.send_message("hi")

    async def on_interaction(self, interaction: discord.Interaction) -> None:
        if interaction.type is discord.InteractionType.component:
            await interaction.response.edit_message(content="pressed", view=None)


def button() -> discord.ui.View:
    view = discord.ui.View(timeout=None)
    view.add_item(discord.ui.Button(label="Stop", custom_id="stop"))
    return view


async def walk_through_the_events(server: DiscordSandbox) -> None:
    server.add_user("alan")
    await server.join("edsger")
    server.add_channel("late")
    mention = f"<@{server.bot_id}> see <#{server.channels['random'].id}>, @everyone"
    for channel in (server.channels["general"], server.open_dm("ada")):
        root = await server.say("ada", channel, mention, files={"a.txt": b"text", "b.png": b"\x89PNG"})
        reply = await server.say("ada", channel, "more", reply_to=root)
        await server.edit("ada", reply, mention)
        await server.react("ada", reply, "👋")
        await server.pin("ada", root)
        await server.delete("ada", reply)
    root = await server.say("ada", "general", "a root")
    thread = await server.start_thread("ada", root, "a thread")
    await server.say("grace", thread, "in it")
    await server.archive(thread)
    await server.start_post("ada", "ideas", "a post", "what if")
    await server.bot_says("robot", "general", "beep")
    await server.bot_says("hook", "general", "beep", webhook=True)


async def walk_through_the_api(server: DiscordSandbox, bot: Bot) -> None:
    general, ideas = bot.place(server, "general"), bot.place(server, "ideas")
    ada = await bot.fetch_user(int(server.people["ada"].id))
    await bot.guilds[0].chunk()
    guild = await bot.fetch_guild(int(server.guild_id))
    await guild.fetch_channels()
    await guild.fetch_member(ada.id)
    await guild.active_threads()
    assert [mine.id async for mine in bot.fetch_guilds()] == [guild.id]
    await bot.http.request(discord.http.Route("GET", "/gateway"))
    await bot.http.get_bot_gateway()
    await bot.http.request(discord.http.Route("GET", "/applications/@me"))
    await bot.fetch_channel(general.id)
    await (await ada.create_dm()).send("hello")
    await bot.fetch_channel((await ada.create_dm()).id)
    asked = await server.say("ada", "general", f"<@{server.bot_id}> hi")
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
        seen = await server.command("ada", channel, "/reset", why="so")
        await server.wait_for(lambda seen=seen: len(seen) == 2 and seen[0].deleted)  # type: ignore[misc]
        await server.command("ada", channel, "/hello")
    shown = next(m for m in server.messages("general") if m.content.components and m.author.is_bot)
    await server.press("ada", shown, "stop")
    await server.wait_for(lambda: shown.text == "pressed")


@pytest.fixture
async def server() -> AsyncIterator[DiscordSandbox]:
    async with DiscordSandbox(rate_limits=False) as sandbox:
        yield sandbox


async def test_every_reply_event_and_request_has_the_shape_that_discord_specifies(
    server: DiscordSandbox, connect: Connect
) -> None:
    bot = await connect(server, bot=Walker())
    await walk_through_the_events(server)
    await walk_through_the_api(server, bot)
    await walk_through_the_interactions(server)
    await server.drop_sockets()
    await asyncio.wait_for(bot.resumed.wait(), 5)

    found = [fault for call in server.calls for fault in (*faults_of_request(call), *faults_of_reply(call))]
    found += [fault for event in server.events for fault in faults_of_event(event)]
    assert sorted(set(found)) == []
    assert {event.name for event in server.events} == set(_OBJECTS)
    assert {call.route for call in server.calls} == set(server.faults.routes) - _NOT_CALLED
