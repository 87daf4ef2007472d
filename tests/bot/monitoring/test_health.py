"""Health monitor of the platform connections: readiness, logs and reconnects."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
import sqlalchemy as sa
from pydantic import SecretStr
from tenacity.wait import wait_fixed

from bot import app
from bot.monitoring import health
from bot.monitoring.health import HealthMonitor
from bot.settings import Settings
from channels.discord import adapter as discord_adapter
from channels.discord.adapter import DiscordAdapter
from channels.discord.client import gateway
from channels.intake import backfill as gaps
from channels.platform import PlatformAdapter
from channels.slack.adapter import SlackAdapter
from channels.slack.client import auth
from channels.slack.client import socket_mode as socket
from chatrig.discord import DiscordSimulator
from chatrig.slack import SlackSimulator
from core.errors import ConnectionLostError, StoreError
from core.store.database import Database
from core.store.migrate import migrate
from core.store.schema import platforms, workers
from core.store.workers import shard_assignment
from tests.channels.discord import conftest as discord
from tests.channels.discord.conftest import clean_discord_library
from tests.channels.slack import conftest as slack
from tests.channels.wiring import echo, wait_until
from tests.fixtures.full_disk import fill_disk

__all__ = ["clean_discord_library"]

CONNECTING = "apps.connections.open"


@pytest.fixture(autouse=True)
def short_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "CHECK_SECONDS", 0.02)
    monkeypatch.setattr(socket, "PING_INTERVAL_SECONDS", 0.1)
    monkeypatch.setattr(auth, "TOKEN_CHECK_SECONDS", 0.1)
    monkeypatch.setattr(socket, "CLOSE_TIMEOUT_SECONDS", 0.1)
    monkeypatch.setattr(gateway, "CLOSE_TIMEOUT_SECONDS", 0.1)
    monkeypatch.setattr(SlackAdapter, "heartbeat_interval", 0.2)
    monkeypatch.setattr(DiscordAdapter, "heartbeat_interval", 0.5)


@asynccontextmanager
async def watch_health(
    database: Database, *adapters: PlatformAdapter, limit: float = 60
) -> AsyncIterator[HealthMonitor]:
    """Run a health monitor of connected adapters, and yield it once it is ready.

    The end of the context raises the monitor's errors.

    Args:
        limit: seconds without an event after which an adapter is reconnected at the latest.
    """
    found = HealthMonitor(silence_seconds=0.3, max_silence_seconds=limit)
    assert not found.is_ready
    watching = asyncio.create_task(found.watch(adapters, database))
    await wait_until(lambda: found.is_ready)
    try:
        yield found
    finally:
        watching.cancel()
        await asyncio.wait([watching])
    if not watching.cancelled():
        watching.result()


async def test_the_bot_is_not_ready_until_each_channel_is_connected(tmp_path: Path) -> None:
    async with (
        SlackSimulator(rate_limits=False) as simulator,
        slack.run_bot(simulator, tmp_path, echo) as bot,
        watch_health(bot.database, bot.adapter) as found,
    ):
        simulator.faults.fail(CONNECTING, 100_000)
        await simulator.freeze_sockets()
        await wait_until(lambda: not found.is_ready)
        assert found.reasons == ["slack: no heartbeat"]
        simulator.faults.clear()
        await wait_until(lambda: found.is_ready)
        question = await simulator.post_message("ada", simulator.open_dm("ada"), "back?")
        await bot.wait_for_texts(question, lambda texts: "heard: back?" in texts)


async def test_a_revoked_token_is_reported_and_not_retried(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with SlackSimulator(rate_limits=False) as simulator, slack.run_bot(simulator, tmp_path, "never asked") as bot:
        found = HealthMonitor(silence_seconds=1.0, max_silence_seconds=2.5)
        simulator.faults.fail("auth.test", 100_000, error="account_inactive")
        with pytest.raises(ConnectionLostError, match=r"slack: no heartbeat for \d s; ending"):
            await asyncio.wait_for(found.watch([bot.adapter], bot.database), 30)
        assert "auth.test: Slack says account_inactive" in caplog.text
        assert caplog.text.count("slack: reconnecting") == 2


async def test_a_dead_discord_connection_is_replaced_and_its_messages_are_answered(
    tmp_path: Path,
) -> None:
    async with (
        discord.run_discord(speed=400) as server,
        discord.run_bot(server, tmp_path, echo) as bot,
        watch_health(bot.database, bot.adapter) as found,
    ):
        direct = server.open_dm("ada")
        await bot.wait_for_replies(await server.post_message("ada", direct, "hello"), "heard: hello")
        await server.freeze_sockets()
        question = await server.post_message("ada", direct, "are you there?")
        await wait_until(lambda: not found.is_ready)
        await bot.wait_for_replies(question, "heard: are you there?")
        await wait_until(lambda: found.is_ready)
        assert len(server.sessions) >= 2
        assert len(await bot.list_inbox_messages()) == 2


async def test_a_hanging_database_makes_the_bot_unready_and_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "DATABASE_CHECK_SECONDS", 0.2)
    database = Database(f"sqlite+aiosqlite:///{tmp_path / 'parley.db'}")
    await migrate(database)
    async with watch_health(database) as found:
        for failing in (StoreError("out of reach"), None):

            async def ping(_: Database, failing: Exception | None = failing) -> None:
                if failing is None:
                    await asyncio.sleep(60)
                else:
                    raise failing

            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(Database, "ping", ping)
                await wait_until(lambda: not found.is_ready)
                (line,) = found.reasons
                assert line in ("out of reach", "the database has not answered for 0.2 s")
            await wait_until(lambda: found.is_ready)
    await database.aclose()


async def test_a_full_disk_acknowledges_and_loses_no_message(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gaps, "STORE_WAIT", wait_fixed(0.1))
    monkeypatch.setattr(health, "DATABASE_CHECK_SECONDS", 1.0)
    async with (
        SlackSimulator(rate_limits=False) as simulator,
        slack.run_bot(simulator, disk, echo) as bot,
        watch_health(bot.database, bot.adapter) as found,
    ):
        direct = simulator.open_dm("ada")
        with fill_disk(disk):
            full = "the database cannot be used (SQLITE_FULL): the disk is full: make room on it"
            await wait_until(lambda: found.reasons == [full])
            message = await simulator.post_message("ada", direct, "are you there?")
            await asyncio.sleep(0.5)
            assert not any(envelope.acknowledged_at for envelope in simulator.envelopes)
            assert bot.list_texts(message) == ["are you there?"]
        await bot.wait_for_texts(message, lambda texts: texts[1:] == ["heard: are you there?"])
        await wait_until(lambda: found.is_ready)
        assert len(await bot.list_inbox_messages()) == 1


async def test_a_stopping_bot_is_not_ready(tmp_path: Path) -> None:
    database = Database(f"sqlite+aiosqlite:///{tmp_path / 'parley.db'}")
    await migrate(database)
    async with watch_health(database) as found:
        found.mark_stopping()
        assert (found.is_ready, found.reasons) == (False, ["stopping"])
    await database.aclose()


async def test_the_program_exits_when_it_stays_disconnected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(app, "HealthMonitor", partial(HealthMonitor, silence_seconds=0.2, max_silence_seconds=0.5))
    async with SlackSimulator(rate_limits=False) as simulator:
        settings = Settings(
            slack_bot_token=SecretStr(simulator.bot_token),
            slack_app_token=SecretStr(simulator.app_token),
            slack_api_url=simulator.api_url,
            model="openai/never-asked",
            openai_base_url="http://127.0.0.1:9/v1",
            port=0,
        )
        running = asyncio.create_task(app.run_bot(settings, asyncio.Event()))
        await simulator.wait_until_connected(30)
        simulator.faults.fail("auth.test", 100_000, error="token_revoked")
        with pytest.raises(ConnectionLostError):
            await asyncio.wait_for(running, 30)
        await simulator.wait_for(lambda: not simulator.connection_count)


async def test_a_worker_that_cannot_take_over_discord_exits_with_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shard_assignment, "LOOK_SECONDS", 0.05)
    monkeypatch.setattr(discord_adapter, "CONNECT_TIMEOUT_SECONDS", 0.5)
    async with DiscordSimulator() as server, discord.run_bot(server, tmp_path, echo, connect=False) as bot:
        async with bot.database.write() as connection:
            await connection.execute(
                sa.insert(workers).values(id="other", lease_expires_at=float("inf"), rate_limit_usage={})
            )
            await connection.execute(sa.insert(platforms).values(name="discord", owner="other"))
        await bot.adapter.start()
        found = HealthMonitor(silence_seconds=0.3, max_silence_seconds=1.0)
        watching = asyncio.create_task(found.watch([bot.adapter], bot.database))
        await wait_until(lambda: found.is_ready)
        server.faults.refuse_handshakes(100_000)
        async with bot.database.write() as connection:
            await connection.execute(sa.delete(workers).where(workers.c.id == "other"))
        await wait_until(lambda: not found.is_ready)
        with pytest.raises(ConnectionLostError):
            await asyncio.wait_for(watching, 30)
