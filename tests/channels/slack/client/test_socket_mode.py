import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from slack_bolt.async_app import AsyncApp
from slack_bolt.response import BoltResponse
from slack_sdk.web.async_client import AsyncWebClient

from channels.slack.client.socket_mode import SocketMode, SocketModeConnection
from chatrig.slack import SlackSimulator
from tests.channels.slack.conftest import run_bot
from tests.channels.wiring import wait_until


@pytest.fixture
async def socket(slack: SlackSimulator, web: AsyncWebClient) -> AsyncIterator[SocketModeConnection]:
    app = AsyncApp(client=web)

    @app.event("message")
    async def ignore_message(body: dict[str, Any]) -> None: ...

    socket = SocketModeConnection(app, slack.app_token, on_reconnect=lambda: None)
    yield socket
    await socket.close()


def count_openings(slack: SlackSimulator) -> int:
    return sum(call.method == "apps.connections.open" for call in slack.calls)


async def test_a_refused_handshake_is_retried_with_a_new_url(
    slack: SlackSimulator, socket: SocketModeConnection
) -> None:
    slack.faults.refuse_handshakes(2)
    await socket.open()
    await slack.wait_until_connected()
    assert count_openings(slack) == 3


async def test_a_failed_handshake_during_a_reconnect_is_retried(
    slack: SlackSimulator, socket: SocketModeConnection
) -> None:
    await socket.open()
    await slack.wait_until_connected()
    slack.faults.refuse_handshakes(2)
    await slack.drop_sockets()
    message = await slack.post_message("ada", "general", "still there?")
    await slack.wait_until_connected()
    await slack.wait_for(lambda: [e.payload["event"]["ts"] for e in slack.envelopes] == [message.ts])
    await slack.wait_for(lambda: slack.envelopes[-1].acknowledged_at)


async def test_a_refresh_request_reconnects(slack: SlackSimulator, socket: SocketModeConnection) -> None:
    await socket.open()
    await slack.wait_until_connected()
    await slack.refresh_sockets()
    await slack.wait_until_connected()
    assert count_openings(slack) == 2


async def test_a_close_waits_for_received_events_up_to_its_timeout(
    slack: SlackSimulator, web: AsyncWebClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    app, started, go_on, ended = AsyncApp(client=web), asyncio.Event(), asyncio.Event(), list[str]()

    @app.middleware
    async def handle_slowly() -> BoltResponse:
        started.set()
        try:
            await go_on.wait()
        except asyncio.CancelledError:
            ended.append("given up")
            raise
        ended.append("taken")
        return BoltResponse(status=200)

    for expected in ("taken", "given up"):
        socket = SocketModeConnection(app, slack.app_token, on_reconnect=lambda: None)
        await socket.open()
        await slack.wait_until_connected()
        await slack.post_message("ada", "general", "one moment")
        await started.wait()
        closing = asyncio.create_task(socket.close())
        if expected == "taken":
            asyncio.get_running_loop().call_later(0.1, go_on.set)
        else:
            monkeypatch.setattr("channels.slack.client.socket_mode.CLOSE_TIMEOUT_SECONDS", 0.1)
        await closing
        assert ended[-1:] == [expected]
        started.clear()
        go_on.clear()
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []


async def test_a_close_does_not_wait_for_a_task_that_ignores_cancellation(
    slack: SlackSimulator, socket: SocketModeConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("channels.slack.client.socket_mode.CLOSE_TIMEOUT_SECONDS", 0.05)
    released = asyncio.Event()

    async def ignore_cancellation() -> None:
        while not released.is_set():
            with suppress(asyncio.CancelledError):
                await released.wait()

    await socket.open()
    task = asyncio.create_task(ignore_cancellation())
    await asyncio.sleep(0)
    socket._work.add(task)
    async with asyncio.timeout(30):
        await socket.close()
    assert not task.done()
    released.set()
    await task


async def test_one_of_two_sockets_stays_open_while_the_other_reconnects(slack: SlackSimulator, tmp_path: Path) -> None:
    async with run_bot(slack, tmp_path, lambda request: f"heard: {request.text}", sockets=2) as bot:
        await slack.wait_for(lambda: slack.connection_count == 2)
        questions = [await bot.mention_bot("ada", "general", f"question {n}") for n in range(6)]
        await bot.wait_for_turns(6)
        transport = bot.adapter._transport
        assert isinstance(transport, SocketMode)
        first = transport._connections[0]
        await first.reopen()
        assert slack.connection_count >= 1
        during = await bot.mention_bot("ada", "general", "in between")
        await bot.wait_for_texts(during, lambda texts: texts[1:] == ["heard: ada: in between"])
        await slack.wait_for(lambda: slack.connection_count == 2)
        assert all(len(bot.list_texts(question)) == 2 for question in questions)
        assert transport.last_event_at > 0


async def test_a_reconnect_opens_a_gap_from_the_last_event_of_any_socket(
    slack: SlackSimulator, web: AsyncWebClient
) -> None:
    gaps = list[float]()
    sockets = SocketMode(AsyncApp(client=web), slack.app_token, count=2, on_reconnect=gaps.append)
    await sockets.open()
    try:
        await slack.wait_for(lambda: slack.connection_count == 2)
        await wait_until(lambda: all(connection.last_event_at for connection in sockets._connections))
        before = time.time()
        await sockets._connections[0].reopen()
        await wait_until(lambda: len(gaps) == 1)
        assert gaps[0] > before - 1
        await slack.drop_sockets()
        await slack.wait_for(lambda: slack.connection_count == 2)
        await wait_until(lambda: len(gaps) == 3)
    finally:
        await sockets.close()
