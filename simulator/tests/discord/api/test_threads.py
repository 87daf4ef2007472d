"""Threads, forum posts and DMs in the local Discord, with discord.py."""

import asyncio
from typing import Any

import discord
import pytest

from chatrig.discord import DiscordSimulator
from tests.discord.conftest import Connect, RecordingClient, call_route, create_intents, get_refusal


@pytest.fixture
async def bot(server: DiscordSimulator, connect: Connect) -> RecordingClient:
    return await connect(server)


async def test_a_users_thread_has_the_id_of_its_message(server: DiscordSimulator, bot: RecordingClient) -> None:
    root = await server.post_message("ada", "general", "a question")
    await bot.next_message()
    thread = await server.start_thread("ada", root, "details")
    assert thread.id == root.id
    starter = await bot.next_message()
    assert starter.type is discord.MessageType.thread_starter_message
    await server.post_message("grace", thread, "in here")
    received = await bot.next_message()
    assert isinstance(received.channel, discord.Thread)
    assert (received.channel.parent_id, received.content) == (int(server.channels["general"].id), "in here")
    with pytest.raises(ValueError, match="can start one thread"):
        await server.start_thread("ada", root, "again")


async def test_the_bot_starts_one_thread_per_message(server: DiscordSimulator, bot: RecordingClient) -> None:
    sent = await bot.get_simulator_channel(server, "general").send("shall we?")
    thread = await sent.create_thread(name="details")
    assert thread.id == sent.id
    await thread.send("in here")
    with pytest.raises(discord.HTTPException) as refused:
        await sent.create_thread(name="details")
    assert refused.value.code == 160004
    (listed_thread,) = server.threads("general")
    assert [message.text for message in server.messages(listed_thread)] == ["", "in here"]


async def test_a_forum_post_has_the_id_of_its_first_message(server: DiscordSimulator, bot: RecordingClient) -> None:
    post = await server.start_forum_post("ada", "ideas", "a post", "what if")
    received = await bot.next_message()
    assert isinstance(received.channel, discord.Thread)
    assert isinstance(received.channel.parent, discord.ForumChannel)
    assert str(received.id) == str(received.channel.id) == post.id
    own = await bot.get_simulator_channel(server, "ideas").create_thread(name="another", content="why not")
    assert own.message.id == own.thread.id
    assert [thread.name for thread in server.threads("ideas")] == ["a post", "another"]
    with pytest.raises(ValueError, match="ideas is read-only"):
        await server.post_message("ada", "ideas", "hello")


async def test_a_message_reopens_an_archived_unlocked_thread(server: DiscordSimulator, bot: RecordingClient) -> None:
    sent = await bot.get_simulator_channel(server, "general").send("shall we?")
    thread = await sent.create_thread(name="details")
    message = await thread.send("in here")
    (listed_thread,) = server.threads("general")
    await server.archive_thread(listed_thread)
    with pytest.raises(discord.HTTPException) as refused:
        await message.edit(content="changed")
    assert refused.value.code == 50083
    await thread.send("again")
    assert not listed_thread.archived
    await server.archive_thread(listed_thread, locked=True)
    with pytest.raises(discord.HTTPException):
        await thread.send("again")
    with pytest.raises(ValueError, match="is read-only"):
        await server.post_message("ada", listed_thread, "hello")


async def test_existing_threads_come_with_the_server(server: DiscordSimulator, connect: Connect) -> None:
    post = await server.start_forum_post("ada", "ideas", "a post", "what if")
    bot = await connect(server)
    assert [str(thread.id) for thread in bot.guilds[0].threads] == [post.id]


async def test_threads_have_their_own_permissions(server: DiscordSimulator, bot: RecordingClient) -> None:
    sent = await bot.get_simulator_channel(server, "general").send("shall we?")
    server.permissions -= {"create_public_threads"}
    with pytest.raises(discord.Forbidden):
        await sent.create_thread(name="details")
    root = server.messages("general")[0]
    thread = await server.start_thread("ada", root, "details")
    await server.post_message("ada", thread, "here")
    while (received := await bot.next_message()).content != "here":
        pass
    server.permissions.discard("send_messages_in_threads")
    with pytest.raises(discord.Forbidden):
        await received.channel.send("no")


