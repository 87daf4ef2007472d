"""HTTP server of the process: health probes and the routes that platforms call.

`/healthz` answers while the event loop runs; a process that does not answer should be restarted. `/readyz` answers
200 if messages are received and stored, else 503 with a line per reason; a process that is not ready may recover by
itself.
"""

import logging
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager

from aiohttp import web

from bot.monitoring.health import Health
from core.errors import SettingsError

log = logging.getLogger(__name__)

#: The most bytes that a request may have: Slack's are some kilobytes.
MOST_BYTES = 2**20

#: Seconds that requests may still take when the server is stopped.
STOP_SECONDS = 2.0

#: Seconds after which who calls while the process starts may call again.
RETRY_SECONDS = 2

ALIVE = "/healthz"

READY = "/readyz"


class Server:
    """What is served, from the first moment on; what else is to be, once it can be.

    Attributes:
        port: where it listens; 0 if it does not.
    """

    def __init__(self) -> None:
        self.port = 0
        self._late: web.UrlDispatcher | None = None

    def add(self, routes: Iterable[web.AbstractRouteDef]) -> None:
        """Serve these as well: all that there will be. Until then, who asks for anything else is told to come again."""
        self._late = web.UrlDispatcher()
        self._late.add_routes(routes)

    async def rest(self, request: web.Request) -> web.StreamResponse:
        """Answer what is asked of the routes that came late."""
        if self._late is None:
            return web.Response(status=503, text="starting\n", headers={"Retry-After": str(RETRY_SECONDS)})
        return await (await self._late.resolve(request)).handler(request)


@asynccontextmanager
async def serving(port: int, routes: Iterable[web.AbstractRouteDef], *, is_needed: bool) -> AsyncIterator[Server]:
    """Serve `routes`, on all addresses of the machine, for as long as this is entered.

    Args:
        port: where to listen; 0 for any that is free, and for this machine alone.
        is_needed: whether a platform calls there: if nobody can listen, that is an error, and else a warning.

    Raises:
        SettingsError: nobody can listen there.
    """
    server, app = Server(), web.Application(client_max_size=MOST_BYTES)
    app.add_routes([*routes, web.route("*", "/{path:.*}", server.rest)])
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=STOP_SECONDS)  # addresses hold codes and states
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, None if port else "127.0.0.1", port).start()
        except OSError as error:
            taken = f"PORT={port}: nobody can listen there ({error.strerror})"
            if is_needed:
                raise SettingsError(taken) from error
            log.warning("%s, so /healthz, /readyz and /metrics are not served: set another one; 0 takes any", taken)
        else:
            server.port = int(runner.addresses[0][1])
            log.info("/healthz, /readyz and /metrics are at port %s", server.port)
        yield server
    finally:
        await runner.cleanup()


def probes(health: Health) -> Sequence[web.AbstractRouteDef]:
    """The routes of both."""

    async def alive(_request: web.Request) -> web.Response:
        return web.Response(text="alive\n")

    async def ready(_request: web.Request) -> web.Response:
        if health.is_ready:
            return web.Response(text="ready\n")
        return web.Response(status=503, text="".join(f"{reason}\n" for reason in health.why))

    return [web.get(ALIVE, alive), web.get(READY, ready)]
