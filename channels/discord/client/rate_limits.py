"""Discord's global rate limit, the limits in headers, and calls that return late.

Discord: docs.discord.com/developers/topics/rate-limits. It documents no numbers, and asks to follow the headers.
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
from channels.discord.client.auth import MAX_WAIT_SECONDS
from channels.rate_limits.limiter import RateLimiter
from core.observability import metrics

#: Priority of the requests in this context.
REQUEST_PRIORITY = ContextVar("REQUEST_PRIORITY", default=Priority.PROGRESS)

#: Future whose result becomes the body of the successful response to the call in this context.
RESPONSE_BODY: ContextVar[asyncio.Future[bytes]] = ContextVar("RESPONSE_BODY")


def trace_requests(
    report_headers: Callable[[str, str, int, float], None], global_limiter: Callable[[], RateLimiter]
) -> aiohttp.TraceConfig:
    """Return an aiohttp trace that makes requests obey Discord's global rate limit.

    Each request waits for a slot of the limiter. This includes requests that discord.py makes by itself, such as the
    second page of a history, a retry or a login. aiohttp awaits a trace before it sends a request.

    The trace also counts, in the metrics, the responses with 429 after which discord.py retries by itself.

    Args:
        report_headers: called for each response with headers of a rate limit: with the HTTP method, the path, and the
            calls and the seconds that remain in the current window.
    """

    async def on_start(_session: aiohttp.ClientSession, context: Any, start: aiohttp.TraceRequestStartParams) -> None:
        context.limiter = None
        if _is_in_global_limit(str(start.url)):
            limiter = global_limiter()
            await limiter.acquire(REQUEST_PRIORITY.get())
            context.limiter = limiter

    async def on_exception(_session: aiohttp.ClientSession, context: Any, _failure: object) -> None:
        if context.limiter is not None:
            context.limiter.complete()

    async def on_end(_session: aiohttp.ClientSession, context: Any, end: aiohttp.TraceRequestEndParams) -> None:
        if context.limiter is not None:
            context.limiter.complete()
        response = end.response
        headers = end.response.headers
        if response.status == 429 and "Via" in headers and float(headers.get("Retry-After", "0")) <= MAX_WAIT_SECONDS:
            metrics.platform_calls.add(1, {"platform": "discord", "method": end.method, "outcome": "limited"})
        with suppress(KeyError, ValueError):
            remaining = headers["X-RateLimit-Remaining"]
            reset_after = headers["X-RateLimit-Reset-After"]
            report_headers(end.method, end.url.path, int(remaining), float(reset_after))
        if response.status < 300 and (body := RESPONSE_BODY.get(None)) is not None and not body.done():
            body.set_result(await response.read())

    trace = aiohttp.TraceConfig()
    trace.on_request_start.append(on_start)
    trace.on_request_exception.append(on_exception)
    trace.on_request_end.append(on_end)
    return trace


def _is_in_global_limit(url: str) -> bool:
    """Return whether a request counts towards the global rate limit: responses to interactions do not."""
    base: str = discord.http.Route.BASE
    return url.startswith(f"{base}/") and not url.removeprefix(base).startswith(("/interactions/", "/webhooks/"))


class PendingCalls:
    """Awaits the HTTP responses to discord.py calls, and not the returns of the calls.

    When a call uses up the window of a rate limit, discord.py returns from the call only when the window ends. The bot
    uses the response at once: its own rate limiter delays the next call.
    """

    def __init__(self) -> None:
        self._tasks = set[asyncio.Task[Any]]()

    async def run_call(self, call: Coroutine[Any, Any, Any]) -> Any:
        """Make a call of discord.py, and return the JSON of Discord's response on arrival.

        The call may still be running then: see `aclose`. A cancellation of this wait does not cancel the call.
        """
        body = asyncio.get_running_loop().create_future()
        context = copy_context()
        context.run(RESPONSE_BODY.set, body)
        calling = asyncio.create_task(call, name="call", context=context)
        self._tasks.add(calling)
        calling.add_done_callback(self._discard_task)
        await asyncio.wait([calling, body], return_when=asyncio.FIRST_COMPLETED)
        if not body.done():
            calling.result()
        return json.loads(body.result())

    async def aclose(self) -> None:
        """Cancel the calls of discord.py that have not returned yet, and await their end."""
        for call in self._tasks:
            call.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _discard_task(self, call: asyncio.Task[Any]) -> None:
        self._tasks.discard(call)
        if not call.cancelled():
            call.exception()  # its caller has it, and asyncio logs an unread one
