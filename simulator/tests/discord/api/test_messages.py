"""REST routes of messages in the local Discord, with discord.py."""

import datetime
import io
from dataclasses import replace
from typing import Any

import aiohttp
import discord
import pytest

from chatrig.discord import DiscordSimulator
from tests.discord.conftest import Connect, RecordingClient, call_route, create_intents, get_refusal


@pytest.fixture
async def bot(server: DiscordSimulator, connect: Connect) -> RecordingClient:
    return await connect(server)


async def test_a_mention_is_answered_by_a_message_with_edits(server: DiscordSimulator, bot: RecordingClient) -> None:
    await server.post_message("ada", "general", f"<@{server.bot_id}> who is there?")
    received = await bot.next_message()
    assert bot.user in received.mentions
    assert received.author.name == "ada"
    answer = await received.channel.send("…", reference=received)
    await answer.edit(content="only")
    await answer.edit(content="only us")
    question, reply = server.messages("general")
    assert [version.text for version in reply.versions] == ["…", "only", "only us"]
    assert reply.reply_to is question
    assert reply.edited
    assert not question.edited


async def test_allowed_mentions_limit_the_default_pings(server: DiscordSimulator, bot: RecordingClient) -> None:
    channel, ada, grace = (
        bot.get_simulator_channel(server, "general"),
        server.people["ada"].id,
        server.people["grace"].id,
    )
    text = f"<@{ada}> <@{grace}> <@&123> @everyone @here"
    nobody, one = discord.AllowedMentions.none(), discord.AllowedMentions(users=[discord.Object(ada)], everyone=False)
    for allowed in (None, nobody, one):
        await channel.send(text, allowed_mentions=allowed)
    by_default, none, only_ada = server.messages("general")
    assert by_default.text == "@Ada Lovelace @Grace Hopper <@&123> @everyone @here"
    assert by_default.pings == {ada, grace, "123", "everyone", "here"}
    assert none.pings == frozenset()
    assert only_ada.pings == {ada, "123"}


async def test_an_edit_pings_by_default(server: DiscordSimulator, bot: RecordingClient) -> None:
    channel, ada = bot.get_simulator_channel(server, "general"), server.people["ada"].id
    sent = await channel.send(f"<@{ada}>", allowed_mentions=discord.AllowedMentions.none())
    (message,) = server.messages("general")
    assert message.pings == frozenset()
    await sent.edit(view=discord.ui.View())
    assert message.versions[-1].pings == {ada}
    await sent.edit(content=f"<@{ada}>!", allowed_mentions=discord.AllowedMentions.none())
    assert message.versions[-1].pings == frozenset()


async def test_a_reply_pings_the_author_by_default(server: DiscordSimulator, bot: RecordingClient) -> None:
    await server.post_message("ada", "general", f"<@{server.bot_id}>")
    received = await bot.next_message()
    await received.reply("yes")
    await received.reply("yes", mention_author=False)
    _, calling, quiet = server.messages("general")
    assert calling.pings == {server.people["ada"].id}
    assert quiet.pings == frozenset()


async def test_everyone_is_not_pinged_without_the_permission(server: DiscordSimulator, bot: RecordingClient) -> None:
    server.permissions.discard("mention_everyone")
    await bot.get_simulator_channel(server, "general").send(f"@everyone <@{server.people['ada'].id}>")
    assert server.messages("general")[0].pings == {server.people["ada"].id}


async def test_an_enforced_nonce_prevents_a_second_message(server: DiscordSimulator, bot: RecordingClient) -> None:
    channel = bot.get_simulator_channel(server, "general")
    first = await channel.send("once", nonce="turn-1")
    second = await channel.send("once", nonce="turn-1")
    other = await channel.send("twice", nonce="turn-2")
    assert first.id == second.id != other.id
    assert [message.text for message in server.messages("general")] == ["once", "twice"]
    assert await get_refusal(channel.send("x", nonce="n" * 26)) == (400, 50035)


async def test_a_nonce_finds_the_message_of_a_lost_response(server: DiscordSimulator, bot: RecordingClient) -> None:
    channel = bot.get_simulator_channel(server, "general")
    server.faults.lose_response("POST /channels/{channel}/messages")
    with pytest.raises(aiohttp.ClientError):
        await channel.send("once", nonce="turn-1")
    assert server.calls[-1].status == 0
    found = await channel.send("once", nonce="turn-1")
    assert [message.id for message in server.messages("general")] == [str(found.id)]


async def test_size_limits_are_those_of_discord(server: DiscordSimulator, bot: RecordingClient) -> None:
    channel = bot.get_simulator_channel(server, "general")
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


