"""Bot with hikari; a mention names a step, and each step prints one JSON line."""

import asyncio
import json
import logging
import os
import sys
import traceback
from collections.abc import Awaitable, Callable
from typing import Any

import hikari
from hikari.impl import special_endpoints as builders

API_URL, TOKEN = os.environ["DISCORD_API_URL"], os.environ["DISCORD_TOKEN"]
INTENTS = (
    hikari.Intents.GUILDS
    | hikari.Intents.GUILD_MEMBERS
    | hikari.Intents.GUILD_MESSAGES
    | hikari.Intents.GUILD_MESSAGE_REACTIONS
    | hikari.Intents.GUILD_MESSAGE_TYPING
    | hikari.Intents.GUILD_MESSAGE_POLLS
    | hikari.Intents.DM_MESSAGES
    | hikari.Intents.MESSAGE_CONTENT
)
OPTIONS: dict[str, Any] = {"banner": None, "logs": None, "rest_url": API_URL, "suppress_optimization_warning": True}

Fields = dict[str, Any] | None
Interaction = hikari.CommandInteraction | hikari.ComponentInteraction

EPHEMERAL = hikari.MessageFlag.EPHEMERAL
bot = hikari.GatewayBot(TOKEN, intents=INTENTS, auto_chunk_members=False, **OPTIONS)


def print_line(step: str, fields: Fields = None) -> None:
    sys.stdout.write(json.dumps({"step": step, **(fields or {})}) + "\n")
    sys.stdout.flush()


async def run_step(step: str, work: Awaitable[Fields]) -> None:
    try:
        print_line(step, await work)
    except Exception:
        print_line(step, {"error": traceback.format_exc()})


async def catch_code(call: Awaitable[object]) -> int:
    """Await a call; return the error code with which Discord refuses it, or 0."""
    try:
        await call
    except hikari.ClientHTTPResponseError as error:
        return int(getattr(error, "code", 0))
    return 0


def create_row(*ids: str) -> builders.MessageActionRowBuilder:
    row = builders.MessageActionRowBuilder()
    for id_ in ids:
        row.add_interactive_button(hikari.ButtonStyle.SECONDARY, id_, label=id_)
    return row


async def mention(event: hikari.GuildMessageCreateEvent, _: str) -> Fields:
    author, channel, guild = event.author, event.get_channel(), event.get_guild()
    await event.message.respond(f"hello {author.mention}", reply=True, user_mentions=[author.id])
    return {
        "content": event.content,
        "author": author.username,
        "isMentioned": get_id() in (event.message.user_mentions_ids or ()),
        "guild": guild and guild.name,
        "channel": channel and channel.name,
    }


def get_id() -> hikari.Snowflake:
    me = bot.get_me()
    assert me is not None
    return me.id


async def edits(event: hikari.GuildMessageCreateEvent, _: str) -> Fields:
    await bot.rest.trigger_typing(event.channel_id)
    reply = await event.message.respond("…", reply=True)
    for count in range(1, 5):
        await reply.edit(f"so far {count}")
    embed = hikari.Embed(title="Answer", description="*done*", color=0x00FF00).add_field("took", "1 s", inline=True)
    embed.set_footer("bot")
    row = create_row("stop").add_link_button("https://a.example", label="Site")
    last = await reply.edit("done", embed=embed, component=row)
    (action_row,) = last.components
    assert isinstance(action_row, hikari.ActionRowComponent)
    return {
        "isEdited": last.edited_timestamp is not None,
        "embed": last.embeds[0].title,
        "labels": [part.label for part in action_row.components if isinstance(part, hikari.ButtonComponent)],
    }


async def flags(event: hikari.GuildMessageCreateEvent, _: str) -> Fields:
    quiet, hidden = hikari.MessageFlag.SUPPRESS_NOTIFICATIONS, hikari.MessageFlag.SUPPRESS_EMBEDS
    sent = await bot.rest.create_message(event.channel_id, embed=hikari.Embed(title="Shown"), flags=quiet)
    edits = [await sent.edit(flags=hidden), await sent.edit(flags=hikari.MessageFlag.NONE)]
    return {"flags": [int(message.flags) for message in (sent, *edits)]}


