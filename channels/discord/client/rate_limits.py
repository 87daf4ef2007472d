"""What Discord says of its limits, in the headers of each answer.

Discord: docs.discord.com/developers/topics/rate-limits. It publishes no numbers, and asks to go by these.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import aiohttp

from channels.discord.client.auth import LONG_WAIT
from core.observability import metrics


@dataclass(frozen=True, slots=True)
class Told:
    """Of the window that is open: so many calls in all, so many left, for so many seconds more."""

    calls: int
    left: int
    seconds: float


#: Has the answer to the call that is made in this context, as soon as Discord has taken it.
TAKEN: ContextVar[asyncio.Future[bytes]] = ContextVar("TAKEN")


def tracing(learn: Callable[[str, str, Told], None]) -> aiohttp.TraceConfig:
    """Has aiohttp call `learn` with method, path and what was told, for each answer that tells it.

    Counts the calls that came too often and that discord.py makes again by itself, of which it tells nobody. What it
    gives up is an error, and counted as one.
    """

    async def ended(_session: aiohttp.ClientSession, _context: Any, end: aiohttp.TraceRequestEndParams) -> None:
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
    trace.on_request_end.append(ended)
    return trace
