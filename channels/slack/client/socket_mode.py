"""Socket Mode: the WebSocket connections by which Slack delivers events, kept by slack_sdk and monitored here."""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

import aiohttp
from slack_bolt.adapter.socket_mode.async_handler import AsyncSocketModeHandler
from slack_bolt.async_app import AsyncApp
from slack_sdk.socket_mode.aiohttp import SocketModeClient

from core.concurrency.tasks import BackgroundTasks

log = logging.getLogger(__name__)

#: Seconds between two pings. slack_sdk gives up a connection that answers none of four.
PING_INTERVAL = 5.0

#: Seconds that closing a connection may take.
CLOSE_TIMEOUT = 2.0

#: Frames that prove that Slack is connected.
_SIGNS_OF_LIFE = (aiohttp.WSMsgType.TEXT, aiohttp.WSMsgType.PING, aiohttp.WSMsgType.PONG)


class SocketMode:
    """The connections of an app. Slack delivers each event by one of them.

    Args:
        count: the number of connections.
        on_reconnect: called after each reconnection, with the time (seconds since the epoch) of the last sign of life
            of any connection before it.
    """

    def __init__(self, app: AsyncApp, app_token: str, *, count: int, on_reconnect: Callable[[float], None]) -> None:
        self._connections = [
            SocketModeConnection(app, app_token, on_reconnect=lambda: on_reconnect(self.heard_at)) for _ in range(count)
        ]

    @property
    def heard_at(self) -> float:
        """The time of the last sign of life, in seconds since the epoch."""
        return max(connection.heard_at for connection in self._connections)

    async def open(self) -> None:
        """Connect and wait until all connections are open."""
        await asyncio.gather(*(connection.open() for connection in self._connections))

    async def reopen(self) -> None:
        """Replace the connections, without waiting for the new ones."""
        await asyncio.gather(*(connection.reopen() for connection in self._connections))

    async def close(self) -> None:
        await asyncio.gather(*(connection.close() for connection in self._connections))


class SocketModeConnection:
    """One connection of an app, which reconnects after failures.

    Args:
        on_reconnect: called for each connection but the first, while `heard_at` still tells of the one before.
    """

    def __init__(self, app: AsyncApp, app_token: str, *, on_reconnect: Callable[[], None]) -> None:
        self._app = app
        self._app_token = app_token
        self._on_reconnect = on_reconnect
        self._client: SocketModeClient | None = None
        self._socket: _WebSocket | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._work = BackgroundTasks()

    @property
    def heard_at(self) -> float:
        """The time of the last sign of life, in seconds since the epoch; 0 before the first."""
        return 0.0 if self._socket is None else self._socket.heard_at

    async def open(self) -> None:
        """Connect and wait until the connection is open."""
        await asyncio.wait([await self._connect()])

    async def reopen(self) -> None:
        """Replace the connection, without waiting for the new one."""
        await self.close()
        await self._connect()

    async def close(self) -> None:
        """Close the connection, even if Slack does not answer: slack_sdk alone would wait for that.

        Events that are being processed are awaited. Slack delivers those again that are not acknowledged in time.
        """
        client = self._client
        if client is None:
            return
        with suppress(Exception):
            async with asyncio.timeout(CLOSE_TIMEOUT):
                await client.close()
        await self._work.drain(CLOSE_TIMEOUT)
        tasks = [self._connecting, client.message_processor, client.current_session_monitor, client.message_receiver]
        for task in (unfinished := [task for task in tasks if task is not None]):
            task.cancel()
        await asyncio.wait(unfinished, timeout=CLOSE_TIMEOUT)
        await client.aiohttp_client_session.close()
        self._client = None

    async def _connect(self) -> asyncio.Task[None]:
        """Start a client of slack_sdk, which tries to connect until it succeeds."""
        handler = AsyncSocketModeHandler(self._app, self._app_token, ping_interval=PING_INTERVAL)
        client = self._client = handler.client
        client.socket_mode_request_listeners[:] = [partial(self._handle, handler)]
        client.message_listeners.append(self._on_message)
        await client.aiohttp_client_session.close()  # it is replaced before it has opened anything
        client.aiohttp_client_session = _TicketSession(client)  # type: ignore[assignment]
        self._connecting = asyncio.create_task(client.connect(), name="slack socket")
        return self._connecting

    async def _handle(self, handler: AsyncSocketModeHandler, client: Any, request: Any) -> None:
        """Have Bolt handle a request. slack_sdk (3.47) handles each in a task that nobody owns."""
        with self._work.track_current():
            try:
                await handler.handle(client, request)
            except ConnectionError:  # an event that is stored is recognised by its key
                log.info("the socket was closed before an event was acknowledged: Slack delivers it again")

    async def _on_message(self, client: Any, message: Mapping[str, Any], _raw: str | None = None) -> None:
        socket = client.current_session
        if message.get("type") != "hello" or client is not self._client or not isinstance(socket, _WebSocket):
            return
        if self._socket is not None:
            self._on_reconnect()
        self._socket = socket
        socket.heard_at = time.time()


class _WebSocket(aiohttp.ClientWebSocketResponse):
    """A WebSocket that records the last sign of life.

    Attributes:
        heard_at: in seconds since the epoch; 0 until Slack has said hello.
    """

    heard_at = 0.0

    async def receive(self, timeout: float | None = None) -> aiohttp.WSMessage:  # noqa: ASYNC109 (as aiohttp has it)
        message = await super().receive(timeout)
        if self.heard_at and message.type in _SIGNS_OF_LIFE:
            self.heard_at = time.time()
        return message


class _TicketSession:
    """HTTP session of slack_sdk's client that drops the ticket after a failed handshake.

    A ticket of `apps.connections.open` is valid for one handshake. slack_sdk (3.47) repeats a failed one with the same
    ticket, and asks for a new one only when it has none.
    """

    def __init__(self, client: SocketModeClient) -> None:
        self._client = client
        self._session = aiohttp.ClientSession(ws_response_class=_WebSocket)

    @property
    def closed(self) -> bool:
        return self._session.closed

    async def ws_connect(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return await self._session.ws_connect(*args, **kwargs)
        except Exception:
            self._client.wss_uri = None
            raise

    async def close(self) -> None:
        await self._session.close()
