"""User actions, subscriptions and waiting in the local Discord."""

import asyncio
from contextlib import aclosing

import discord
import pytest

from chatrig.discord import DiscordSimulator, GuildChange
from chatrig.discord.api.requests import DiscordError
from tests.discord.conftest import Connect


async def test_each_subscriber_receives_all_later_changes(server: DiscordSimulator, connect: Connect) -> None:
    bot = await connect(server)
    channel = bot.get_simulator_channel(server, "general")
    first = server.changes()
    question = await server.post_message("ada", "general", "hello")
    second = server.changes()
    received = await bot.next_message()
    sent = await channel.send("…")
    await sent.edit(content="hi")
    await received.add_reaction("👋")
    assert bot.user is not None
    await received.remove_reaction("👋", bot.user)
    await sent.delete()
    kinds = ["posted", "updated", "reaction_added", "reaction_removed", "deleted"]
    async with aclosing(first), aclosing(second), asyncio.timeout(30):
        seen_by_first = [await anext(first) for _ in range(6)]
        seen_by_second = [await anext(second) for _ in range(5)]
    assert [change.kind for change in seen_by_first] == ["posted", *kinds]
    assert [change.kind for change in seen_by_second] == kinds
    assert seen_by_first[0].message is question
    assert seen_by_first[1].message is seen_by_second[0].message


async def test_the_changes_end_with_the_simulator() -> None:
    async with DiscordSimulator() as server:
        changes = server.changes()
        await server.post_message("ada", "general", "hello")

    async def read() -> list[GuildChange]:
        return [change async for change in changes]

    assert len(await asyncio.wait_for(read(), 30)) == 1


async def test_a_timeout_describes_the_simulators_state(server: DiscordSimulator) -> None:
    await server.post_message("ada", "general", "hello there")
    with pytest.raises(TimeoutError, match="hello there"):
        await server.wait_for(lambda: server.calls, timeout=0.05)


async def test_users_edit_and_delete_only_their_own_messages(server: DiscordSimulator) -> None:
    message = await server.post_message("ada", "general", "helo")
    with pytest.raises(ValueError, match="Only the author"):
        await server.edit_message("grace", message, "hello")
    await server.edit_message("ada", message, "hello")
    assert [version.text for version in message.versions] == ["helo", "hello"]
    assert message.edited
    await server.delete_message("ada", message)
    with pytest.raises(ValueError, match="until it is deleted"):
        await server.delete_message("ada", message)
    assert server.messages("general") == []
    assert server.messages("general", deleted=True) == [message]


async def test_users_post_only_in_channels_they_can_see(server: DiscordSimulator) -> None:
    server.add_channel("secret", members=["ada"])
    with pytest.raises(ValueError, match="grace is not in secret"):
        await server.post_message("grace", "secret", "hello")
    with pytest.raises(ValueError, match="general is not a forum"):
        await server.start_forum_post("ada", "general", "a post", "no forum")


async def test_unknown_and_duplicate_names_are_reported(server: DiscordSimulator) -> None:
    with pytest.raises(ValueError, match="no user nobody"):
        await server.post_message("nobody", "general", "hello")
    with pytest.raises(ValueError, match="no channel nowhere"):
        await server.post_message("ada", "nowhere", "hello")
    with pytest.raises(ValueError, match="ada already"):
        server.add_user("ada")
    with pytest.raises(ValueError, match="general already"):
        server.add_channel("general")


async def test_a_message_has_its_visible_text_and_all_pings(server: DiscordSimulator, connect: Connect) -> None:
    bot, ada = await connect(server), server.people["ada"].id
    sent = await bot.get_simulator_channel(server, "general").send(
        f"<@{ada}> see <#{server.channels['random'].id}> <@1>"
    )
    (message,) = server.messages("general")
    assert message.text == "@Ada Lovelace see #random <@1>"
    await sent.edit(content="no ping")
    assert message.versions[-1].pings == frozenset()
    assert message.pings == {ada}


