"""Gateway sessions of the local Discord: start, resume, invalidation and events."""

import asyncio
import json
import zlib
from time import monotonic
from typing import Any

import aiohttp
import discord
import pytest

from chatrig.discord import DiscordSimulator
from chatrig.discord.events.gateway import ZSTD_MODULE
from tests.discord.conftest import Connect, RecordingClient, create_intents, patch_addresses


@pytest.fixture
async def bot(server: DiscordSimulator, connect: Connect) -> RecordingClient:
    return await connect(server)


async def receive_texts(bot: RecordingClient, number: int) -> list[str]:
    return [(await bot.next_message()).content for _ in range(number)]


async def test_a_client_receives_the_server_and_its_channels(server: DiscordSimulator, bot: RecordingClient) -> None:
    (guild,) = bot.guilds
    assert (str(guild.id), guild.me.name) == (server.guild_id, "bot")
    assert [channel.name for channel in guild.channels] == ["general", "random", "ideas"]
    (session,) = server.sessions
    assert session.intents == bot.intents.value
    assert session.properties["browser"] == "discord.py"
    assert server.connection_count == 1


async def test_the_bots_own_role_can_be_mentioned(server: DiscordSimulator, bot: RecordingClient) -> None:
    (guild,) = bot.guilds
    message = await server.post_message("ada", "general", f"<@&{server.bot_role_id}> hello")
    received = await bot.next_message()
    assert guild.self_role is not None
    assert str(guild.self_role.id) == server.bot_role_id
    assert received.role_mentions == [guild.self_role]
    assert message.text == "@bot hello"


async def test_heartbeats_are_counted_and_acknowledged(connect: Connect) -> None:
    async with DiscordSimulator(speed=1000) as server:
        bot = await connect(server)
        await server.wait_for(lambda: server.sessions[0].heartbeat_count >= 3)
        assert bot.latency < 1
        await bot.close()


async def test_missed_events_are_sent_on_resume(server: DiscordSimulator, bot: RecordingClient) -> None:
    await server.post_message("ada", "general", "before")
    assert await receive_texts(bot, 1) == ["before"]
    await server.drop_sockets()
    assert server.connection_count == 0
    await server.post_message("ada", "general", "meanwhile")
    await asyncio.wait_for(bot.resumed.wait(), 30)
    await server.post_message("ada", "general", "after")
    assert await receive_texts(bot, 2) == ["meanwhile", "after"]
    (session,) = server.sessions
    assert session.resume_count == 1


async def test_a_client_resumes_after_a_reconnect_request(server: DiscordSimulator, bot: RecordingClient) -> None:
    await server.refresh_sockets()
    await server.post_message("ada", "general", "meanwhile")
    await asyncio.wait_for(bot.resumed.wait(), 30)
    assert await receive_texts(bot, 1) == ["meanwhile"]
    assert len(server.sessions) == 1


async def test_a_frozen_connection_is_detected_by_missing_acks(connect: Connect) -> None:
    async with DiscordSimulator(speed=400) as server:
        bot = await connect(server, bot=RecordingClient(create_intents("message_content"), heartbeat_timeout=0.5))
        await server.freeze_sockets()
        await server.post_message("ada", "general", "into the void")
        await asyncio.wait_for(bot.resumed.wait(), 30)
        assert await receive_texts(bot, 1) == ["into the void"]
        await bot.close()


async def test_a_refused_resume_starts_a_session_without_missed_events(
    server: DiscordSimulator, bot: RecordingClient
) -> None:
    server.faults.refuse_resumes(1)
    await server.drop_sockets()
    await server.post_message("ada", "general", "lost")
    await server.wait_for(lambda: len(server.sessions) == 2 and server.connection_count)
    await server.post_message("ada", "general", "heard")
    assert await receive_texts(bot, 1) == ["heard"]
    channel = bot.get_simulator_channel(server, "general")
    assert [m.content async for m in channel.history(oldest_first=True)] == ["lost", "heard"]


async def test_only_a_resumable_invalid_session_is_resumed(server: DiscordSimulator, bot: RecordingClient) -> None:
    await server.invalidate_sessions(resumable=True)
    await asyncio.wait_for(bot.resumed.wait(), 30)
    assert len(server.sessions) == 1
    await server.invalidate_sessions()
    await server.wait_for(lambda: len(server.sessions) == 2 and server.connection_count)
    assert server.connection_count == 1


