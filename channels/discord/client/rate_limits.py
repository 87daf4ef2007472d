"""Discord's rate limits: the headers of each answer, and calls that discord.py still holds.

Discord: docs.discord.com/developers/topics/rate-limits. It publishes no numbers, and asks to follow the headers.
"""

import asyncio
import json
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import ContextVar, copy_context
from dataclasses import dataclass
from typing import Any

import aiohttp
import discord

from channels.base import Priority
from channels.discord.client.auth import LONG_WAIT
from channels.rate_limits.limiter import Budget
from core.observability import metrics

#: The places in the budget of all requests that the call of this context was given and has not used.
PLACES: ContextVar[list[None]] = ContextVar("PLACES")

#: Has the answer to the call that is made in this context, as soon as Discord has taken it.
TAKEN: ContextVar[asyncio.Future[bytes]] = ContextVar("TAKEN")


@dataclass(frozen=True, slots=True)
class Told:
    """Of the window that is open: so many calls in all, so many left, for so many seconds more."""

    calls: int
    left: int
    seconds: float


def tracing(learn: Callable[[str, str, Told], None], everything: Callable[[], Budget]) -> aiohttp.TraceConfig:
    """Return the aiohttp trace that keeps the requests of discord.py within the limit of all requests.

    It waits for a place for each request that has none: the second page of a history, what discord.py sends again by
    itself, and its own requests, such as those of a login. aiohttp awaits a trace before it sends.

    It also counts the requests that Discord refuses and discord.py sends again, which discord.py tells nobody. One that
    it gives up is an error, and counted as one.

    Args:
        learn: is called with the method, the path and the window, for each answer that tells of a window.
        everything: returns the budget of all requests, but for those that answer interactions.
    """

    async def started(_session: aiohttp.ClientSession, context: Any, start: aiohttp.TraceRequestStartParams) -> None:
        context.budget = None
        if not _is_counted(str(start.url)):
            return
        places = PLACES.get(None)
        if places:
            places.pop()
            return
        budget = everything()
        await budget.admit(Priority.PROGRESS)
        context.budget = budget

    async def failed(_session: aiohttp.ClientSession, context: Any, _failure: object) -> None:
        if context.budget is not None:
            context.budget.answered()

    async def ended(_session: aiohttp.ClientSession, context: Any, end: aiohttp.TraceRequestEndParams) -> None:
        if context.budget is not None:
            context.budget.answered()
        response, headers = end.response, end.response.headers
        if response.status == 429 and "Via" in headers and float(headers.get("Retry-After", "0")) <= LONG_WAIT:
            metrics.platform_calls.add(1, {"channel": "discord", "method": end.method, "outcome": "limited"})
        with suppress(KeyError, ValueError):
            told = Told(
                int(headers["X-RateLimit-Limit"]),
                int(headers["X-RateLimit-Remaining"]),
                float(headers["X-RateLimit-Reset-After"]),
            )
            learn(end.method, end.url.path, told)
        if response.status < 300 and (taken := TAKEN.get(None)) is not None and not taken.done():
            taken.set_result(await response.read())

    trace = aiohttp.TraceConfig()
    trace.on_request_start.append(started)
    trace.on_request_exception.append(failed)
    trace.on_request_end.append(ended)
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