async def delete(event: hikari.GuildMessageCreateEvent, _: str) -> Fields:
    reply = await event.message.respond("oops")
    await reply.delete()
    return {"deletedTwice": await catch_code(reply.delete())}


async def buttons(event: hikari.GuildMessageCreateEvent, _: str) -> Fields:
    await event.message.respond("press", component=create_row("update", "later", "secret", "more"))
    return None


async def selects(event: hikari.GuildMessageCreateEvent, _: str) -> Fields:
    rows = [builders.MessageActionRowBuilder() for _ in range(5)]
    rows[0].add_text_menu("text", max_values=2).add_option("red", "red").add_option("blue", "blue")
    rows[1].add_select_menu(hikari.ComponentType.USER_SELECT_MENU, "user")
    rows[2].add_select_menu(hikari.ComponentType.ROLE_SELECT_MENU, "role")
    rows[3].add_channel_menu("channel")
    rows[4].add_select_menu(hikari.ComponentType.MENTIONABLE_SELECT_MENU, "mentionable")
    await event.message.respond("choose", components=rows)
    return None


async def modals(event: hikari.GuildMessageCreateEvent, _: str) -> Fields:
    await event.message.respond("open", component=create_row("open"))
    return None


async def components_v2(event: hikari.GuildMessageCreateEvent, _: str) -> Fields:
    act = builders.InteractiveButtonBuilder(style=hikari.ButtonStyle.SECONDARY, custom_id="act", label="act")
    section = builders.SectionComponentBuilder(accessory=act).add_text_display("body")
    container = builders.ContainerComponentBuilder(accent_color=hikari.Color(0xFF0000)).add_text_display("# Title")
    container.add_separator().add_component(section).add_component(create_row("other"))
    sent = await bot.rest.create_message(event.channel_id, component=container)
    (row,) = sent.components
    assert isinstance(row, hikari.ContainerComponent)
    return {"types": [int(part.type) for part in row.components]}


async def upload(event: hikari.GuildMessageCreateEvent, _: str) -> Fields:
    files = [hikari.Bytes(b"a", "a b.txt"), hikari.Bytes(b"\x00\xff\n", "b.bin")]
    sent = await event.message.respond("two files", attachments=files)
    first, second = sent.attachments
    content = await second.read()
    edited = await sent.edit(attachment=second)
    return {
        "names": [first.filename, second.filename],
        "description": second.description,
        "bytes": list(content),
        "remaining": [file.filename for file in edited.attachments],
    }


async def files(event: hikari.GuildMessageCreateEvent, _: str) -> Fields:
    (file,) = event.message.attachments
    return {"name": file.filename, "bytes": list(await file.read())}


async def direct(event: hikari.GuildMessageCreateEvent, _: str) -> Fields:
    sent = await event.author.send("in private")
    return {"isDirect": sent.guild_id is None}


async def threads(event: hikari.GuildMessageCreateEvent, _: str) -> Fields:
    channel_id, guild = event.channel_id, event.guild_id
    public, private = hikari.ChannelType.GUILD_PUBLIC_THREAD, hikari.ChannelType.GUILD_PRIVATE_THREAD
    from_message = await bot.rest.create_message_thread(channel_id, event.message_id, "from a message")
    await from_message.send("in the thread")
    open_thread = await bot.rest.create_thread(channel_id, public, "public")
    closed = await bot.rest.create_thread(channel_id, private, "private")
    await bot.rest.edit_channel(open_thread, name="renamed")
    await bot.rest.edit_channel(open_thread, archived=True)
    await bot.rest.edit_channel(open_thread, archived=False)
    channels = bot.cache.get_guild_channels_view_for_guild(guild).values()
    (forum,) = [channel for channel in channels if isinstance(channel, hikari.GuildForumChannel)]
    post = await bot.rest.create_forum_post(forum, "a post", "what if")
    active = await bot.rest.fetch_active_threads(guild)
    (starter,) = [message async for message in bot.rest.fetch_messages(from_message) if message.message_reference]
    assert starter.message_reference is not None
    return {
        "types": [int(thread.type) for thread in (from_message, open_thread, closed, post)],
        "names": [thread.name for thread in active],
        "starter": starter.message_reference.id == event.message_id,
        "startedTwice": await catch_code(bot.rest.create_message_thread(channel_id, event.message_id, "again")),
    }


