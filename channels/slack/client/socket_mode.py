"""The Socket Mode connections: kept by slack_sdk, and watched here."""

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

from core.concurrency.tasks import Work

log = logging.getLogger(__name__)

#: Seconds between pings; a socket that answers none of so many is given up.
PING_INTERVAL = 5.0
PINGS = 4

#: Seconds that hanging up may take.
CLOSE_TIMEOUT = 2.0

#: The frames that show that somebody is at the other end.
_SIGNS = (aiohttp.WSMsgType.TEXT, aiohttp.WSMsgType.PING, aiohttp.WSMsgType.PONG)


class Sockets:
    """The connections of `app`. Slack tells each event by one of them, whichever, so that none is lost while one of
    two is made anew.

    Args:
        on_back: called when there is a connection again where none was, with the time (seconds since the epoch) of the
            last sign of life of the one before.
    """

    def __init__(self, app: AsyncApp, app_token: str, *, count: int, on_back: Callable[[float], None]) -> None:
        self._sockets: list[Socket] = []
        for _ in range(count):
            self._sockets.append(Socket(app, app_token, on_back=partial(self._back, len(self._sockets))))
        self._on_back = on_back

    @property
    def heard_at(self) -> float:
        """The time of the last sign of life, in seconds since the epoch."""
        return max(socket.heard_at for socket in self._sockets)

    async def open(self) -> None:
        """Connect; returns when that is done."""
        await asyncio.gather(*(socket.open() for socket in self._sockets))

    async def reopen(self) -> None:
        """Give the connections up for dead and connect anew; returns when that has begun."""
        await asyncio.gather(*(socket.reopen() for socket in self._sockets))

    async def close(self) -> None:
        """Hang up; returns when that is done."""
        await asyncio.gather(*(socket.close() for socket in self._sockets))

    def _back(self, index: int, since: float) -> None:
        """One is back; nothing was missed if another one has stood all the while."""
        if not any(other.has_stood(since) for place, other in enumerate(self._sockets) if place != index):
            self._on_back(since)


class Socket:
    """A connection of `app`, which finds its way back after a failed handshake.

    Args:
        on_back: called with each connection but the first, with the time (seconds since the epoch) of the last sign of
            life of the one before.
    """

    def __init__(self, app: AsyncApp, app_token: str, *, on_back: Callable[[float], None]) -> None:
        self._app = app
        self._app_token = app_token
        self._on_back = on_back
        self._client: SocketModeClient | None = None
        self._line: _Line | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._work = Work()

    @property
    def heard_at(self) -> float:
        """The time of the last sign of life, in seconds since the epoch; 0 before the first."""
        return 0.0 if self._line is None else self._line.heard_at

    def has_stood(self, since: float) -> bool:
        """Whether what is connected now was so then (seconds since the epoch), and is alive."""
        line = self._line
        if line is None or line.closed:
            return False
        return line.opened_at <= since and line.heard_at > time.time() - PINGS * PING_INTERVAL

    async def open(self) -> None:
        """Connect; returns when that is done."""
        await asyncio.wait([await self._begin()])

    async def reopen(self) -> None:
        """Give the connection up for dead and connect anew; returns when that has begun."""
        await self._leave()
        await self._begin()

    async def close(self) -> None:
        """Hang up; returns when that is done."""
        await self._leave()

    async def _begin(self) -> asyncio.Task[None]:
        """Have slack_sdk connect, which it tries until it can."""
        handler = AsyncSocketModeHandler(self._app, self._app_token, ping_interval=PING_INTERVAL)
        client = self._client = handler.client
        client.socket_mode_request_listeners[:] = [partial(self._take, handler)]
        client.message_listeners.append(self._greet)
        await client.aiohttp_client_session.close()  # another one takes its place before it has opened anything
        client.aiohttp_client_session = _TicketSession(client)  # type: ignore[assignment]
        self._connecting = asyncio.create_task(client.connect(), name="slack socket")
        return self._connecting

    async def _leave(self) -> None:
        """Hang up, whether or not anybody is at the other end: slack_sdk alone would wait for him.

        What is being taken is waited for; what is not taken in time was not acknowledged, and Slack brings it again.
        """
        client = self._client
        if client is None:
            return
        with suppress(Exception):
            async with asyncio.timeout(CLOSE_TIMEOUT):
                await client.close()
        await self._work.end(CLOSE_TIMEOUT)
        tasks = [self._connecting, client.message_processor, client.current_session_monitor, client.message_receiver]
        for task in (left := [task for task in tasks if task is not None]):
            task.cancel()
        await asyncio.wait(left, timeout=CLOSE_TIMEOUT)
        await client.aiohttp_client_session.close()
        self._client = None

    async def _take(self, handler: AsyncSocketModeHandler, client: Any, request: Any) -> None:
        """Have Bolt take what Slack brings. slack_sdk (3.47) has each taken by a task that it lets go of."""
        with self._work.under_way():
            try:
                await handler.handle(client, request)
            except ConnectionError:  # what is kept is known when it comes again
                log.info("the socket is gone on which something was to be acknowledged: Slack brings it again")

    async def _greet(self, client: Any, message: Mapping[str, Any], _raw: str | None = None) -> None:
        line = client.current_session
        if message.get("type") != "hello" or client is not self._client or not isinstance(line, _Line):
            return
        lost, self._line = self._line, line
        line.opened_at = line.heard_at = time.time()
        if lost is not None:
            self._on_back(lost.heard_at)


class _Line(aiohttp.ClientWebSocketResponse):
    """One socket.

    Attributes:
        opened_at: when Slack has said hello, in seconds since the epoch; 0 until then.
        heard_at: the time of the last sign of life, in seconds since the epoch; 0 until Slack has said hello.
    """

    opened_at = heard_at = 0.0

    async def receive(self, timeout: float | None = None) -> aiohttp.WSMessage:  # noqa: ASYNC109 (as aiohttp has it)
        message = await super().receive(timeout)
        if self.heard_at and message.type in _SIGNS:
            self.heard_at = time.time()
        return message


class _TicketSession:
    """What slack_sdk's client opens its sockets with, but for one thing: a failed handshake costs the ticket.

    A ticket of `apps.connections.open` is good for one handshake; slack_sdk (3.47) tries a failed one again with
    the same ticket, forever. It asks for a new one only when it has none.
    """

    def __init__(self, client: SocketModeClient) -> None:
        self._client = client
        self._session = aiohttp.ClientSession(ws_response_class=_Line)

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
