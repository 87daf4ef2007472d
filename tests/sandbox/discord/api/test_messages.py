"""REST routes of messages, with discord.py."""

import io
from typing import Any

import aiohttp
import discord
import pytest

from sandbox.discord import DiscordSandbox
from tests.sandbox.discord.conftest import Bot, Connect, create_intents


@pytest.fixture
async def bot(server: DiscordSandbox, connect: Connect) -> Bot:
    return await connect(server)


async def get_refusal(call: Any) -> tuple[int, int]:
    """Return the status and code of a refused call."""
    with pytest.raises(discord.HTTPException) as refused:
        await call
    return refused.value.status, refused.value.code


async def test_a_mention_is_answered_by_a_message_with_edits(server: DiscordSandbox, bot: Bot) -> None:
    await server.post_message("ada", "general", f"<@{server.bot_id}> who is there?")
    heard = await bot.next_message()
    assert bot.user in heard.mentions
    assert heard.author.name == "ada"
    answer = await heard.channel.send("…", reference=heard)
    await answer.edit(content="only")
    await answer.edit(content="only us")
    question, reply = server.messages("general")
    assert [version.text for version in reply.versions] == ["…", "only", "only us"]
    assert reply.reply_to is question
    assert reply.edited
    assert not question.edited


async def test_allowed_mentions_limit_the_default_pings(server: DiscordSandbox, bot: Bot) -> None:
    channel, ada, grace = bot.get_sandbox_channel(server, "general"), server.people["ada"].id, server.people["grace"].id
    text = f"<@{ada}> <@{grace}> <@&123> @everyone @here"
    nobody, one = discord.AllowedMentions.none(), discord.AllowedMentions(users=[discord.Object(ada)], everyone=False)
    for allowed in (None, nobody, one):
        await channel.send(text, allowed_mentions=allowed)
    by_default, none, only_ada = server.messages("general")
    assert by_default.text == "@Ada Lovelace @Grace Hopper <@&123> @everyone @here"
    assert by_default.pings == {ada, grace, "123", "everyone", "here"}
    assert none.pings == frozenset()
    assert only_ada.pings == {ada, "123"}


async def test_an_edit_pings_by_default(server: DiscordSandbox, bot: Bot) -> None:
    channel, ada = bot.get_sandbox_channel(server, "general"), server.people["ada"].id
    sent = await channel.send(f"<@{ada}>", allowed_mentions=discord.AllowedMentions.none())
    (message,) = server.messages("general")
    assert message.pings == frozenset()
    await sent.edit(view=discord.ui.View())
    assert message.versions[-1].pings == {ada}
    await sent.edit(content=f"<@{ada}>!", allowed_mentions=discord.AllowedMentions.none())
    assert message.versions[-1].pings == frozenset()


async def test_a_reply_pings_the_author_by_default(server: DiscordSandbox, bot: Bot) -> None:
    await server.post_message("ada", "general", f"<@{server.bot_id}>")
    heard = await bot.next_message()
    await heard.reply("yes")
    await heard.reply("yes", mention_author=False)
    _, calling, quiet = server.messages("general")
    assert calling.pings == {server.people["ada"].id}
    assert quiet.pings == frozenset()


async def test_everyone_is_not_pinged_without_the_permission(server: DiscordSandbox, bot: Bot) -> None:
    server.permissions.discard("mention_everyone")
    await bot.get_sandbox_channel(server, "general").send(f"@everyone <@{server.people['ada'].id}>")
    assert server.messages("general")[0].pings == {server.people["ada"].id}


async def test_an_enforced_nonce_prevents_a_second_message(server: DiscordSandbox, bot: Bot) -> None:
    channel = bot.get_sandbox_channel(server, "general")
    first = await channel.send("once", nonce="turn-1")
    again = await channel.send("once", nonce="turn-1")
    other = await channel.send("twice", nonce="turn-2")
    assert first.id == again.id != other.id
    assert [message.text for message in server.messages("general")] == ["once", "twice"]
    assert await get_refusal(channel.send("x", nonce="n" * 26)) == (400, 50035)


async def test_a_nonce_finds_the_message_of_a_lost_response(server: DiscordSandbox, bot: Bot) -> None:
    channel = bot.get_sandbox_channel(server, "general")
    server.faults.lose_response("POST /channels/{channel}/messages")
    with pytest.raises(aiohttp.ClientError):
        await channel.send("once", nonce="turn-1")
    assert server.calls[-1].status == 0
    found = await channel.send("once", nonce="turn-1")
    assert [message.id for message in server.messages("general")] == [str(found.id)]


