"""HTTP server of the process: health probes and the routes that platforms call.

`/healthz` answers while the event loop runs; a process that does not answer should be restarted. `/readyz` answers
200 if messages are received and stored, else 503 with a line per reason; a process that is not ready may recover by
itself.
"""

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager

from aiohttp import web

from bot.connections import AcceptErrorLog, ConnectionLimiter
from bot.monitoring.health import Health
from bot.settings.monitoring import LOOPBACK
from core.errors import SettingsError

log = logging.getLogger(__name__)

#: The most bytes that a request may have: Slack's are some kilobytes.
MAX_BYTES = 2**20

#: Seconds that requests may still take when the server is stopped.
SHUTDOWN_TIMEOUT_SECONDS = 2.0

#: Seconds for which a request is held that arrives before its route is there. Slack waits for 3.
HOLD_SECONDS = 2.0

#: Seconds after which a client may call again that was held in vain.
RETRY_SECONDS = 2

ALIVE = "/healthz"

READY = "/readyz"


class Server:
    """Serves the probes from the first moment on, and the platforms' routes once they are there.

    Attributes:
        port: where it listens; 0 if it does not.
    """

    def __init__(self) -> None:
        self.port = 0
        self._routes = web.UrlDispatcher()
        self._is_complete = asyncio.Event()

    def add(self, routes: Iterable[web.AbstractRouteDef]) -> None:
        """Serve these routes as well, which are all that there will be, and let held requests go on."""
        self._routes.add_routes(routes)
        self._is_complete.set()

    async def dispatch(self, request: web.Request) -> web.StreamResponse:
        """Handle a request by one of the added routes; hold it while there are none yet."""
        try:
            async with asyncio.timeout(HOLD_SECONDS):
                await self._is_complete.wait()
        except TimeoutError:
            return web.Response(status=503, text="starting\n", headers={"Retry-After": str(RETRY_SECONDS)})
        return await (await self._routes.resolve(request)).handler(request)


@asynccontextmanager
async def serving(
    port: int, routes: Iterable[web.AbstractRouteDef], *, is_needed: bool, host: str | None = LOOPBACK
) -> AsyncIterator[Server]:
    """Serve `routes` for as long as this is entered.

    Args:
        port: where to listen; 0 for any that is free, on the loopback interface.
        is_needed: whether a platform calls there: if it cannot listen, that is an error, and else a warning.
        host: the address to listen on; None for all interfaces.

    Raises:
        SettingsError: the port or the address cannot be listened on.
    """
    server, loop = Server(), asyncio.get_running_loop()

    @web.middleware
    async def limited(
        request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        return await limiter.handle(request, handler)

    app = web.Application(client_max_size=MAX_BYTES, middlewares=[limited])
    app.add_routes([*routes, web.route("*", "/{path:.*}", server.dispatch)])
    runner = web.AppRunner(
        app, access_log=None, shutdown_timeout=SHUTDOWN_TIMEOUT_SECONDS
    )  # addresses hold codes and states
    await runner.setup()
    assert runner.server is not None
    limiter = ConnectionLimiter(runner.server)
    handler_before = loop.get_exception_handler()
    loop.set_exception_handler(AcceptErrorLog())
    listener: asyncio.Server | None = None
    try:
        try:
            listener = await loop.create_server(limiter, host if port else LOOPBACK, port)
        except OSError as error:
            name = f"LISTEN_HOST={host}" if isinstance(error, socket.gaierror) else f"PORT={port}"
            taken = f"{name}: the bot cannot listen there ({error.strerror})"
            if is_needed:
                raise SettingsError(taken) from error
            log.warning("%s, so /healthz, /readyz and /metrics are not served: set another one; 0 takes any", taken)
        else:
            server.port = int(listener.sockets[0].getsockname()[1])
            where = "all interfaces" if host is None else host
            log.info("/healthz, /readyz and /metrics are at port %s of %s", server.port, where if port else LOOPBACK)
        yield server
    finally:
        loop.set_exception_handler(handler_before)
        if listener is not None:
            listener.close()
        await runner.cleanup()


def probes(health: Health) -> Sequence[web.AbstractRouteDef]:
    """Return the routes of both probes."""

    async def alive(_request: web.Request) -> web.Response:
        return web.Response(text="alive\n")

    async def ready(_request: web.Request) -> web.Response:
        if health.is_ready:
            return web.Response(text="ready\n")
        return web.Response(status=503, text="".join(f"{reason}\n" for reason in health.why))

    return [web.get(ALIVE, alive), web.get(READY, ready)]