async def test_direct_messages_are_sent_and_received(server: DiscordSimulator, bot: RecordingClient) -> None:
    dm = server.open_dm("ada")
    await server.post_message("ada", dm, "psst")
    received = await bot.next_message()
    assert received.guild is None
    await received.channel.send("yes?")
    user = await bot.fetch_user(int(server.people["ada"].id))
    await user.send("still there?")
    assert [message.text for message in server.messages(dm)] == ["psst", "yes?", "still there?"]
    with pytest.raises(ValueError, match="grace is not in ada"):
        await server.post_message("grace", dm, "me too")


async def test_writers_archive_and_reopen_a_thread(server: DiscordSimulator, bot: RecordingClient) -> None:
    root = await server.post_message("ada", "general", "a root")
    started = await server.start_thread("ada", root, "a thread")
    thread: Any = await bot.fetch_channel(int(started.id))
    answer = await thread.send("…")
    await thread.edit(archived=True)
    with pytest.raises(discord.HTTPException) as refused:
        await answer.edit(content="done")
    assert refused.value.code == 50083
    await thread.edit(archived=False)
    await answer.edit(content="done")
    await server.archive_thread(started, locked=True)
    with pytest.raises(discord.Forbidden):
        await thread.edit(archived=False)


async def test_deletions_are_dispatched(server: DiscordSimulator, bot: RecordingClient) -> None:
    updates: list[tuple[str, list[int]]] = []

    async def on_raw_bulk_message_delete(about: discord.RawBulkMessageDeleteEvent) -> None:
        updates.append(("messages", sorted(about.message_ids)))

    async def on_raw_thread_delete(about: discord.RawThreadDeleteEvent) -> None:
        updates.append(("thread", [about.thread_id, about.parent_id]))

    async def on_guild_channel_delete(channel: discord.abc.GuildChannel) -> None:
        updates.append(("channel", [channel.id]))

    for listener in (on_raw_bulk_message_delete, on_raw_thread_delete, on_guild_channel_delete):
        bot.event(listener)
    messages = [await server.post_message("ada", "general", text) for text in ("one", "two", "three")]
    await server.delete_messages(messages[:2])
    assert server.messages("general") == messages[2:]
    random = server.channels["random"]
    thread = await server.start_thread("ada", await server.post_message("ada", random, "a root"), "a thread")
    random_channel = bot.get_simulator_channel(server, "random")
    await server.delete_channel("random")
    general, post = server.channels["general"], await server.start_forum_post("ada", "ideas", "a post", "what if")
    await server.delete_channel(post)
    with pytest.raises(discord.NotFound) as error:
        await random_channel.send("anybody?")
    assert error.value.code == 10003
    assert str(general.id) in server._guild.channels
    await server.wait_for(lambda: len(updates) == 4)
    ideas = int(server.channels["ideas"].id)
    assert updates == [
        ("messages", [int(message.id) for message in messages[:2]]),
        ("thread", [int(thread.id), int(random.id)]),
        ("channel", [int(random.id)]),
        ("thread", [int(post.id), ideas]),
    ]


async def test_a_link_preview_updates_a_message_without_an_edit(server: DiscordSimulator, bot: RecordingClient) -> None:
    updates = asyncio.Queue[discord.RawMessageUpdateEvent]()

    async def on_raw_message_edit(about: discord.RawMessageUpdateEvent) -> None:
        await updates.put(about)

    bot.event(on_raw_message_edit)
    message = await server.post_message("ada", "general", "see https://a.example")
    await server.unfurl_link(message)
    about = await asyncio.wait_for(updates.get(), 5)
    assert (about.message.content, about.message.edited_at) == ("see https://a.example", None)
    await server.edit_message("ada", message, "never mind")
    about = await asyncio.wait_for(updates.get(), 5)
    assert about.message.content == "never mind"
    assert about.message.edited_at is not None


