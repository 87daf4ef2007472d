"""Discord's rate limits: the global limit, the headers of each answer, and calls that discord.py still holds.

Discord: docs.discord.com/developers/topics/rate-limits. It publishes no numbers, and asks to follow the headers.
"""

import asyncio
import json
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import ContextVar, copy_context
from typing import Any

import aiohttp
import discord

from channels.base import Priority
from channels.discord.client.auth import LONG_WAIT
from channels.rate_limits.limiter import RateLimiter
from core.observability import metrics

#: The priority of the requests that are made in this context.
PRIORITY = ContextVar("PRIORITY", default=Priority.PROGRESS)

#: Has the answer to the call that is made in this context, as soon as Discord has taken it.
TAKEN: ContextVar[asyncio.Future[bytes]] = ContextVar("TAKEN")


def trace_requests(
    report_headers: Callable[[str, str, int, float], None], global_limiter: Callable[[], RateLimiter]
) -> aiohttp.TraceConfig:
    """Return the aiohttp trace that keeps the requests of discord.py within Discord's global limit.

    Each request waits for the limiter: those that discord.py sends by itself as well, such as the second page of a
    history, a retry or a login. aiohttp awaits a trace before it sends.

    The trace also counts the requests that Discord refuses and discord.py retries without telling anybody. A request
    that discord.py gives up is an error, and counted as one.

    Args:
        report_headers: called with the method, the path, and the remaining calls and seconds of the open window.
        global_limiter: returns the limiter of all requests, but for those that answer interactions.
    """

    async def on_start(_session: aiohttp.ClientSession, context: Any, start: aiohttp.TraceRequestStartParams) -> None:
        context.limiter = None
        if _is_counted(str(start.url)):
            limiter = global_limiter()
            await limiter.acquire(PRIORITY.get())
            context.limiter = limiter

    async def on_exception(_session: aiohttp.ClientSession, context: Any, _failure: object) -> None:
        if context.limiter is not None:
            context.limiter.complete()

    async def on_end(_session: aiohttp.ClientSession, context: Any, end: aiohttp.TraceRequestEndParams) -> None:
        if context.limiter is not None:
            context.limiter.complete()
        response, headers = end.response, end.response.headers
        if response.status == 429 and "Via" in headers and float(headers.get("Retry-After", "0")) <= LONG_WAIT:
            metrics.platform_calls.add(1, {"channel": "discord", "method": end.method, "outcome": "limited"})
        with suppress(KeyError, ValueError):
            remaining, reset_after = headers["X-RateLimit-Remaining"], headers["X-RateLimit-Reset-After"]
            report_headers(end.method, end.url.path, int(remaining), float(reset_after))
        if response.status < 300 and (taken := TAKEN.get(None)) is not None and not taken.done():
            taken.set_result(await response.read())

    trace = aiohttp.TraceConfig()
    trace.on_request_start.append(on_start)
    trace.on_request_exception.append(on_exception)
    trace.on_request_end.append(on_end)
    return trace


def _is_counted(url: str) -> bool:
    """Return whether a request counts in Discord's limit of all requests: those that answer interactions do not."""
    base: str = discord.http.Route.BASE
    return url.startswith(f"{base}/") and not url.removeprefix(base).startswith(("/interactions/", "/webhooks/"))


class Taking:
    """Waits for calls to take effect, and for no longer.

    discord.py keeps who has made a call, when it has taken effect, until the window is over in which it was the last
    one, or in which those under way leave no other; here, whoever wants to make the next one waits.
    """

    def __init__(self) -> None:
        self._resting = set[asyncio.Task[Any]]()

    async def taken(self, call: Coroutine[Any, Any, Any]) -> Any:
        """What Discord answers to `call`, as soon as it has taken it; what is raised until then is raised."""
        taken, context = asyncio.get_running_loop().create_future(), copy_context()
        context.run(TAKEN.set, taken)
        calling = asyncio.create_task(call, name="call", context=context)
        self._resting.add(calling)
        calling.add_done_callback(self._rested)
        await asyncio.wait([calling, taken], return_when=asyncio.FIRST_COMPLETED)
        if not taken.done():
            calling.result()
        return json.loads(taken.result())

    async def aclose(self) -> None:
        """Wait for nothing more."""
        for call in self._resting:
            call.cancel()
        if self._resting:
            await asyncio.wait(self._resting)

    def _rested(self, call: asyncio.Task[Any]) -> None:
        self._resting.discard(call)
        if not call.cancelled():
            call.exception()  # whoever waited for it has it
