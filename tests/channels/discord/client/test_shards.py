"""Shards: several gateway connections, each for a part of the servers."""

import asyncio
import time
from itertools import pairwise
from pathlib import Path

import pytest

from channels.discord import adapter as adapter_module
from channels.discord.client import gateway, shards
from channels.discord.client.gateway import GatewayClient
from chatrig.discord import DiscordSimulator
from core.errors import SettingsError
from tests.channels.discord.conftest import COMMANDS, run_bot, run_discord, wait_until
from tests.channels.wiring import echo


async def test_each_shard_has_a_connection_and_a_message_is_answered_once(
    server: DiscordSimulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adapter_module, "IDENTIFY_INTERVAL_SECONDS", 0.5)
    server.recommend_shards(3)
    async with run_bot(server, tmp_path, echo) as bot:
        sessions = sorted(server.sessions, key=lambda session: session.started_at)
        assert sorted(session.shard for session in sessions) == [(0, 3), (1, 3), (2, 3)]
        assert [b.started_at - a.started_at > 0.2 for a, b in pairwise(sessions)] == [True, True]
        assert len([call for call in server.calls if call.route == f"PUT {COMMANDS}"]) == 1

        in_guild = await bot.mention_bot("ada", "general", "one")
        direct = await server.post_message("ada", server.open_dm("ada"), "two")
        await bot.wait_for_replies(in_guild, "heard: Ada Lovelace: one")
        await bot.wait_for_replies(direct, "heard: two")
        assert await server.run_command("ada", "general", "help")
        assert len(await bot.list_inbox_messages()) == 2

        before = bot.adapter.last_event_at()
        await server.invalidate_sessions()
        await server.wait_for(lambda: len(server.sessions) == 6 and server.connection_count == 3)
        third = await bot.mention_bot("ada", "general", "three")
        await bot.wait_for_replies(third, "heard: Ada Lovelace: three")
        assert len(await bot.list_inbox_messages()) == 3
        assert bot.adapter.last_event_at() >= before
    assert not server.is_online


async def test_the_setting_decides_the_number_of_shards(server: DiscordSimulator, tmp_path: Path) -> None:
    server.recommend_shards(3)
    async with run_bot(server, tmp_path, echo, shards=2) as bot:
        assert sorted(session.shard for session in server.sessions) == [(0, 2), (1, 2)]
        question = await bot.mention_bot("ada", "general", "one")
        await bot.wait_for_replies(question, "heard: Ada Lovelace: one")


async def test_only_the_silent_shard_is_reconnected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway, "HEARTBEAT_TIMEOUT_SECONDS", 600.0)  # discord.py does not notice it
    monkeypatch.setattr(shards, "HEARTBEAT_SECONDS", 0.5)
    async with run_discord(speed=400) as server:
        server.recommend_shards(2, max_concurrency=2)
        async with run_bot(server, tmp_path, echo) as bot:
            first = await bot.mention_bot("ada", "general", "none")
            await bot.wait_for_replies(first, "heard: Ada Lovelace: none")
            number = (int(server.guild_id) >> 22) % 2
            deaf, other = sorted(server.sessions, key=lambda session: session.shard[0] != number)
            await server.freeze_sockets(deaf)
            question = await bot.mention_bot("ada", "general", "one")
            beats = other.heartbeat_count
            await server.wait_for(lambda: other.heartbeat_count > beats + 1)  # events sent before the freeze arrived
            since = time.time()
            await server.wait_for(lambda: other.heartbeat_count > beats + 6)
            assert bot.adapter.last_event_at() < since
            await bot.adapter.reconnect()
            await bot.wait_for_replies(question, "heard: Ada Lovelace: one")
            await wait_until(lambda: bot.adapter.last_event_at() > since)
            assert [session.shard for session in server.sessions[2:]] == [deaf.shard]
            assert (other.disconnected_at, other.resume_count) == (None, 0)


async def test_no_shard_starts_a_session_that_would_leave_none_for_another(
    server: DiscordSimulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("chatrig.discord.events.dispatcher.MAX_SESSIONS_PER_DAY", 1)
    monkeypatch.setattr(adapter_module, "CONNECT_TIMEOUT_SECONDS", 0.5)
    async with run_bot(server, tmp_path, echo, connect=False, shards=2) as bot:
        with pytest.raises(SettingsError, match="no connection to the gateway"):
            await bot.adapter.start()
        assert server.sessions == []
        assert "allows this bot no new session" in caplog.text


async def test_a_reconnect_during_a_stop_does_nothing(
    server: DiscordSimulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hang_up, is_hanging_up, go_on = gateway._close_client, asyncio.Event(), asyncio.Event()

    async def hang_up_slowly(client: GatewayClient) -> None:
        is_hanging_up.set()
        await go_on.wait()
        await hang_up(client)

    monkeypatch.setattr(gateway, "_close_client", hang_up_slowly)
    async with run_bot(server, tmp_path, echo) as bot:
        stopping = asyncio.create_task(bot.adapter._shards.stop())
        await is_hanging_up.wait()
        second_reconnect = asyncio.create_task(bot.adapter.reconnect())
        await asyncio.sleep(0)
        go_on.set()
        await asyncio.wait_for(asyncio.gather(second_reconnect, stopping), 30)
        assert not any(task.get_name() == "discord gateway" for task in asyncio.all_tasks())
        assert len(server.sessions) == 1