async def in_thread(event: hikari.GuildMessageCreateEvent, _: str) -> Fields:
    await event.message.respond("here", reply=True)
    thread = await bot.rest.fetch_channel(event.channel_id)
    assert isinstance(thread, hikari.GuildThreadChannel)
    parent = bot.cache.get_guild_channel(thread.parent_id)
    return {"isThread": True, "parent": parent and parent.name}


async def history(event: hikari.GuildMessageCreateEvent, _: str) -> Fields:
    channel_id = event.channel_id
    middle = [message async for message in bot.rest.fetch_messages(channel_id).limit(4)][-1]
    before = [message.content async for message in bot.rest.fetch_messages(channel_id, before=middle).limit(2)]
    after = [message.content async for message in bot.rest.fetch_messages(channel_id, after=middle).limit(2)]
    around = [message.content async for message in bot.rest.fetch_messages(channel_id, around=middle).limit(5)]
    return {
        "before": before,
        "after": after[::-1],
        "around": around[2:5],
        "one": (await bot.rest.fetch_message(channel_id, middle)).content,
    }


async def reactions(event: hikari.GuildMessageCreateEvent, _: str) -> Fields:
    for emoji in ("👀", "👍", "🎉"):
        await event.message.add_reaction(emoji)
    await event.message.remove_reaction("👀")
    return {"unknown": await catch_code(event.message.add_reaction("nonsense", 1))}


async def directory(event: hikari.GuildMessageCreateEvent, _: str) -> Fields:
    guild = await bot.rest.fetch_guild(event.guild_id)
    await bot.request_guild_members(event.guild_id)
    chunk = await bot.wait_for(hikari.MemberChunkEvent, timeout=10)
    return {
        "guilds": [guild.name async for guild in bot.rest.fetch_my_guilds()],
        "user": (await bot.rest.fetch_user(event.author_id)).username,
        "member": (await bot.rest.fetch_member(event.guild_id, event.author_id)).display_name,
        "memberCount": guild.approximate_member_count,
        "channels": [channel.name for channel in await bot.rest.fetch_guild_channels(event.guild_id)],
        "roles": [role.name for role in await bot.rest.fetch_roles(event.guild_id)],
        "application": str((await bot.rest.fetch_application()).id),
        "members": [member.username for member in chunk.members.values()],
    }


async def one_command(event: hikari.GuildMessageCreateEvent, _: str) -> Fields:
    guild = event.guild_id
    created = await bot.rest.create_slash_command(get_id(), "temporary", "One", guild=guild)
    edited = await bot.rest.edit_application_command(get_id(), created, guild, description="Two")
    listed = await bot.rest.fetch_application_commands(get_id(), guild)
    await bot.rest.delete_application_command(get_id(), created, guild)
    remaining = await bot.rest.fetch_application_commands(get_id(), guild)
    assert isinstance(edited, hikari.SlashCommand)
    return {"edited": edited.description, "listed": [command.name for command in listed], "remaining": len(remaining)}


async def pins(event: hikari.GuildMessageCreateEvent, _: str) -> Fields:
    await bot.rest.pin_message(event.channel_id, event.message)
    pinned = [str(pin.message.id) async for pin in bot.rest.fetch_pins(event.channel_id)]
    await bot.rest.unpin_message(event.channel_id, event.message)
    return {"pinned": pinned, "remaining": await bot.rest.fetch_pins(event.channel_id).count()}


async def bulk_delete(event: hikari.GuildMessageCreateEvent, _: str) -> Fields:
    sent = [await event.message.respond(text) for text in "abc"]
    await bot.rest.delete_messages(event.channel_id, sent)
    return None