async def test_size_limits_are_those_of_discord(server: DiscordSandbox, bot: Bot) -> None:
    channel = bot.get_sandbox_channel(server, "general")
    sent = await channel.send("x" * 2000)
    assert await get_refusal(channel.send("x" * 2001)) == (400, 50035)
    assert await get_refusal(sent.edit(content="x" * 2001)) == (400, 50035)
    assert await get_refusal(channel.send("  \n")) == (400, 50006)
    assert await get_refusal(channel.send(embed=discord.Embed(description="x" * 4097))) == (400, 50035)
    assert await get_refusal(channel.send(file=discord.File(io.BytesIO(b"x" * (10 * 2**20 + 1)), "big"))) == (
        413,
        40005,
    )
    assert len(server.messages("general")) == 1


async def test_unknown_and_foreign_messages_are_refused(server: DiscordSandbox, bot: Bot) -> None:
    channel = bot.get_sandbox_channel(server, "general")
    server.add_channel("secret", members=["ada"], bot=False)
    foreign = await channel.fetch_message(int((await server.post_message("ada", "general", "mine")).id))
    gone = await channel.send("gone")
    await gone.delete()
    assert await get_refusal(bot.fetch_channel(1)) == (404, 10003)
    assert await get_refusal(gone.edit(content="back")) == (404, 10008)
    assert await get_refusal(foreign.edit(content="mine")) == (403, 50005)
    assert await get_refusal(foreign.delete()) == (403, 50013)
    assert await get_refusal(bot.fetch_channel(int(server.channels["secret"].id))) == (403, 50001)
    server.permissions.discard("send_messages")
    assert await get_refusal(channel.send("hello")) == (403, 50013)
    server.permissions.discard("view_channel")
    assert await get_refusal(channel.send("hello")) == (403, 50001)


async def test_files_are_sent_and_received(server: DiscordSandbox, bot: Bot) -> None:
    sent = await bot.get_sandbox_channel(server, "general").send(
        "all of it", file=discord.File(io.BytesIO(b"# All"), "answer.md")
    )
    assert await sent.attachments[0].read() == b"# All"
    (message,) = server.messages("general")
    assert [(file.name, file.data) for file in message.content.attachments] == [("answer.md", b"# All")]
    assert server.calls[-1].files == ["answer.md"]

    await server.post_message("ada", server.open_dm("ada"), "read this", files={"notes.txt": b"hello"})
    (attachment,) = (await bot.next_message()).attachments
    assert (attachment.filename, attachment.content_type, attachment.size) == ("notes.txt", "text/plain", 5)
    assert await attachment.read() == b"hello"
    await sent.delete()
    with pytest.raises(discord.NotFound):
        await sent.attachments[0].read()
    server.permissions.discard("attach_files")
    with pytest.raises(discord.Forbidden):
        await bot.get_sandbox_channel(server, "general").send(file=discord.File(io.BytesIO(b"x"), "a.md"))


async def test_history_after_a_message_has_the_later_ones(server: DiscordSandbox, bot: Bot) -> None:
    said = [await server.post_message("ada", "general", str(number)) for number in range(5)]
    await server.delete_message("ada", said[3])
    after, channel = discord.Object(said[1].id), bot.get_sandbox_channel(server, "general")
    assert [m.content async for m in channel.history(after=after, limit=100)] == ["2", "4"]
    assert [m.content async for m in channel.history(limit=2)] == ["4", "2"]
    assert [m.content async for m in channel.history(before=after)] == ["0"]


async def test_history_has_no_content_without_the_intent(server: DiscordSandbox, connect: Connect) -> None:
    server.privileged_intents.discard("message_content")
    bot = await connect(server, intents=create_intents())
    await server.post_message("ada", "general", "psst", files={"a.txt": b"x"})
    await server.post_message("ada", "general", f"<@{server.bot_id}> hi")
    read = [m async for m in bot.get_sandbox_channel(server, "general").history(oldest_first=True)]
    assert [(m.content, len(m.attachments)) for m in read] == [("", 0), (f"<@{server.bot_id}> hi", 0)]


async def test_reactions_are_added_and_removed(server: DiscordSandbox, bot: Bot) -> None:
    message = await server.post_message("ada", "general", "look")
    heard = await bot.next_message()
    await server.add_reaction("grace", message, "👀")
    await heard.add_reaction("👀")
    assert message.reactions == {"👀": [server.people["grace"].id, server.bot_id]}
    await heard.remove_reaction("👀", discord.Object(server.bot_id))
    assert message.reactions == {"👀": [server.people["grace"].id]}


async def test_typing_is_recorded_as_a_call(server: DiscordSandbox, bot: Bot) -> None:
    async with bot.get_sandbox_channel(server, "general").typing():
        pass
    assert [call.status for call in server.calls if call.route == "POST /channels/{channel}/typing"] == [204]
