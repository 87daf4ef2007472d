"""Socket Mode: connections by Bolt's handler, with what it and slack_sdk lack.

That is a new ticket after a failed handshake, the time of the last frame, a close that does not wait for Slack, and
references to the running tasks. Each is described where it is added, with the version that lacks it.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import aiohttp
from slack_bolt.adapter.socket_mode.async_handler import AsyncSocketModeHandler
from slack_bolt.async_app import AsyncApp
from slack_sdk.socket_mode.aiohttp import SocketModeClient

from core.concurrency.tasks import BackgroundTasks

log = logging.getLogger(__name__)

#: Seconds between two pings. slack_sdk closes a connection after four pings without a pong.
PING_INTERVAL_SECONDS = 5.0

#: Seconds that closing a connection may take.
CLOSE_TIMEOUT_SECONDS = 2.0

#: Types of WebSocket frames from Slack that prove that the connection works.
_SIGNS_OF_LIFE = (aiohttp.WSMsgType.TEXT, aiohttp.WSMsgType.PING, aiohttp.WSMsgType.PONG)


class SocketMode:
    """Socket Mode connections of an app; Slack delivers each event on one of them.

    Args:
        on_reconnect: called after each reconnection of any connection, with the time at which one of the connections
            last received a frame.
    """

    def __init__(self, app: AsyncApp, app_token: str, *, count: int, on_reconnect: Callable[[float], None]) -> None:
        self._connections = [
            SocketModeConnection(app, app_token, on_reconnect=lambda: on_reconnect(self.last_event_at))
            for _ in range(count)
        ]

    @property
    def last_event_at(self) -> float:
        """The time of the last frame on any connection; 0 for none."""
        return max(connection.last_event_at for connection in self._connections)

    async def open(self) -> None:
        """Open all connections, and wait for them; one that fails is tried again until `close`."""
        await asyncio.gather(*(connection.open() for connection in self._connections))

    async def reopen(self) -> None:
        """Close all connections, and start to open new ones."""
        await asyncio.gather(*(connection.reopen() for connection in self._connections))

    async def close(self) -> None:
        await asyncio.gather(*(connection.close() for connection in self._connections))


class SocketModeConnection:
    """One Socket Mode connection, which reconnects after failures.

    Args:
        on_reconnect: called after each reconnection, while `last_event_at` is still that of the lost connection.
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
    def last_event_at(self) -> float:
        """The time of the last frame; 0 before the first."""
        return 0.0 if self._socket is None else self._socket.last_event_at

    async def open(self) -> None:
        """Connect, and wait until it is open or `close` was called; a failure is logged and retried."""
        await asyncio.wait([await self._connect()])

    async def reopen(self) -> None:
        """Close the connection, and start to open a new one."""
        await self.close()
        await self._connect()

    async def close(self) -> None:
        """Close the connection, even if Slack does not answer (slack_sdk 3.47 would wait).

        Events that are being processed are awaited for `CLOSE_TIMEOUT_SECONDS`, and then cancelled. Slack delivers an
        event again if it was not acknowledged before the close.
        """
        client = self._client
        if client is None:
            return
        with suppress(Exception):
            async with asyncio.timeout(CLOSE_TIMEOUT_SECONDS):
                await client.close()
        await self._work.drain(CLOSE_TIMEOUT_SECONDS)
        tasks = [self._connecting, client.message_processor, client.current_session_monitor, client.message_receiver]
        for task in (unfinished := [task for task in tasks if task is not None]):
            task.cancel()
        await asyncio.wait(unfinished, timeout=CLOSE_TIMEOUT_SECONDS)
        await client.aiohttp_client_session.close()
        self._client = None

    async def _connect(self) -> asyncio.Task[None]:
        """Start a new slack_sdk client; return the task that ends when it has connected."""
        client = self._client = _TrackedHandler(self._app, self._app_token, self._work).client
        client.message_listeners.append(self._on_message)
        await client.aiohttp_client_session.close()  # it is replaced before it has opened anything
        client.aiohttp_client_session = _TicketSession(client)  # type: ignore[assignment]
        self._connecting = asyncio.create_task(client.connect(), name="slack socket")
        return self._connecting

    async def _on_message(self, client: Any, message: Mapping[str, Any], _raw: str | None = None) -> None:
        socket = client.current_session
        if message.get("type") != "hello" or client is not self._client or not isinstance(socket, _WebSocket):
            return
        if self._socket is not None:
            self._on_reconnect()
        self._socket = socket
        socket.last_event_at = time.time()


class _TrackedHandler(AsyncSocketModeHandler):
    """Bolt's handler, whose running tasks are tracked: slack_sdk (3.47) keeps no reference to them."""

    def __init__(self, app: AsyncApp, app_token: str, work: BackgroundTasks) -> None:
        super().__init__(app, app_token, ping_interval=PING_INTERVAL_SECONDS)
        self._work = work

    async def handle(self, client: Any, req: Any) -> None:
        with self._work.track_current():
            try:
                await super().handle(client, req)
            except ConnectionError:  # an event that is stored is recognised by its key
                log.info("the socket was closed before an event was acknowledged: Slack delivers it again")


class _WebSocket(aiohttp.ClientWebSocketResponse):
    """WebSocket that stores the time of the last frame that it received; 0 until Slack's `hello`.

    slack_sdk (3.47) calls its listeners for text frames only, of which a quiet workspace sends none.
    """

    last_event_at = 0.0

    async def receive(self, timeout: float | None = None) -> aiohttp.WSMessage:  # noqa: ASYNC109 (as aiohttp has it)
        message = await super().receive(timeout)
        if self.last_event_at and message.type in _SIGNS_OF_LIFE:
            self.last_event_at = time.time()
        return message


class _TicketSession:
    """HTTP session of a slack_sdk client; it deletes the client's URL after a failure.

    The client then requests a new URL. A URL of `apps.connections.open` is valid for one handshake, but slack_sdk
    (3.47) retries a failed handshake with the same URL.
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