async def clean_reactions(event: hikari.GuildMessageCreateEvent, argument: str) -> Fields:
    channel_id, message = event.channel_id, int(argument)
    users = [user.username async for user in bot.rest.fetch_reactions_for_emoji(channel_id, message, "👋")]
    await bot.rest.delete_reaction(channel_id, message, event.author_id, "👋")
    remaining = [user.username async for user in bot.rest.fetch_reactions_for_emoji(channel_id, message, "👋")]
    await bot.rest.delete_all_reactions(channel_id, message)
    return {"users": users, "remaining": remaining}


async def members(event: hikari.GuildMessageCreateEvent, _: str) -> Fields:
    listed = [member.username async for member in bot.rest.fetch_members(event.guild_id)]
    found = await bot.rest.search_members(event.guild_id, "gra")
    await bot.rest.edit_my_member(event.guild_id, nickname="Helper")
    return {"listed": listed, "found": [member.username for member in found]}


async def archived_threads(event: hikari.GuildMessageCreateEvent, _: str) -> Fields:
    thread = await bot.rest.create_thread(event.channel_id, hikari.ChannelType.GUILD_PUBLIC_THREAD, "old")
    await bot.rest.add_thread_member(thread, event.author_id)
    ids = [member.user_id async for member in bot.rest.fetch_thread_members(thread)]
    await bot.rest.edit_channel(thread, archived=True)
    names = [old.name async for old in bot.rest.fetch_public_archived_threads(event.channel_id)]
    return {"members": len(ids), "isMember": event.author_id in ids, "names": names}


async def poll(event: hikari.GuildMessageCreateEvent, _: str) -> Fields:
    question = builders.PollBuilder(question_text="Tea?", allow_multiselect=False, duration=24)
    question.add_answer(text="yes").add_answer(text="no")
    sent = (await event.message.respond(poll=question)).poll
    assert sent is not None
    return {"question": sent.question.text, "answers": [answer.poll_media.text for answer in sent.answers]}


async def forward(event: hikari.GuildMessageCreateEvent, argument: str) -> Fields:
    forwarded = await bot.rest.forward_message(int(argument), event.message, event.channel_id)
    return {"content": forwarded.message_snapshots[0].content}


async def manage_channels(event: hikari.GuildMessageCreateEvent, _: str) -> Fields:
    channel = await bot.rest.create_guild_text_channel(event.guild_id, "made", topic="first")
    edited = await bot.rest.edit_channel(channel, topic="second")
    webhook = await bot.rest.create_webhook(channel, "Hook")
    assert webhook.token is not None
    sent = await bot.rest.execute_webhook(webhook, webhook.token, "by the hook")
    invite = await bot.rest.create_invite(channel, max_age=60)
    await bot.rest.delete_webhook(webhook)
    await bot.rest.delete_channel(channel)
    return {
        "topic": getattr(edited, "topic", None),
        "isByWebhook": sent.webhook_id == webhook.id,
        "code": invite.code,
        "deletedChannel": await catch_code(bot.rest.fetch_channel(channel.id)),
    }


async def errors(event: hikari.GuildMessageCreateEvent, argument: str) -> Fields:
    channel_id = event.channel_id
    other = await event.message.respond("x")
    row = builders.MessageActionRowBuilder()
    row.add_interactive_button(hikari.ButtonStyle.PRIMARY, "x", label="x" * 81)
    return {
        "nowhere": await catch_code(bot.rest.fetch_channel(1)),
        "secret": await catch_code(bot.rest.fetch_channel(int(argument))),
        "nothing": await catch_code(bot.rest.fetch_message(channel_id, 1)),
        "nobody": await catch_code(bot.rest.fetch_user(1)),
        "foreign": await catch_code(bot.rest.edit_message(channel_id, event.message_id, "x")),
        "empty": await catch_code(bot.rest.create_message(channel_id, " ")),
        "long": await catch_code(bot.rest.create_message(channel_id, "x" * 2001)),
        "badButtons": await catch_code(other.edit(component=row)),
        "badEmbed": await catch_code(other.edit(embed=hikari.Embed(title="x" * 257))),
    }