async def test_an_expired_session_cannot_be_resumed(
    server: DiscordSimulator, bot: RecordingClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chatrig.discord.events.gateway.SESSION_LIFETIME_SECONDS", -1)
    await server.drop_sockets()
    await server.wait_for(lambda: len(server.sessions) == 2 and server.connection_count)
    assert bot.events == ["ready"]


async def test_latency_delays_events_in_order(server: DiscordSimulator, bot: RecordingClient) -> None:
    server.faults.set_latency(1.0)
    began = monotonic()
    for number in range(5):
        await server.post_message("ada", "general", str(number))
    assert await receive_texts(bot, 5) == ["0", "1", "2", "3", "4"]
    assert 1.0 <= monotonic() - began < 4.5


async def test_refused_handshakes_are_retried(server: DiscordSimulator, bot: RecordingClient) -> None:
    server.faults.refuse_handshakes(1)
    await server.drop_sockets()
    await asyncio.wait_for(bot.resumed.wait(), 30)
    assert server.connection_count == 1


async def test_events_have_no_content_without_the_intent(server: DiscordSimulator, connect: Connect) -> None:
    bot = await connect(server, intents=create_intents())
    await server.post_message("ada", "general", "psst", files={"a.txt": b"x"})
    received = await bot.next_message()
    assert (received.content, received.attachments) == ("", [])
    await server.post_message("ada", "general", f"<@{server.bot_id}> hi")
    await server.post_message("ada", server.open_dm("ada"), "hi")
    assert await receive_texts(bot, 2) == [f"<@{server.bot_id}> hi", "hi"]


@pytest.mark.parametrize("compression", ["zlib-stream", "zstd-stream"])
async def test_a_connection_is_one_compressed_stream(server: DiscordSimulator, compression: str) -> None:
    is_zlib = compression == "zlib-stream"
    decompressor = zlib.decompressobj() if is_zlib else pytest.importorskip(ZSTD_MODULE).ZstdDecompressor()
    async with (
        aiohttp.ClientSession() as session,
        session.ws_connect(f"{server.gateway_url}?v=10&encoding=json&compress={compression}") as socket,
    ):

        async def receive() -> Any:
            return json.loads(decompressor.decompress((await socket.receive(30)).data))

        assert (await receive())["op"] == 10
        await socket.send_json({"op": 2, "d": {"token": server.bot_token, "intents": 1 << 9}})
        assert (await receive())["t"] == "READY"
        await server.post_message("ada", "general", "hello")
        assert (await receive())["t"] == "MESSAGE_CREATE"


@pytest.mark.parametrize("compression", ["zstd-stream", "gzip"])
async def test_an_unavailable_compression_closes_with_the_reason(
    server: DiscordSimulator, monkeypatch: pytest.MonkeyPatch, compression: str
) -> None:
    monkeypatch.setattr("chatrig.discord.events.gateway.ZSTD_MODULE", "no_such_package")
    async with (
        aiohttp.ClientSession() as session,
        session.ws_connect(f"{server.gateway_url}?compress={compression}") as socket,
    ):
        closed = await socket.receive(30)
        assert (closed.type, closed.data) == (aiohttp.WSMsgType.CLOSE, 4012)
        assert ("no_such_package" if compression == "zstd-stream" else "gzip") in str(closed.extra)


async def test_a_client_may_resume_on_the_connection_of_an_invalid_session(server: DiscordSimulator) -> None:
    async with aiohttp.ClientSession() as session:
        socket = await open_socket(session, server)
        await socket.send_json({"op": 2, "d": {"token": server.bot_token, "intents": 1 << 9}})
        ready = await receive_payload(socket)
        await server.invalidate_sessions(resumable=True)
        assert (await receive_payload(socket))["d"] is True
        await server.post_message("ada", "general", "missed")
        resume = {"token": server.bot_token, "session_id": ready["d"]["session_id"], "seq": ready["s"]}
        await socket.send_json({"op": 6, "d": resume})
        assert [(await receive_payload(socket))["t"] for _ in range(2)] == ["MESSAGE_CREATE", "RESUMED"]
        await socket.close()


async def test_a_disabled_intent_is_refused(server: DiscordSimulator, monkeypatch: pytest.MonkeyPatch) -> None:
    server.privileged_intents.discard("message_content")
    patch_addresses(server, monkeypatch)
    bot = RecordingClient(create_intents("message_content"))
    with pytest.raises(discord.PrivilegedIntentsRequired):
        await asyncio.wait_for(bot.start(server.bot_token), 30)
    await bot.close()
    assert server.sessions == []


async def test_events_need_an_intent_and_a_visible_channel(server: DiscordSimulator, connect: Connect) -> None:
    bot = await connect(server, intents=create_intents("message_content"))
    server.add_channel("secret", members=["ada"], bot=False)
    message = await server.post_message("ada", "secret", "hidden")
    await server.add_reaction("ada", message, "👋")
    received = await server.post_message("ada", "general", "seen")
    await server.add_reaction("ada", received, "👋")
    assert await receive_texts(bot, 1) == ["seen"]
    assert {event.name for event in server.events} == {"READY", "GUILD_CREATE", "CHANNEL_CREATE", "MESSAGE_CREATE"}


async def test_events_include_own_bot_and_system_messages(server: DiscordSimulator, bot: RecordingClient) -> None:
    sent = await bot.get_simulator_channel(server, "general").send("mine")
    await sent.edit(content="mine, changed")
    await sent.delete()
    await server.join_guild("alan")
    await server.pin_message("ada", await server.post_message("ada", "general", "hello"))
    await server.post_as_other_bot("robot", "general", "beep")
    await server.post_as_other_bot("hook", "general", "beep", webhook=True)
    events = [event.name for event in server.events if event.name.startswith("MESSAGE")]
    assert events[:3] == ["MESSAGE_CREATE", "MESSAGE_UPDATE", "MESSAGE_DELETE"]
    joined, first, pinned, robot, hook = [await bot.next_message() for _ in range(5)]
    assert (joined.is_system(), first.is_system(), pinned.is_system()) == (True, False, True)
    assert (robot.author.bot, robot.webhook_id, bool(hook.webhook_id)) == (True, None, True)


async def receive_payload(socket: aiohttp.ClientWebSocketResponse) -> Any:
    return json.loads((await socket.receive(30)).data)


async def open_socket(session: aiohttp.ClientSession, server: DiscordSimulator) -> aiohttp.ClientWebSocketResponse:
    socket = await session.ws_connect(server.gateway_url + "?v=10&encoding=json")
    assert (await receive_payload(socket))["op"] == 10
    return socket


@pytest.mark.parametrize(
    ("frames", "code"),
    [
        (["{"], 4002),
        ([{"op": 2, "d": {"token": "x" * 5000, "intents": 0}}], 4002),
        ([{"op": 2, "d": {"token": 1}}], 4002),
        ([{"op": 6, "d": None}], 4002),
        ([{"op": 3, "d": {}}], 4003),
        ([{"op": 2, "d": {"token": "wrong", "intents": 0}}], 4004),
        ([{"op": 2, "d": {"token": "", "intents": 1 << 30}}], 4013),
        ([{"op": 2, "d": {"token": "", "intents": 0}}, {"op": 2, "d": {"token": "", "intents": 0}}], 4005),
        ([{"op": 2, "d": {"token": "", "intents": 0}}, {"op": 99}], 4001),
        ([{"op": 1, "d": None}] * 121, 4008),
    ],
)
async def test_protocol_errors_have_close_codes(server: DiscordSimulator, frames: list[Any], code: int) -> None:
    async with aiohttp.ClientSession() as session:
        socket = await open_socket(session, server)
        for frame in frames:
            if isinstance(frame, dict) and isinstance(frame.get("d"), dict) and frame["d"].get("token") == "":
                frame["d"]["token"] = server.bot_token
            await socket.send_str(frame if isinstance(frame, str) else json.dumps(frame))
        async with asyncio.timeout(30):
            async for _ in socket:
                pass
        assert socket.close_code == code


async def test_a_closed_session_cannot_be_resumed(server: DiscordSimulator) -> None:
    async with aiohttp.ClientSession() as session:
        for code, op in ((4000, 0), (1000, 9)):
            socket = await open_socket(session, server)
            await socket.send_json({"op": 2, "d": {"token": server.bot_token, "intents": 1}})
            ready = await receive_payload(socket)
            assert [ready["t"], (await receive_payload(socket))["t"]] == ["READY", "GUILD_CREATE"]
            await socket.close(code=code)
            await server.wait_for(lambda: not server.connection_count)
            assert server.sessions[-1].close_code == code
            socket = await open_socket(session, server)
            resume = {"token": server.bot_token, "session_id": ready["d"]["session_id"], "seq": 2}
            await socket.send_json({"op": 6, "d": resume})
            assert (await receive_payload(socket))["op"] == op
            await socket.close()


async def test_events_go_to_their_shard(server: DiscordSimulator) -> None:
    async with aiohttp.ClientSession() as session:
        number = (int(server.guild_id) >> 22) % 2
        for shard in (0, 1):
            socket = await open_socket(session, server)
            identify = {"token": server.bot_token, "intents": 1 << 9 | 1 << 12, "shard": [shard, 2]}
            await socket.send_json({"op": 2, "d": identify})
            assert (await receive_payload(socket))["d"]["shard"] == [shard, 2]
        await server.post_message("ada", "general", "hello")
        await server.post_message("ada", server.open_dm("ada"), "psst")
    in_guild, in_dm = [event for event in server.events if event.name == "MESSAGE_CREATE"]
    assert (in_guild.session_id, in_dm.session_id) == (server.sessions[number].id, server.sessions[0].id)


async def test_the_bot_stays_online_after_a_lost_connection_unless_invisible(
    server: DiscordSimulator, connect: Connect
) -> None:
    bot = await connect(server)
    await server.drop_sockets()
    assert server.is_online
    await asyncio.wait_for(bot.resumed.wait(), 30)
    await bot.change_presence(status=discord.Status.invisible)
    await server.wait_for(lambda: server.sessions[0].status == "invisible")
    assert not server.is_online


async def test_an_unavailable_server_has_no_events_until_it_is_back(
    server: DiscordSimulator, bot: RecordingClient
) -> None:
    events: list[str] = []

    async def on_guild_unavailable(_: discord.Guild) -> None:
        events.append("unavailable")

    async def on_guild_available(_: discord.Guild) -> None:
        events.append("available")

    bot.event(on_guild_unavailable)
    bot.event(on_guild_available)
    await server.set_guild_available(False)
    await server.post_message("ada", "general", "lost")
    await server.post_message("ada", server.open_dm("ada"), "direct")
    assert await receive_texts(bot, 1) == ["direct"]
    await server.set_guild_available(True)
    await server.set_guild_available(True)
    await server.post_message("ada", "general", "heard")
    assert await receive_texts(bot, 1) == ["heard"]
    assert events == ["unavailable", "available"]


async def test_a_session_may_start_during_an_outage(server: DiscordSimulator, connect: Connect) -> None:
    await server.set_guild_available(False)
    bot = await connect(server)
    assert [guild.unavailable for guild in bot.guilds] == [True]
    await server.set_guild_available(True)
    await server.post_message("ada", "general", "heard")
    assert await receive_texts(bot, 1) == ["heard"]


async def test_the_bot_hears_of_its_removal(server: DiscordSimulator, bot: RecordingClient) -> None:
    closed = asyncio.get_running_loop().create_future()

    async def on_guild_remove(guild: discord.Guild) -> None:
        closed.set_result(guild.id)

    bot.event(on_guild_remove)
    server.remove_bot()
    assert await asyncio.wait_for(closed, 5) == int(server.guild_id)
    assert [guild async for guild in bot.fetch_guilds()] == []


async def test_people_type(server: DiscordSimulator, connect: Connect) -> None:
    bot = await connect(server, intents=create_intents("members", "typing"))
    typing = asyncio.Queue[tuple[str, str]]()

    async def on_typing(channel: Any, user: Any, _: Any) -> None:
        await typing.put((str(channel), user.name))

    bot.event(on_typing)
    await server.start_typing("ada", "general")
    assert await asyncio.wait_for(typing.get(), 5) == ("general", "ada")
    with pytest.raises(ValueError, match="grace is not in"):
        await server.start_typing("grace", server.open_dm("ada"))


async def test_a_removed_bot_receives_events_of_dms_only(server: DiscordSimulator, bot: RecordingClient) -> None:
    server.remove_bot()
    message = await server.post_message("ada", "general", "not heard")
    await server.add_reaction("ada", message, "👋")
    await server.start_typing("ada", "general")
    server.add_channel("new")
    server.add_user("edsger")
    await server.set_guild_available(False)
    await server.set_guild_available(True)
    await server.post_message("ada", server.open_dm("ada"), "heard")
    assert (await bot.next_message()).content == "heard"
    assert [event.name for event in server.events][-2:] == ["GUILD_DELETE", "MESSAGE_CREATE"]


async def test_the_bot_has_the_name_of_the_simulators_argument(connect: Connect) -> None:
    async with DiscordSimulator(bot_name="Tea Bot") as server:
        client = await connect(server)
        assert client.user is not None
        assert client.user.name == server.bot_name == "tea_bot"
        assert (await client.application_info()).name == "Tea Bot"