async def test_members_join_and_leave_threads(server: DiscordSimulator, bot: RecordingClient) -> None:
    channel, grace = bot.get_simulator_channel(server, "general"), discord.Object(int(server.people["grace"].id))
    root = await server.post_message("ada", "general", "a root")
    started = await server.start_thread("ada", root, "a thread")
    thread: Any = await bot.fetch_channel(int(started.id))
    assert await get_refusal(thread.fetch_member(int(server.bot_id))) == (404, 10007)
    await thread.join()
    await thread.add_user(grace)
    await thread.add_user(grace)
    assert {member.id for member in await thread.fetch_members()} == {int(user) for user in started.thread_members}
    path = f"/channels/{thread.id}/thread-members"
    _, page = await call_route(server, "GET", f"{path}?with_member=true&limit=1")
    assert [member["member"]["user"]["id"] for member in page] == [server.bot_id]
    assert await get_refusal(thread.remove_user(grace)) == (403, 50013)
    server.permissions.add("manage_threads")
    await thread.remove_user(grace)
    await thread.leave()
    assert set(started.thread_members) == {server.people["ada"].id}
    updates = [event.data for event in server.events if event.name == "THREAD_MEMBERS_UPDATE"]
    changes = [([m["user_id"] for m in data["added_members"]], data["removed_member_ids"]) for data in updates]
    assert changes == [([server.bot_id], []), ([], [server.bot_id])]
    await server.archive_thread(started)
    assert await get_refusal(thread.join()) == (400, 50083)
    assert (await call_route(server, "GET", f"/channels/{channel.id}/thread-members"))[1]["code"] == 50024
    server.privileged_intents.discard("guild_members")
    assert (await call_route(server, "GET", path))[1]["code"] == 50001


async def test_archived_threads_are_listed_by_kind(server: DiscordSimulator, bot: RecordingClient) -> None:
    channel: Any = bot.get_simulator_channel(server, "general")
    kinds = {"first": "public_thread", "second": "public_thread", "own": "private_thread"}
    for name, kind in kinds.items():
        thread = await channel.create_thread(name=name, type=discord.ChannelType[kind])
        await thread.edit(archived=True)
    foreign = await server.start_private_thread("ada", "general", "foreign")
    del foreign.thread_members[server.bot_id]
    await server.archive_thread(foreign)
    assert [thread.name async for thread in channel.archived_threads()] == ["second", "first"]
    assert [thread.name async for thread in channel.archived_threads(private=True, joined=True)] == ["own"]
    path = f"/channels/{channel.id}/threads/archived"
    assert (await call_route(server, "GET", f"{path}/private"))[1]["code"] == 50013
    server.permissions.add("manage_threads")
    assert [thread.name async for thread in channel.archived_threads(private=True)] == ["foreign", "own"]
    _, page = await call_route(server, "GET", f"{path}/public?limit=1")
    assert ([thread["name"] for thread in page["threads"]], page["has_more"]) == (["second"], True)
    before = page["threads"][0]["thread_metadata"]["archive_timestamp"].replace("+", "%2B")
    _, rest = await call_route(server, "GET", f"{path}/public?before={before}")
    assert ([thread["name"] for thread in rest["threads"]], rest["has_more"]) == (["first"], False)


async def test_private_threads_have_their_own_permission(server: DiscordSimulator, bot: RecordingClient) -> None:
    channel: Any = bot.get_simulator_channel(server, "general")
    server.permissions.discard("create_private_threads")
    assert await get_refusal(channel.create_thread(name="a secret")) == (403, 50013)
    await channel.create_thread(name="a talk", type=discord.ChannelType.public_thread)


