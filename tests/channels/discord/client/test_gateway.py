import asyncio
from pathlib import Path

import discord
import pytest

from channels.discord import adapter as adapter_module
from channels.discord.client import gateway
from channels.discord.client.auth import LoginReport, log_in
from channels.discord.settings import DiscordSettings
from chatrig.discord import DiscordSimulator
from chatrig.models import Pause, Say
from core.errors import SettingsError
from tests.channels.discord.conftest import PATCH, WiredDiscordBot, run_bot, run_discord, wait_until
from tests.channels.wiring import echo

GATEWAY = "GET /gateway/bot"


async def check_bot_answers(bot: WiredDiscordBot, text: str = "still there?") -> None:
    """Post a message in Ada's DM, and wait until the bot's only answer quotes it."""
    question = await bot.server.post_message("ada", bot.server.open_dm("ada"), text)
    await bot.wait_for_replies(question, f"heard: {text}")


async def test_a_first_connection_that_fails_is_retried(
    server: DiscordSimulator, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server.faults.refuse_handshakes(2)
    async with run_bot(server, tmp_path, echo) as bot:
        await check_bot_answers(bot)
        assert len(server.sessions) == 1
        assert len(bot.list_calls(GATEWAY)) == 4  # for the number of shards, and for each of three connections
        assert caplog.text.count("the connection to Discord's gateway failed") == 2


@pytest.mark.parametrize("route", [GATEWAY, "GET /oauth2/applications/@me", "GET /users/@me"])
async def test_an_error_while_connecting_is_retried(server: DiscordSimulator, tmp_path: Path, route: str) -> None:
    async with run_bot(server, tmp_path, echo, connect=False) as bot:

        async def log_in_and_fail(client: discord.Client, settings: DiscordSettings) -> LoginReport:
            report = await log_in(client, settings)
            server.faults.fail(route, status=503)
            return report

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("channels.discord.adapter.log_in", log_in_and_fail)
            await bot.adapter.start()
        await check_bot_answers(bot)


async def test_an_unreachable_gateway_ends_the_start_with_a_line(
    server: DiscordSimulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adapter_module, "CONNECT_TIMEOUT_SECONDS", 0.3)
    server.faults.refuse_handshakes(1000)
    async with run_bot(server, tmp_path, echo, connect=False) as bot:
        with pytest.raises(SettingsError, match="DISCORD_API_URL: no connection to the gateway could be made within"):
            await bot.adapter.start()
        before = len(server.calls)
        await asyncio.sleep(0.2)
        assert len(server.calls) == before


async def test_no_session_is_started_when_none_is_left(
    server: DiscordSimulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("chatrig.discord.events.dispatcher.MAX_SESSIONS_PER_DAY", 0)
        async with run_bot(server, tmp_path, echo, connect=False) as bot:
            starting = asyncio.create_task(bot.adapter.start())
            await wait_until(
                lambda: (
                    "gateway failed: ParleyError: Discord allows this bot no new session for 1440 min\n" in caplog.text
                )
            )
            assert server.sessions == []
            patch.setattr("chatrig.discord.events.dispatcher.MAX_SESSIONS_PER_DAY", 1000)
            await starting
            await check_bot_answers(bot)


async def test_the_bot_survives_an_intent_that_is_switched_off(
    server: DiscordSimulator, bot: WiredDiscordBot, caplog: pytest.LogCaptureFixture
) -> None:
    server.privileged_intents.clear()
    await server.invalidate_sessions()
    await server.wait_for(lambda: len(server.sessions) == 2 and server.connection_count)
    await check_bot_answers(bot)
    assert "PrivilegedIntentsRequired, raised at" in caplog.text
    server.privileged_intents.add("message_content")


async def test_a_new_gateway_session_changes_nothing(server: DiscordSimulator, bot: WiredDiscordBot) -> None:
    await check_bot_answers(bot, "one")
    for count in (2, 3):
        await server.invalidate_sessions()
        await server.wait_for(lambda count=count: len(server.sessions) == count and server.connection_count)  # type: ignore[misc]
    await check_bot_answers(bot, "two")
    assert len(bot.list_calls(GATEWAY)) == 2  # both from the start
    assert len(bot.list_bot_messages(server.open_dm("ada"))) == 2


@pytest.mark.parametrize("way", ["drop", "refresh", "invalidate", "handshake"])
async def test_a_message_while_the_socket_is_lost_is_answered_once(tmp_path: Path, way: str) -> None:
    async with run_discord(speed=20) as server, run_bot(server, tmp_path, echo) as bot:
        match way:
            case "drop":
                await server.drop_sockets()
            case "refresh":
                await server.refresh_sockets()
            case "invalidate":
                await server.invalidate_sessions(resumable=True)
            case _:
                server.faults.refuse_handshakes(1)
                await server.drop_sockets()
        await check_bot_answers(bot)
        await server.wait_for(lambda: server.sessions[0].resume_count == 1)
        await check_bot_answers(bot, "and now?")
        assert len(server.sessions) == 1
        assert len(await bot.list_inbox_messages()) == 2
        assert len(bot.list_bot_messages(server.open_dm("ada"))) == 2


async def test_a_dead_connection_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway, "HEARTBEAT_TIMEOUT_SECONDS", 0.5)
    async with run_discord(speed=400) as server, run_bot(server, tmp_path, echo) as bot:
        await server.freeze_sockets()
        await check_bot_answers(bot)


async def test_a_stop_does_not_interrupt_a_running_close(
    server: DiscordSimulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hang_up, started, closed = gateway._close_client, asyncio.Event(), list[gateway.GatewayClient]()

    async def hang_up_slowly(client: gateway.GatewayClient) -> None:
        started.set()
        await asyncio.sleep(0.05)
        await hang_up(client)
        closed.append(client)

    async with run_bot(server, tmp_path, echo) as bot:
        monkeypatch.setattr(gateway, "_close_client", hang_up_slowly)
        reconnecting = asyncio.create_task(bot.adapter.reconnect())
        (part,) = bot.adapter._shards._connections.values()
        part.gateway.last_event_at = 1.0  # no event for a long time
        await asyncio.wait_for(started.wait(), 30)
        reconnecting.cancel()
        await bot.adapter.stop()
        assert len(closed) == 1


async def test_an_answer_continues_while_the_socket_is_lost(server: DiscordSimulator, tmp_path: Path) -> None:
    go_on = asyncio.Event()
    async with run_bot(server, tmp_path, [Say("half"), Pause(go_on), Say(" and half.")]) as bot:
        question = await bot.mention_bot("ada", "general", "one")
        await server.wait_for(lambda: bot.list_calls(PATCH))
        server.faults.refuse_handshakes(1_000)
        await server.drop_sockets()
        go_on.set()
        await bot.wait_for_replies(question, "half and half.")
        assert server.connection_count == 0
        server.faults.refuse_handshakes(0)
