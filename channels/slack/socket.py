"""The Socket Mode connection: kept by slack_sdk, and watched here."""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import aiohttp
from slack_bolt.adapter.socket_mode.async_handler import AsyncSocketModeHandler
from slack_bolt.async_app import AsyncApp
from slack_sdk.errors import SlackApiError
from slack_sdk.socket_mode.aiohttp import SocketModeClient

from channels.slack.api import refusal
from core.secrets import traced

log = logging.getLogger(__name__)

#: Seconds between pings; a socket that answers none of four is given up.
PING_INTERVAL = 5.0

#: Seconds between two calls that prove that the bot's token is good. Slack: a socket stays open without one.
PROOF_INTERVAL = 10.0

#: Seconds that hanging up may take.
CLOSE_TIMEOUT = 2.0

#: The frames that show that somebody is at the other end.
_SIGNS = (aiohttp.WSMsgType.TEXT, aiohttp.WSMsgType.PING, aiohttp.WSMsgType.PONG)


class Socket:
    """The connection of `app`, which finds its way back after a failed handshake.

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
        self._proved_at = 0.0
        self._connecting: asyncio.Task[None] | None = None
        self._proving: asyncio.Task[None] | None = None

    @property
    def heard_at(self) -> float:
        """The time of the last sign of life, in seconds since the epoch: of the line, and of a good token."""
        return 0.0 if self._line is None else min(self._line.heard_at, self._proved_at)

    async def open(self) -> None:
        """Connect; returns when that is done. The token is taken to be good at first."""
        self._proved_at = time.time()
        self._proving = asyncio.create_task(self._prove(), name="slack token")
        await asyncio.wait([await self._begin()])

    async def reopen(self) -> None:
        """Give the connection up for dead and connect anew; returns when that has begun."""
        await self._leave()
        await self._begin()

    async def close(self) -> None:
        """Hang up; returns when that is done."""
        if self._proving is not None:
            self._proving.cancel()
            await asyncio.wait([self._proving])
        await self._leave()

    async def _begin(self) -> asyncio.Task[None]:
        """Have slack_sdk connect, which it tries until it can."""
        client = self._client = AsyncSocketModeHandler(self._app, self._app_token, ping_interval=PING_INTERVAL).client
        client.message_listeners.append(self._greet)
        await client.aiohttp_client_session.close()  # another one takes its place before it has opened anything
        client.aiohttp_client_session = _TicketSession(client)  # type: ignore[assignment]
        self._connecting = asyncio.create_task(client.connect(), name="slack socket")
        return self._connecting

    async def _leave(self) -> None:
        """Hang up, whether or not anybody is at the other end: slack_sdk alone would wait for him."""
        client = self._client
        if client is None:
            return
        with suppress(Exception):
            await asyncio.wait_for(client.close(), CLOSE_TIMEOUT)
        tasks = [self._connecting, client.message_processor, client.current_session_monitor, client.message_receiver]
        for task in (left := [task for task in tasks if task is not None]):
            task.cancel()
        await asyncio.wait(left)
        await client.aiohttp_client_session.close()
        self._client = None

    async def _greet(self, client: Any, message: Mapping[str, Any], _raw: str | None = None) -> None:
        line = client.current_session
        if message.get("type") != "hello" or client is not self._client or not isinstance(line, _Line):
            return
        lost, self._line = self._line, line
        line.heard_at = time.time()
        if lost is not None:
            self._on_back(lost.heard_at)

    async def _prove(self) -> None:
        """Slack says nothing on a socket of a token that is good no more."""
        while True:
            await asyncio.sleep(PROOF_INTERVAL)
            try:
                await self._app.client.auth_test()
                self._proved_at = time.time()
            except SlackApiError as error:
                status, code, _ = refusal(error)
                if status == 429:
                    self._proved_at = time.time()
                else:
                    log.warning("auth.test: Slack says %s", code or f"HTTP {status}")
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                log.warning("auth.test: Slack cannot be reached: %s", traced(error))


class _Line(aiohttp.ClientWebSocketResponse):
    """One socket.

    Attributes:
        heard_at: the time of the last sign of life, in seconds since the epoch; 0 until Slack has said hello.
    """

    heard_at = 0.0

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