async def test_unknown_and_foreign_messages_are_refused(server: DiscordSimulator, bot: RecordingClient) -> None:
    channel = bot.get_simulator_channel(server, "general")
    server.add_channel("secret", members=["ada"], bot=False)
    foreign = await channel.fetch_message(int((await server.post_message("ada", "general", "mine")).id))
    deleted = await channel.send("gone")
    await deleted.delete()
    assert await get_refusal(bot.fetch_channel(1)) == (404, 10003)
    assert await get_refusal(deleted.edit(content="back")) == (404, 10008)
    assert await get_refusal(foreign.edit(content="mine")) == (403, 50005)
    assert await get_refusal(foreign.delete()) == (403, 50013)
    assert await get_refusal(bot.fetch_channel(int(server.channels["secret"].id))) == (403, 50001)
    server.permissions.discard("send_messages")
    assert await get_refusal(channel.send("hello")) == (403, 50013)
    server.permissions.discard("view_channel")
    assert await get_refusal(channel.send("hello")) == (403, 50001)


async def test_files_are_sent_and_received(server: DiscordSimulator, bot: RecordingClient) -> None:
    sent = await bot.get_simulator_channel(server, "general").send(
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
        await bot.get_simulator_channel(server, "general").send(file=discord.File(io.BytesIO(b"x"), "a.md"))


async def test_history_after_a_message_has_the_later_ones(server: DiscordSimulator, bot: RecordingClient) -> None:
    messages = [await server.post_message("ada", "general", str(number)) for number in range(5)]
    await server.delete_message("ada", messages[3])
    after, channel = discord.Object(messages[1].id), bot.get_simulator_channel(server, "general")
    assert [m.content async for m in channel.history(after=after, limit=100)] == ["2", "4"]
    assert [m.content async for m in channel.history(limit=2)] == ["4", "2"]
    assert [m.content async for m in channel.history(before=after)] == ["0"]


@pytest.mark.parametrize(
    "route",
    [
        *(f"/channels/{{channel}}/messages?{name}=ada" for name in ("before", "after", "around")),
        "/channels/{channel}/users/@me/threads/archived/private?before=ada",
        *(f"/users/@me/guilds?{name}=ada" for name in ("before", "after")),
    ],
)
async def test_a_page_that_begins_or_ends_at_no_id_is_refused(
    server: DiscordSimulator, bot: RecordingClient, route: str
) -> None:
    path = route.format(channel=bot.get_simulator_channel(server, "general").id)
    status, error = await call_route(server, "GET", path)
    assert (status, error["code"]) == (400, 50035)
    assert "is not snowflake" in str(error["errors"])


async def test_history_has_no_content_without_the_intent(server: DiscordSimulator, connect: Connect) -> None:
    server.privileged_intents.discard("message_content")
    bot = await connect(server, intents=create_intents())
    await server.post_message("ada", "general", "psst", files={"a.txt": b"x"})
    await server.post_message("ada", "general", f"<@{server.bot_id}> hi")
    read = [m async for m in bot.get_simulator_channel(server, "general").history(oldest_first=True)]
    assert [(m.content, len(m.attachments)) for m in read] == [("", 0), (f"<@{server.bot_id}> hi", 0)]


async def test_typing_is_recorded_as_a_call(server: DiscordSimulator, bot: RecordingClient) -> None:
    async with bot.get_simulator_channel(server, "general").typing():
        pass
    assert [call.status for call in server.calls if call.route == "POST /channels/{channel}/typing"] == [204]


async def test_pins_are_listed_and_told_of(server: DiscordSimulator, bot: RecordingClient) -> None:
    channel = bot.get_simulator_channel(server, "general")
    first, second = [await channel.send(text) for text in ("one", "two")]
    assert await get_refusal(first.pin()) == (403, 50013)
    server.permissions.add("pin_messages")
    await first.pin()
    await second.pin()
    await second.pin()
    assert [pin.content async for pin in channel.pins()] == ["two", "one"]
    assert [pin.content async for pin in channel.pins(limit=1)] == ["two"]
    path = f"/channels/{channel.id}"
    status, page = await call_route(server, "GET", f"{path}/messages/pins?limit=1")
    assert (status, page["has_more"], page["items"][0]["message"]["pinned"]) == (200, True, True)
    before = page["items"][0]["pinned_at"].replace("+", "%2B")
    status, rest = await call_route(server, "GET", f"{path}/messages/pins?before={before}")
    assert [pin["message"]["content"] for pin in rest["items"]] == ["one"]
    _, newest = await call_route(server, "GET", f"{path}/pins")
    assert [pin["content"] for pin in newest] == ["two", "one"]
    notice = server.messages("general")[-1]
    assert (await call_route(server, "PUT", f"{path}/pins/{notice.id}"))[1]["code"] == 50021
    assert (await call_route(server, "GET", f"{path}/messages/pins?before=soon"))[1]["code"] == 50035
    await second.unpin()
    assert [pin.content async for pin in channel.pins()] == ["one"]
    updates = [event.data for event in server.events if event.name == "CHANNEL_PINS_UPDATE"]
    assert [data["channel_id"] for data in updates] == [str(channel.id)] * 3
    assert [message.type for message in server.messages("general")[2:]] == [6, 6]
    server.permissions.discard("read_message_history")
    assert [pin async for pin in channel.pins()] == []


async def test_messages_are_deleted_together(server: DiscordSimulator, bot: RecordingClient) -> None:
    server.permissions.add("manage_messages")
    channel = bot.get_simulator_channel(server, "general")
    messages = [await server.post_message("ada", "general", text) for text in ("one", "two", "three")]
    path = f"/channels/{channel.id}/messages/bulk-delete"
    assert (
        await call_route(server, "POST", path, {"messages": [messages[0].id, messages[1].id, "99999999999999999999"]})
    )[0] == 204
    assert server.messages("general") == messages[2:]
    deleted = next(event.data for event in server.events if event.name == "MESSAGE_DELETE_BULK")
    assert deleted["ids"] == [messages[0].id, messages[1].id]
    for ids, code in (([messages[2].id], 50035), ([messages[2].id] * 2, 50035), ([messages[2].id, "1"], 50034)):
        assert (await call_route(server, "POST", path, {"messages": ids}))[1]["code"] == code
    server.permissions.discard("manage_messages")
    assert (await call_route(server, "POST", path, {"messages": [messages[2].id, messages[1].id]}))[1]["code"] == 50013
    assert server.messages("general") == messages[2:]


async def test_moderators_delete_messages_of_others(server: DiscordSimulator, bot: RecordingClient) -> None:
    foreign = await bot.get_simulator_channel(server, "general").fetch_message(
        int((await server.post_message("ada", "general", "mine")).id)
    )
    private = await server.post_message("ada", server.open_dm("ada"), "mine")
    server.permissions.add("manage_messages")
    await foreign.delete()
    assert server.messages("general") == []
    assert (await call_route(server, "DELETE", f"/channels/{private.channel.id}/messages/{private.id}"))[1][
        "code"
    ] == 50003


async def test_a_message_of_an_announcement_channel_is_published_once(
    server: DiscordSimulator, bot: RecordingClient
) -> None:
    server.permissions.add("manage_channels")
    news = await bot.guilds[0].create_text_channel("news", news=True)
    sent = await news.send("read this")
    await sent.publish()
    assert server.messages(str(news.id))[0].flags == 1
    assert await get_refusal(sent.publish()) == (400, 40033)
    message = await bot.get_simulator_channel(server, "general").send("hello")
    assert await get_refusal(message.publish()) == (400, 50024)


async def test_a_poll_has_votes_until_it_ends(server: DiscordSimulator, connect: Connect) -> None:
    bot = await connect(server, intents=create_intents("message_content", "guild_polls"))
    poll = discord.Poll("Which?", duration=datetime.timedelta(hours=2)).add_answer(text="this", emoji="👍")
    sent = await bot.get_simulator_channel(server, "general").send(poll=poll.add_answer(text="that"))
    (message,) = server.messages("general")
    assert sent.poll.expires_at - sent.created_at < datetime.timedelta(hours=2, minutes=1)
    await server.vote("ada", message, 1)
    await server.vote("grace", message, 2)
    await server.vote("ada", message, 2)
    votes = [(event.name, event.data["answer_id"]) for event in server.events if "POLL" in event.name]
    added, removed = "MESSAGE_POLL_VOTE_ADD", "MESSAGE_POLL_VOTE_REMOVE"
    assert votes == [(added, 1), (added, 2), (removed, 1), (added, 2)]
    fetched = await sent.fetch()
    assert [answer.vote_count for answer in fetched.poll.answers] == [0, 2]
    assert {user.name async for user in fetched.poll.get_answer(2).voters()} == {"ada", "grace"}
    assert await get_refusal(sent.edit(content="x")) == (400, 520003)
    ended = await sent.end_poll()
    assert ended.poll.is_finalized()
    with pytest.raises(ValueError, match="the poll is over"):
        await server.vote("linus", message, 1)
    path = f"/channels/{sent.channel.id}/polls"
    other = await server.post_message("ada", "general", "hello")
    assert (await call_route(server, "POST", f"{path}/{other.id}/expire"))[1]["code"] == 520006
    question = await server.post_message("ada", "general", "", poll=["Which?", "this"])
    assert (await call_route(server, "POST", f"{path}/{question.id}/expire"))[1]["code"] == 50005


@pytest.mark.parametrize(
    ("poll", "field"),
    [
        ({"question": {"text": "?"}, "answers": []}, "answers"),
        ({"question": {"text": "?"}, "answers": [{"poll_media": {}}]}, "answers"),
        ({"question": {"text": "?"}, "answers": [{"poll_media": {"text": "x" * 56}}]}, "answers"),
        ({"question": {}, "answers": [{"poll_media": {"text": "x"}}]}, "question"),
        ({"question": {"text": "?"}, "answers": [{"poll_media": {"text": "x"}}], "duration": 769}, "duration"),
    ],
)
async def test_a_wrong_poll_is_refused(server: DiscordSimulator, poll: Any, field: str) -> None:
    path = f"/channels/{server.channels['general'].id}/messages"
    status, reply = await call_route(server, "POST", path, {"poll": poll})
    assert (status, reply["code"], list(reply["errors"]["poll"])) == (400, 50035, [field])


async def test_a_sticker_of_the_server_is_content(server: DiscordSimulator, bot: RecordingClient) -> None:
    await server.post_message("ada", "general", "", stickers=["Wave"])
    (sticker,) = await bot.guilds[0].fetch_stickers()
    channel = bot.get_simulator_channel(server, "general")
    sent = await channel.send(stickers=[sticker])
    assert [item.name for item in sent.stickers] == ["Wave"]
    assert await get_refusal(channel.send(stickers=[discord.Object(1)])) == (400, 50081)
    assert await get_refusal(bot.fetch_sticker(1)) == (404, 10060)


async def test_a_forward_is_a_snapshot(server: DiscordSimulator, bot: RecordingClient) -> None:
    message = await server.post_message("ada", "general", "the disk is full")
    received = await bot.next_message()
    random = bot.get_simulator_channel(server, "random")
    forward = await received.forward(random)
    await server.edit_message("ada", message, "never mind")
    forwarded = await random.fetch_message(forward.id)
    assert (forwarded.content, forwarded.message_snapshots[0].content, forwarded.flags.value) == (
        "",
        "the disk is full",
        1 << 14,
    )
    reference = {"type": 1, "channel_id": message.channel.id, "message_id": message.id}
    path = f"/channels/{random.id}/messages"
    for body, code in (
        ({"content": "look", "message_reference": reference}, 50035),
        ({"message_reference": {"type": 1, "message_id": message.id}}, 50035),
        ({"message_reference": reference | {"message_id": "1"}}, 10008),
        ({"message_reference": reference | {"channel_id": "1"}}, 10003),
    ):
        assert (await call_route(server, "POST", path, body))[1]["code"] == code
    server.privileged_intents.discard("message_content")
    path = f"/channels/{message.channel.id}/messages"
    assert (await call_route(server, "POST", path, {"message_reference": reference}))[1]["code"] == 160014


async def test_the_type_of_a_file_is_that_of_its_name(server: DiscordSimulator) -> None:
    form = aiohttp.FormData()
    form.add_field("files[0]", b"data", filename="a.png", content_type="application/octet-stream")
    headers = {"Authorization": f"Bot {server.bot_token}"}
    url = f"{server.api_url}/channels/{server.channels['general'].id}/messages"
    async with aiohttp.ClientSession(headers=headers) as session, session.post(url, data=form) as response:
        assert [file["content_type"] for file in (await response.json())["attachments"]] == ["image/png"]


async def test_stickers_of_a_server_are_refused_in_dms(server: DiscordSimulator, bot: RecordingClient) -> None:
    await server.post_message("ada", "general", "", stickers=["Wave"])
    (sticker,) = await bot.guilds[0].fetch_stickers()
    dm = await (await bot.fetch_user(int(server.people["ada"].id))).create_dm()
    refused: list[Any] = [discord.Object(1), sticker]
    for sent in refused:
        assert await get_refusal(dm.send(stickers=[sent])) == (400, 50081)
    assert [message async for message in dm.history()] == []


async def test_an_expired_poll_has_no_more_votes(server: DiscordSimulator, bot: RecordingClient) -> None:
    poll = discord.Poll("Which?", duration=datetime.timedelta(hours=1)).add_answer(text="this")
    sent = await bot.get_simulator_channel(server, "general").send(poll=poll)
    (message,) = server.messages("general")
    await server.vote("ada", message, 1)
    assert message.content.poll is not None
    expired = replace(message.content.poll, expires_at=datetime.datetime.now(datetime.UTC))
    message.content = replace(message.content, poll=expired)
    for name, voted in (("grace", True), ("ada", False)):
        with pytest.raises(ValueError, match="the poll is over"):
            await server.vote(name, message, 1, voted=voted)
    assert (await sent.fetch()).poll.get_answer(1).vote_count == 1
