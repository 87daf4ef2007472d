"""Limits of the HTTP server: concurrent connections, request time, open files."""

import asyncio
import logging
import resource
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from aiohttp import web

from channels.base import ARRIVED_AT

log = logging.getLogger(__name__)

#: Concurrent connections. At the limit, a new one replaces the one that is idle the longest.
MAX_CONNECTIONS = 200

#: Seconds within which a request, headers and body, must arrive.
REQUEST_SECONDS = 10.0

#: Open files that the process requests; the hard limit may be lower.
OPEN_FILES = 65_536


class ConnectionLimiter:
    """Protocol factory of a server; it limits the connections and closes slow ones.

    The server's requests must pass through `handle`. At `MAX_CONNECTIONS`, a new connection replaces the one that is
    idle the longest, or a busy one if none is idle. The first request must arrive completely within `REQUEST_SECONDS`
    of the connection, a later one within `REQUEST_SECONDS` of its first byte.
    """

    def __init__(self, make_handler: Callable[[], asyncio.Protocol]) -> None:
        self._make_handler = make_handler
        self._connections = dict[asyncio.BaseTransport, _Connection]()

    def __call__(self) -> asyncio.Protocol:
        return _Connection(self._make_handler(), self._connections)

    async def handle(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        """Call `handler` with a request whose headers have arrived, as an aiohttp middleware.

        The current time of the event loop is stored in `request[ARRIVED_AT]`. The connection counts as busy from the
        end of the request's body until the response.
        """
        request[ARRIVED_AT] = asyncio.get_running_loop().time()
        connection = self._connections.get(request.transport) if request.transport is not None else None
        if connection is None:  # it was closed meanwhile
            return await handler(request)
        with connection.track_request(request):
            return await handler(request)


class _Connection(asyncio.Protocol):
    """Protocol of one connection, which it aborts if a request does not arrive in time."""

    def __init__(self, handler: asyncio.Protocol, connections: "dict[asyncio.BaseTransport, _Connection]") -> None:
        self._handler = handler
        self._connections = connections
        self._transport: asyncio.Transport | None = None
        self._request: web.Request | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._idle_since = 0.0

    @property
    def _is_busy(self) -> bool:
        """True if a request has completely arrived and has no response yet."""
        return self._request is not None and self._request.content.is_eof()

    @contextmanager
    def track_request(self, request: web.Request) -> Iterator[None]:
        self._request = request
        try:
            yield
        finally:
            self._request = None
            self._idle_since = time.monotonic()
            self._cancel_deadline()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        if len(self._connections) >= MAX_CONNECTIONS:
            min(self._connections.values(), key=lambda each: (each._is_busy, each._idle_since))._abort()
        self._transport = transport
        self._connections[transport] = self
        self._expect_request()
        self._handler.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        if self._request is None and self._deadline is None:
            self._expect_request()
        self._handler.data_received(data)

    def eof_received(self) -> bool | None:
        return self._handler.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget()
        self._handler.connection_lost(exc)

    def pause_writing(self) -> None:
        self._handler.pause_writing()

    def resume_writing(self) -> None:
        self._handler.resume_writing()

    def _expect_request(self) -> None:
        self._idle_since = time.monotonic()
        self._deadline = asyncio.get_running_loop().call_later(REQUEST_SECONDS, self._check_request)

    def _check_request(self) -> None:
        self._deadline = None
        if not self._is_busy:
            self._abort()

    def _abort(self) -> None:
        self._forget()
        if self._transport is not None:
            self._transport.abort()

    def _forget(self) -> None:
        self._cancel_deadline()
        if self._transport is not None:
            self._connections.pop(self._transport, None)

    def _cancel_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


def raise_open_files_limit() -> None:
    """Raise the process's soft limit of open files to the lower of `OPEN_FILES` and the hard limit.

    If the system refuses, a warning is logged and the limit stays.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    target = OPEN_FILES if hard == resource.RLIM_INFINITY else min(OPEN_FILES, hard)
    if soft == resource.RLIM_INFINITY or soft >= target:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (target, hard))
    except (ValueError, OSError) as error:
        log.warning("the limit of open files stays at %s: %s", soft, error)
