"""The one HTTP server of the process."""

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

from aiohttp import web

from core.errors import SettingsError

#: The most bytes that a request may have: Slack's are some kilobytes.
MOST_BYTES = 2**20

#: Seconds that requests may still take when the server is stopped.
STOP_SECONDS = 2.0


@asynccontextmanager
async def serving(port: int, routes: Iterable[web.AbstractRouteDef]) -> AsyncIterator[int]:
    """Serve `routes`, on all addresses of the machine, for as long as this is entered; without any, nothing listens.

    Args:
        port: where to listen; 0 for any that is free, and for this machine alone.

    Yields:
        The port.

    Raises:
        SettingsError: nobody can listen there.
    """
    wanted = list(routes)
    if not wanted:
        yield 0
        return
    app = web.Application(client_max_size=MOST_BYTES)
    app.add_routes(wanted)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=STOP_SECONDS)  # addresses hold codes and states
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, None if port else "127.0.0.1", port).start()
        except OSError as error:
            raise SettingsError(f"PORT={port}: nobody can listen there ({error.strerror})") from error
        yield int(runner.addresses[0][1])
    finally:
        await runner.cleanup()