async def slow_down(event: hikari.GuildMessageCreateEvent, _: str) -> Fields:
    await event.message.respond("at last")
    return None


async def cloudflare_limit(event: hikari.GuildMessageCreateEvent, _: str) -> Fields:
    try:
        await event.message.respond("at last")
    except hikari.HTTPResponseError as error:
        return {"status": int(error.status)}
    return {"status": 200}


async def retry(event: hikari.GuildMessageCreateEvent, _: str) -> Fields:
    await event.message.respond("again")
    return None


async def ping(event: hikari.GuildMessageCreateEvent, _: str) -> Fields:
    return None


async def no_content(event: hikari.GuildMessageCreateEvent, _: str) -> Fields:
    intents = hikari.Intents.GUILDS | hikari.Intents.GUILD_MESSAGES
    other = hikari.GatewayBot(TOKEN, intents=intents, auto_chunk_members=False, **OPTIONS)
    texts: list[str] = []

    @other.listen()
    async def on_message(event: hikari.GuildMessageCreateEvent) -> None:
        texts.append(event.content or "")
        if len(texts) == 2:
            print_line("received", {"texts": texts})
            await other.close()

    await other.start()
    return None


async def refuse_login(event: hikari.GuildMessageCreateEvent, _: str) -> Fields:
    async def start(intents: hikari.Intents, token: str = TOKEN) -> str:
        other = hikari.GatewayBot(token, intents=intents, auto_chunk_members=False, **OPTIONS)
        try:
            await other.start()
        except (hikari.GatewayServerClosedConnectionError, hikari.UnauthorizedError) as error:
            return str(error)
        finally:
            if other.is_alive:
                await other.close()
        return "accepted"

    return {
        "intents": await start(hikari.Intents.GUILD_PRESENCES),
        "token": "token: " + await start(hikari.Intents.GUILDS, "MTIz.wrong.token"),
    }


async def shards(event: hikari.GuildMessageCreateEvent, _: str) -> Fields:
    other = hikari.GatewayBot(TOKEN, intents=hikari.Intents.GUILDS, auto_chunk_members=False, **OPTIONS)
    await other.start()
    count = other.shard_count
    await other.close()
    return {"count": count}


Step = Callable[[hikari.GuildMessageCreateEvent, str], Awaitable[Fields]]
STEPS: dict[str, Step] = {
    "componentsV2": components_v2,
    "inThread": in_thread,
    "noContent": no_content,
    "oneCommand": one_command,
    "bulkDelete": bulk_delete,
    "cleanReactions": clean_reactions,
    "manageChannels": manage_channels,
    "slowDown": slow_down,
    "cloudflareLimit": cloudflare_limit,
    "archivedThreads": archived_threads,
    "refuseLogin": refuse_login,
    **{
        step.__name__: step
        for step in (mention, edits, delete, buttons, selects, modals, upload, files, direct, threads, history)
    },
    **{step.__name__: step for step in (reactions, directory, errors, retry, ping, shards)},
    **{step.__name__: step for step in (flags, pins, members, poll, forward)},
}


@bot.listen()
async def on_guild_message(event: hikari.GuildMessageCreateEvent) -> None:
    if event.author_id != get_id() and get_id() in (event.message.user_mentions_ids or ()):
        _, step, *arguments = (event.content or "").split(" ")
        await run_step(step, STEPS[step](event, "".join(arguments)))


@bot.listen()
async def on_direct_message(event: hikari.DMMessageCreateEvent) -> None:
    async def answer() -> Fields:
        await event.message.respond(f"you wrote {event.content}")
        return {"content": event.content, "author": event.author.username}

    if event.author_id != get_id():
        await run_step("directMessage", answer())


@bot.listen()
async def on_update(event: hikari.GuildMessageUpdateEvent) -> None:
    if event.author_id != get_id() and event.message.edited_timestamp:
        print_line("changed", {"content": event.message.content})


