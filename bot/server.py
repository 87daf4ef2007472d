"""HTTP server of the process: health probes and the routes that platforms call.

`/healthz` answers while the event loop runs; a process that does not answer should be restarted. `/readyz` answers 200
if messages are received and stored, else 503 with a line per reason. A process that is not ready may recover by itself.
"""

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager

from aiohttp import web
from aiohttp.http import HttpProcessingError
from aiohttp.log import server_logger

from bot.connections import ConnectionLimiter
from bot.monitoring.health import HealthMonitor
from bot.settings.monitoring import LOOPBACK
from core.errors import SettingsError

log = logging.getLogger(__name__)

#: Most bytes of a request; Slack's are a few kilobytes.
MAX_REQUEST_BYTES = 2**20

#: Seconds that open requests have to end when the server stops.
SHUTDOWN_TIMEOUT_SECONDS = 2.0

#: Seconds that a request waits for routes that are not added yet. Slack waits for 3.
HOLD_SECONDS = 2.0

#: `Retry-After` (seconds) of a request whose route was not added in time.
RETRY_AFTER_SECONDS = 2

#: Seconds until a request that has arrived gets a response. GitHub waits for 10
#: (docs.github.com/en/webhooks/using-webhooks/best-practices-for-using-webhooks).
RESPONSE_TIMEOUT_SECONDS = 8.0

LIVENESS_PATH = "/healthz"

READINESS_PATH = "/readyz"


#: Errors of which the client is the cause: a request that is no valid HTTP, and a lost connection.
_CLIENT_ERRORS = (HttpProcessingError, web.RequestPayloadError, ConnectionError)


class HttpServer:
    """HTTP server that serves the probes at once, and the platforms' routes later.

    `add_routes` adds the platforms' routes. Until then, a request for one waits up to `HOLD_SECONDS`, and then
    gets 503 with `Retry-After`.

    Attributes:
        port: TCP port that the server listens on; 0 if it does not listen.
    """

    def __init__(self) -> None:
        self.port = 0
        self._routes = web.UrlDispatcher()
        self._is_complete = asyncio.Event()

    def add_routes(self, routes: Iterable[web.AbstractRouteDef]) -> None:
        """Add the platforms' routes, once, and wake the requests that wait for them."""
        self._routes.add_routes(routes)
        self._is_complete.set()

    async def dispatch(self, request: web.Request) -> web.StreamResponse:
        """Respond to a request by the matching route of `add_routes`; without one, raise a 404 or 405."""
        try:
            async with asyncio.timeout(HOLD_SECONDS):
                await self._is_complete.wait()
        except TimeoutError:
            return web.Response(status=503, text="starting\n", headers={"Retry-After": str(RETRY_AFTER_SECONDS)})
        return await (await self._routes.resolve(request)).handler(request)


@asynccontextmanager
async def run_server(
    port: int, routes: Iterable[web.AbstractRouteDef], *, is_needed: bool, host: str | None = LOOPBACK
) -> AsyncIterator[HttpServer]:
    """Serve HTTP requests while the block runs, and yield the server.

    At the end of the block, open requests have `SHUTDOWN_TIMEOUT_SECONDS` to end. If the server cannot listen and is
    not needed, the block runs all the same.

    Args:
        port: port to listen on; 0 for any free one on the loopback interface.
        routes: routes that are served at once: those of the probes and of the metrics.
        is_needed: whether a platform sends requests: then a failure to listen is a `SettingsError`, else a warning.
        host: address to listen on; None for all interfaces.
    """
    server = HttpServer()

    @web.middleware
    async def limit_connections(
        request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        return await limiter.handle(request, handler)

    app = web.Application(client_max_size=MAX_REQUEST_BYTES, middlewares=[limit_connections])
    app.add_routes([*routes, web.route("*", "/{path:.*}", server.dispatch)])
    runner = web.AppRunner(
        app, access_log=None, shutdown_timeout=SHUTDOWN_TIMEOUT_SECONDS
    )  # no access log: URLs contain OAuth codes and states
    await runner.setup()
    assert runner.server is not None
    limiter = ConnectionLimiter(runner.server)
    server_logger.addFilter(_is_server_error)
    listener: asyncio.Server | None = None
    try:
        try:
            listener = await asyncio.get_running_loop().create_server(limiter, host if port else LOOPBACK, port)
        except OSError as error:
            name = f"LISTEN_HOST={host}" if isinstance(error, socket.gaierror) else f"PORT={port}"
            problem = f"{name}: the bot cannot listen there ({error.strerror})"
            if is_needed:
                raise SettingsError(problem) from error
            log.warning("%s, so /healthz, /readyz and /metrics are not served: set another PORT; 0 takes any", problem)
        else:
            server.port = int(listener.sockets[0].getsockname()[1])
            interface = "all interfaces" if host is None else host
            log.info(
                "/healthz, /readyz and /metrics are at port %s of %s", server.port, interface if port else LOOPBACK
            )
        yield server
    finally:
        if listener is not None:
            listener.close()
        await runner.cleanup()
        server_logger.removeFilter(_is_server_error)


def _is_server_error(record: logging.LogRecord) -> bool:
    """Return whether aiohttp logs an error of ours; log one of a client as a line at DEBUG.

    aiohttp logs both at ERROR with a traceback, so that anybody could fill the log.
    """
    error = record.exc_info[1] if record.exc_info else None
    if not isinstance(error, _CLIENT_ERRORS):
        return True
    log.debug("a request is not answered: %s", type(error).__name__)
    return False


def make_probe_routes(health: HealthMonitor) -> Sequence[web.AbstractRouteDef]:
    """Return the routes of `/healthz`, always 200, and `/readyz`, 200 or 503 with its reasons."""

    async def alive(_request: web.Request) -> web.Response:
        return web.Response(text="alive\n")

    async def ready(_request: web.Request) -> web.Response:
        if health.is_ready:
            return web.Response(text="ready\n")
        return web.Response(status=503, text="".join(f"{reason}\n" for reason in health.reasons))

    return [web.get(LIVENESS_PATH, alive), web.get(READINESS_PATH, ready)]


async def read_body(request: web.Request, max_bytes: int) -> bytes | None:
    """Return the body of a request; None if it has more bytes than allowed, most of which are not read."""
    if (request.content_length or 0) > max_bytes:
        return None
    body = bytearray()
    async for chunk in request.content.iter_any():
        body += chunk
        if len(body) > max_bytes:
            return None
    return bytes(body)


def refuse_request(status: int, reason: str, retry_after: int | None = None) -> web.Response:
    """Return a response with a sentence for the program that sent the request."""
    headers = {} if retry_after is None else {"Retry-After": str(retry_after)}
    return web.json_response({"error": reason}, status=status, headers=headers)
