import asyncio
import gc
import warnings
from pathlib import Path
from typing import Any

import pytest
from tenacity.wait import wait_fixed

from channels.discord.adapter import DiscordAdapter
from channels.discord.client import gateway as gateway_module
from channels.discord.client.gateway import GatewayClient
from channels.discord.platform import DiscordPlatform
from channels.i18n import messages as words
from channels.intake import backfill
from chatrig.discord import DiscordSimulator
from chatrig.models import Pause, Say
from core.errors import StoreError
from core.inbox.store import InboxStore
from core.messages.inbox_message import AcceptResult
from core.usage.user_rate_limits import RateLimitDenial
from tests.channels.discord.conftest import PATCH, WiredDiscordBot, create_settings, run_bot, run_discord, wait_until
from tests.channels.wiring import BACKFILL_LIMITS, echo
from tests.fixtures.inbox_messages import inbound

# Order and duplicates


async def test_a_message_that_two_connections_receive_is_answered_once(
    server: DiscordSimulator, bot: WiredDiscordBot
) -> None:
    platform = DiscordPlatform(create_settings(server))
    other = DiscordAdapter(platform, bot.services, bot.watermarks, BACKFILL_LIMITS, bot.shard_assignment)
    await other.start()
    try:
        assert len(server.sessions) == 2
        await bot.wait_for_replies(await bot.mention_bot("ada", "general", "one"), "heard: Ada Lovelace: one")
        await bot.wait_for_replies(await bot.mention_bot("ada", "general", "two"), "heard: Ada Lovelace: two")
    finally:
        await other.stop()
        await platform.aclose()
    assert len(await bot.list_inbox_messages()) == 2
    assert len(bot.list_bot_messages("general")) == 2


async def test_a_reset_between_two_processes_keeps_a_complete_answer(server: DiscordSimulator, tmp_path: Path) -> None:
    script = [Say("Once upon a time"), Say(" it ended.")]
    async with run_bot(server, tmp_path, script, stop_timeout=0.1) as bot:
        server.faults.delay(PATCH, 2)
        question = await bot.mention_bot("ada", "general", "tell a story")
        await bot.wait_for_states("answered")
        await bot.worker.stop(0.1)
        (row,) = await bot.list_inbox_messages()
        await bot.inbox.reset_session(inbound("reset", session=row.session, place=row.place))
    async with run_bot(server, tmp_path, "anew!") as bot:
        await bot.wait_for_replies(question, "Once upon a time it ended.")
        (turn,) = await bot.wait_for_turns(1)
        assert (turn.state, turn.text) == ("done", None)


# Database failures


def fail_inbox(monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    accept, failures_left = InboxStore.accept, times

    async def fail_at_first(self: InboxStore, inbound: Any) -> AcceptResult | RateLimitDenial:
        nonlocal failures_left
        failures_left -= 1
        if failures_left >= 0:
            raise StoreError("out of reach")
        return await accept(self, inbound)

    monkeypatch.setattr(backfill, "FETCH_WAIT", wait_fixed(0.01))
    monkeypatch.setattr(backfill, "STORE_WAIT", wait_fixed(0.01))
    monkeypatch.setattr(InboxStore, "accept", fail_at_first)


async def test_a_stop_does_not_wait_for_the_database_and_the_next_process_answers(
    server: DiscordSimulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with run_bot(server, tmp_path, echo) as bot:
        await bot.wait_for_replies(await bot.mention_bot("ada", "general", "one"), "heard: Ada Lovelace: one")
        with pytest.MonkeyPatch.context() as patch:
            fail_inbox(patch, 1_000_000)
            question = await bot.mention_bot("ada", "general", "two")
            await wait_until(lambda: "a message or a change of one is not stored yet" in caplog.text)
            async with asyncio.timeout(30):
                await bot.adapter.stop()
    assert bot.list_texts(question) == []
    async with run_bot(server, tmp_path, echo) as bot:
        await bot.wait_for_replies(question, "heard: Ada Lovelace: two")


# Shutdown


async def test_a_stop_ends_the_intake_and_completes_running_answers(server: DiscordSimulator, tmp_path: Path) -> None:
    go_on = asyncio.Event()
    async with run_bot(server, tmp_path, [Say("half, "), Pause(go_on), Say("and half.")]) as bot:
        question = await bot.mention_bot("ada", "general", "one")
        await bot.wait_for_replies(question, "half,")
        await bot.adapter.stop()
        assert server.connection_count == 0
        unheard = await bot.mention_bot("ada", "general", "two")
        go_on.set()
        await bot.worker.stop(5)
        assert bot.list_texts(question) == ["half, and half."]
        assert bot.list_texts(unheard) == []
        assert len(await bot.list_inbox_messages()) == 1


async def test_a_stop_leaves_no_task_and_no_open_connection(tmp_path: Path) -> None:
    before = asyncio.all_tasks()
    with warnings.catch_warnings():
        warnings.simplefilter("error", ResourceWarning)
        async with run_discord() as server:
            async with run_bot(server, tmp_path, echo) as bot:
                await bot.wait_for_replies(
                    await bot.mention_bot("ada", "general", "hello"), "heard: Ada Lovelace: hello"
                )
                await server.drop_sockets()
                await server.wait_until_connected()
            gc.collect()
        await wait_until(lambda: asyncio.all_tasks() == before, seconds=5)


async def test_a_stop_closes_the_gateway_session(server: DiscordSimulator, tmp_path: Path) -> None:
    async with run_bot(server, tmp_path, echo):
        (session,) = server.sessions
        assert server.is_online
    assert (session.close_code, session.status) == (1000, "invisible")
    assert not server.is_online


async def test_a_stop_with_a_lost_close_leaves_the_bot_invisible(
    server: DiscordSimulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def close(client: GatewayClient) -> None:
        """Close the gateway with code 4000, as discord.py does: Discord keeps the session."""
        await client.ws.close(code=4000)
        await client.http.close()

    monkeypatch.setattr(GatewayClient, "close", close)
    async with run_bot(server, tmp_path, echo):
        (session,) = server.sessions
    assert session.close_code == 4000
    assert not server.is_online


async def test_a_stop_does_not_wait_for_an_unresponsive_discord(
    server: DiscordSimulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway_module, "CLOSE_TIMEOUT_SECONDS", 0.1)
    async with run_bot(server, tmp_path, echo, connect=False) as bot:
        server.faults.delay("GET /gateway/bot", 30)
        starting = asyncio.create_task(bot.adapter.start())
        await server.wait_for(lambda: bot.list_calls("GET /gateway/bot"))
        async with asyncio.timeout(20):
            await bot.adapter.stop()
        starting.cancel()
        await asyncio.wait([starting])


# Slow platform


@pytest.mark.parametrize("end", ["reset", "stop"])
async def test_an_edit_in_flight_is_never_cancelled(server: DiscordSimulator, tmp_path: Path, end: str) -> None:
    async with run_bot(server, tmp_path, [Say("half"), Pause(60)], stop_timeout=0) as bot:
        server.faults.delay(PATCH, 0.5)
        question = await bot.mention_bot("ada", "general", "a long one")
        await server.wait_for(lambda: bot.list_calls(PATCH))
        if end == "reset":
            await bot.mention_bot("ada", "general", "reset")
            await bot.wait_for_replies(question, f"half\n\n{words.STOPPED_BY_RESET}")
    (answer,) = bot.list_replies(question)
    last = words.STOPPED_BY_RESET if end == "reset" else words.RESTARTING
    assert [version.text for version in answer.versions] == [words.PLACEHOLDER, "half", f"half\n\n{last}"]