@bot.listen()
async def on_delete(event: hikari.GuildMessageDeleteEvent) -> None:
    if event.old_message is not None and event.old_message.author.id != get_id():
        print_line("deleted", {"id": str(event.message_id)})


@bot.listen()
async def on_reaction(event: hikari.GuildReactionAddEvent) -> None:
    if event.user_id != get_id():
        print_line(f"reacted {event.message_id}", {"emoji": event.emoji_name})


@bot.listen()
async def on_member(event: hikari.MemberCreateEvent) -> None:
    print_line("joined", {"name": event.user.username})


@bot.listen()
async def on_thread(event: hikari.GuildThreadCreateEvent) -> None:
    if event.thread.owner_id != get_id():
        print_line("threadCreated", {"name": event.thread.name})


@bot.listen()
async def on_thread_members(event: hikari.ThreadMembersUpdateEvent) -> None:
    thread = bot.cache.get_thread(event.thread_id)
    if thread is not None and thread.owner_id != get_id():
        print_line("threadMembers", {"names": [member.username for member in event.guild_members.values()]})


@bot.listen()
async def on_pin(event: hikari.GuildPinsUpdateEvent) -> None:
    channel = event.get_channel()
    print_line("pinned", {"name": channel and channel.name})


@bot.listen()
async def on_typing(event: hikari.GuildTypingEvent) -> None:
    if event.user_id != get_id():
        print_line("typing", {"name": event.member.username})


@bot.listen()
async def on_outage(event: hikari.GuildUnavailableEvent) -> None:
    print_line("unavailable")


@bot.listen()
async def on_vote(event: hikari.PollVoteCreateEvent) -> None:
    async def end() -> Fields:
        voters = await bot.rest.fetch_poll_voters(event.channel_id, event.message_id, event.answer_id)
        ended = (await bot.rest.end_poll(event.channel_id, event.message_id)).poll
        assert ended is not None
        assert ended.results is not None
        names = [voter.username for voter in voters]
        return {"answer": event.answer_id, "voters": names, "isOver": ended.results.is_finalized}

    await run_step("voted", end())


@bot.listen()
async def on_resume(event: hikari.ShardResumedEvent) -> None:
    print_line("resumed")


async def handle_component(interaction: hikari.ComponentInteraction) -> Fields:
    """Respond to a clicked button or a selection as its `custom_id` says.

    Returns:
        The fields of the step's JSON line.
    """
    response = hikari.ResponseType
    match interaction.custom_id:
        case "update":
            await interaction.create_initial_response(response.MESSAGE_UPDATE, "pressed")
        case "later":
            await interaction.create_initial_response(response.DEFERRED_MESSAGE_UPDATE)
            await interaction.edit_initial_response("pressed later")
        case "secret":
            await interaction.create_initial_response(response.MESSAGE_CREATE, "psst", flags=EPHEMERAL)
            second = interaction.create_initial_response(response.DEFERRED_MESSAGE_UPDATE)
            return {"respondedTwice": await catch_code(second)}
        case "more":
            await interaction.create_initial_response(response.DEFERRED_MESSAGE_UPDATE)
            return {"content": (await interaction.execute("more", flags=EPHEMERAL)).content}
        case "open":
            row = builders.ModalActionRowBuilder().add_text_input("why", "Why", style=hikari.TextInputStyle.PARAGRAPH)
            await interaction.create_modal_response("Form", "form", component=row)
        case _:
            await interaction.create_initial_response(response.DEFERRED_MESSAGE_UPDATE)
            return read_selection(interaction)
    return None


def read_selection(interaction: hikari.ComponentInteraction) -> Fields:
    resolved, values = interaction.resolved, {"values": list(interaction.values)}
    if resolved is None:
        return values
    names = [user.username for user in resolved.users.values()] + [role.name for role in resolved.roles.values()]
    return {**values, "names": names + [channel.name for channel in resolved.channels.values()]}