async def test_a_server_has_counts_on_request(server: DiscordSimulator, connect: Connect) -> None:
    bot = await connect(server)
    (guild,) = [guild async for guild in bot.fetch_guilds(with_counts=True)]
    assert (guild.approximate_member_count, guild.approximate_presence_count) == (4, 4)
    (guild,) = [guild async for guild in bot.fetch_guilds(with_counts=False)]
    assert guild.approximate_member_count is None


async def test_deleting_a_thread_keeps_the_channel_of_the_same_name(server: DiscordSimulator) -> None:
    thread = await server.start_thread("ada", await server.post_message("ada", "general", "hello"), "random")
    random = server.channels["random"]
    await server.delete_channel(thread)
    assert server.channels["random"] is random
    await server.delete_channel("random")
    assert "random" not in server.channels


async def test_users_who_left_post_in_dms_only(server: DiscordSimulator) -> None:
    thread = await server.start_thread("ada", await server.post_message("ada", "general", "hello"), "a thread")
    server.leave_guild("ada")
    for channel in ("general", thread):
        with pytest.raises(ValueError, match="ada is not in"):
            await server.post_message("ada", channel, "hello")
    await server.post_message("ada", server.open_dm("ada"), "hello")


async def test_a_forum_post_has_tags_and_files(server: DiscordSimulator, connect: Connect) -> None:
    bot = await connect(server)
    post = await server.start_forum_post(
        "ada", "ideas", "a post", "look", tags=["new", "big"], files={"a.txt": b"text"}
    )
    received = await bot.next_message()
    assert isinstance(received.channel, discord.Thread)
    assert [tag.name for tag in received.channel.applied_tags] == ["new", "big"]
    assert await received.attachments[0].read() == b"text"
    other = await server.start_forum_post("ada", "ideas", "another", "look", tags=["big"])
    assert other.applied_tags == [post.applied_tags[1]]


async def test_other_bots_post_embeds_components_and_files(server: DiscordSimulator, connect: Connect) -> None:
    bot = await connect(server)
    await server.post_as_other_bot("robot", "general", "beep", embeds=[{"title": "Alert"}], files={"a.txt": b"text"})
    received = await bot.next_message()
    assert (received.content, received.embeds[0].type, received.embeds[0].title) == ("beep", "rich", "Alert")
    assert await received.attachments[0].read() == b"text"
    gallery = {"type": 12, "items": [{"media": {"url": "attachment://cat.png"}, "description": "a cat"}]}
    container = {"type": 17, "components": [{"type": 10, "content": "Order 77"}, gallery]}
    await server.post_as_other_bot("robot", "general", "", components=[container], files={"cat.png": b"\x89PNG"})
    received = await bot.next_message()
    (shown,) = received.components
    assert received.flags.components_v2
    assert isinstance(shown, discord.Container)
    text, pictures = shown.children
    assert isinstance(text, discord.TextDisplay)
    assert text.content == "Order 77"
    assert isinstance(pictures, discord.MediaGalleryComponent)
    assert pictures.items[0].media.attachment_id == received.attachments[0].id
    with pytest.raises(DiscordError):
        await server.post_as_other_bot("robot", "general", "text", components=[container])


async def test_a_forward_of_a_forward_has_the_first_message(server: DiscordSimulator, connect: Connect) -> None:
    bot = await connect(server)
    first = await server.post_message("ada", "general", "look", files={"a.txt": b"text"}, stickers=["Wave"])
    last = await server.forward_message("ada", await server.forward_message("ada", first, "general"), "random")
    await server.delete_message("ada", first)
    received = await bot.get_simulator_channel(server, "random").fetch_message(int(last.id))
    (snapshot,) = received.message_snapshots
    assert (snapshot.content, [sticker.name for sticker in snapshot.stickers]) == ("look", ["Wave"])
    assert await snapshot.attachments[0].read() == b"text"
