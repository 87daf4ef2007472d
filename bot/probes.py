"""Probes: what platforms that run the process ask it.

`/healthz` answers for as long as the event loop turns: a process that does not answer is to be started anew. `/readyz`
answers with 200 if what is said is heard and kept, and with 503 and a line for each reason if not: a process that is
not ready may become so by itself.
"""

from collections.abc import Sequence

from aiohttp import web

from bot.monitoring.health import Health

ALIVE = "/healthz"
READY = "/readyz"


def probes(health: Health) -> Sequence[web.AbstractRouteDef]:
    """The routes of both."""

    async def alive(_request: web.Request) -> web.Response:
        return web.Response(text="alive\n")

    async def ready(_request: web.Request) -> web.Response:
        if health.is_ready:
            return web.Response(text="ready\n")
        return web.Response(status=503, text="".join(f"{reason}\n" for reason in health.why))

    return [web.get(ALIVE, alive), web.get(READY, ready)]
