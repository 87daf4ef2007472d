"""The Socket Mode connection."""

from typing import Any

import aiohttp
from slack_bolt.adapter.socket_mode.async_handler import AsyncSocketModeHandler
from slack_bolt.async_app import AsyncApp
from slack_sdk.socket_mode.aiohttp import SocketModeClient

#: Seconds between pings; a socket that answers none of four is given up.
PING_INTERVAL = 5.0


def connect(app: AsyncApp, app_token: str) -> AsyncSocketModeHandler:
    """A handler for `app` whose connection finds its way back after a failed handshake."""
    handler = AsyncSocketModeHandler(app, app_token, ping_interval=PING_INTERVAL)
    client = handler.client
    client.aiohttp_client_session = _TicketSession(client, client.aiohttp_client_session)  # type: ignore[assignment]
    return handler


class _TicketSession:
    """What slack_sdk's client opens its sockets with, but for one thing: a failed handshake costs the ticket.

    A ticket of `apps.connections.open` is good for one handshake; slack_sdk (3.47) tries a failed one again with
    the same ticket, forever. It asks for a new one only when it has none.
    """

    def __init__(self, client: SocketModeClient, session: aiohttp.ClientSession) -> None:
        self._client = client
        self._session = session

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