async def test_moderators_lock_threads_of_others(server: DiscordSimulator, bot: RecordingClient) -> None:
    root = await server.post_message("ada", "general", "a root")
    started = await server.start_thread("ada", root, "a thread")
    path = f"/channels/{started.id}"
    for body in ({"locked": True}, {"name": "new"}):
        assert (await call_route(server, "PATCH", path, body))[1]["code"] == 50013
    server.permissions.add("manage_threads")
    assert (await call_route(server, "PATCH", path, {"locked": True, "archived": True, "name": "new"}))[0] == 200
    assert (started.locked, started.archived, started.name) == (True, True, "new")
    assert (await call_route(server, "PATCH", path, {"locked": False}))[0] == 200
    assert not started.locked


async def test_people_join_a_thread_by_posting_and_by_being_mentioned(
    server: DiscordSimulator, connect: Connect
) -> None:
    bot = await connect(server, intents=create_intents("members", "message_content"))
    joined = asyncio.Queue[str]()

    async def on_thread_member_join(member: discord.ThreadMember) -> None:
        await joined.put(server._guild.users[str(member.id)].name)

    bot.event(on_thread_member_join)
    root = await server.post_message("ada", "general", "a root")
    thread = await server.start_thread("ada", root, "a thread")
    await server.post_message("grace", thread, f"what does <@{server.people['linus'].id}> say?")
    await server.post_message("grace", thread, "well?")
    assert [await asyncio.wait_for(joined.get(), 5) for _ in range(3)] == ["ada", "grace", "linus"]
    updates = [event.data for event in server.events if event.name == "THREAD_MEMBERS_UPDATE"]
    assert [data["member_count"] for data in updates] == [1, 3]
    about = updates[1]["added_members"][0]
    assert about["member"]["user"]["username"] == "grace"
    assert about["join_timestamp"] > updates[0]["added_members"][0]["join_timestamp"]


async def test_the_bot_joins_a_thread_by_posting(server: DiscordSimulator, bot: RecordingClient) -> None:
    root = await server.post_message("ada", "general", "a root")
    started = await server.start_thread("ada", root, "a thread")
    await server.post_message("ada", started, "in here")
    while (received := await bot.next_message()).content != "in here":
        pass
    assert isinstance(received.channel, discord.Thread)
    assert received.channel.me is None
    await received.channel.send("so am I")
    await server.wait_for(lambda: received.channel.me is not None)  # type: ignore[union-attr]
    events = [event.name for event in server.events if event.name.startswith("THREAD")]
    assert events == ["THREAD_CREATE", "THREAD_MEMBERS_UPDATE", "THREAD_CREATE"]


async def test_a_mention_brings_the_bot_into_a_private_thread(server: DiscordSimulator, bot: RecordingClient) -> None:
    thread = await server.start_private_thread("ada", "general", "a secret")
    del thread.thread_members[server.bot_id]
    before = len(server.events)
    await server.post_message("ada", thread, "nobody else reads this")
    await server.post_message("ada", thread, f"<@{server.bot_id}>, come in")
    received = await bot.next_message()
    assert received.content == f"<@{server.bot_id}>, come in"
    events = [event.name for event in server.events[before:]]
    assert events == ["THREAD_MEMBERS_UPDATE", "THREAD_CREATE", "MESSAGE_CREATE"]


async def test_a_reopened_thread_is_followed_by_the_bots_member(server: DiscordSimulator, bot: RecordingClient) -> None:
    sent = await bot.get_simulator_channel(server, "general").send("shall we?")
    thread = await sent.create_thread(name="details")
    (listed_thread,) = server.threads("general")
    await thread.edit(archived=True)
    await thread.edit(archived=False)
    await server.archive_thread(listed_thread)
    await server.post_message("ada", listed_thread, "again")
    names = ("THREAD_UPDATE", "THREAD_MEMBER_UPDATE")
    events = [event for event in server.events if event.name in names]
    assert [event.name for event in events] == ["THREAD_UPDATE", *names, "THREAD_UPDATE", *names]
    assert events[-1].data["user_id"] == server.bot_id