async def handle_command(interaction: hikari.CommandInteraction) -> Fields:
    response = hikari.ResponseType
    options = {option.name: option.value for option in interaction.options or ()}
    match interaction.command_name:
        case "ask":
            await interaction.create_initial_response(response.MESSAGE_CREATE, f"you asked {options['what']}")
            return {**options, "user": interaction.user.username}
        case "slow":
            await interaction.create_initial_response(response.DEFERRED_MESSAGE_CREATE)
            await interaction.edit_initial_response("done")
            followup = await interaction.execute("more")
            await interaction.edit_message(followup, "still more")
            content = (await interaction.fetch_initial_response()).content
            await interaction.delete_initial_response()
            return {"content": content}
        case "whisper":
            await interaction.create_initial_response(response.MESSAGE_CREATE, "psst", flags=EPHEMERAL)
            return {"content": (await interaction.fetch_initial_response()).content}
        case _:
            assert interaction.resolved is not None
            (target,) = interaction.resolved.messages.values()
            text = f"about {target.content}"
            await interaction.create_initial_response(response.MESSAGE_CREATE, text, flags=EPHEMERAL)
            return {"target": str(target.id)}


async def handle_autocomplete(interaction: hikari.AutocompleteInteraction) -> Fields:
    (typed,) = [str(option.value) for option in interaction.options if option.is_focused]
    await interaction.create_response([builders.AutocompleteChoiceBuilder(f"{typed}!", typed)])
    return {"typed": typed}


async def handle_modal(interaction: hikari.ModalInteraction) -> Fields:
    (row,) = interaction.components
    (field,) = row.components
    await interaction.create_initial_response(hikari.ResponseType.MESSAGE_CREATE, "thanks")
    return {"why": field.value, "colour": None}


@bot.listen()
async def on_interaction(event: hikari.InteractionCreateEvent) -> None:
    match event.interaction:
        case hikari.ComponentInteraction() as interaction:
            await run_step(f"#{interaction.custom_id}", handle_component(interaction))
        case hikari.CommandInteraction() as interaction:
            await run_step(f"/{interaction.command_name}", handle_command(interaction))
        case hikari.AutocompleteInteraction() as interaction:
            await run_step("autocomplete", handle_autocomplete(interaction))
        case hikari.ModalInteraction() as interaction:
            await run_step("form", handle_modal(interaction))


async def register() -> Fields:
    option, kind = hikari.CommandOption, hikari.OptionType
    ask = bot.rest.slash_command_builder("ask", "Ask")
    ask.add_option(option(type=kind.STRING, name="what", description="What", is_required=True, autocomplete=True))
    ask.add_option(option(type=kind.INTEGER, name="times", description="Times"))
    ask.add_option(option(type=kind.BOOLEAN, name="loud", description="Loud"))
    commands = [
        ask,
        bot.rest.slash_command_builder("slow", "Answer later"),
        bot.rest.slash_command_builder("whisper", "Answer in private"),
        bot.rest.context_menu_command_builder(hikari.CommandType.MESSAGE, "Summarize"),
    ]
    registered = await bot.rest.set_application_commands(get_id(), commands)
    listed = await bot.rest.fetch_application_commands(get_id())
    (guild,) = bot.cache.get_guilds_view().values()
    return {
        "user": (await bot.rest.fetch_my_user()).username,
        "guilds": [guild.name],
        "channels": [channel.name for channel in guild.get_channels().values()],
        "registered": [command.name for command in registered],
        "listed": [command.name for command in listed],
        "wrongToken": await check_wrong_token(),
    }


async def check_wrong_token() -> int:
    app = hikari.RESTApp(url=API_URL)
    await app.start()
    try:
        async with app.acquire("wrong", hikari.TokenType.BOT) as client:
            await client.fetch_my_user()
    except hikari.UnauthorizedError as error:
        return int(error.status)
    finally:
        await app.close()
    return 200


@bot.listen()
async def on_guild(event: hikari.GuildAvailableEvent) -> None:
    if is_started.is_set():
        print_line("available")
    else:
        is_started.set()
        await run_step("start", register())


is_started = asyncio.Event()
logging.basicConfig(level=logging.WARNING)  # to stderr
bot.run()
