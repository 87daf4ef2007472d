"""Discord's rate limits and their response headers.

Discord: docs.discord.com/developers/topics/rate-limits. It publishes only the global limit and asks clients to read
the headers; the numbers here are commonly seen ones.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import md5
from time import time
from typing import Literal

from chatrig.observable import RateLimitUsage

Scope = Literal["user", "global", "shared"]

GLOBAL_CALLS, GLOBAL_SECONDS = 50, 1.0
#: Discord: the endpoints of interactions do not count in the global limit.
GLOBALLY_UNLIMITED_ROUTES = (
    "POST /interactions/",
    "POST /webhooks/",
    "PATCH /webhooks/",
    "GET /webhooks/",
    "DELETE /webhooks/",
)


@dataclass(frozen=True, slots=True)
class BucketRate:
    """Rate limit of a route: at most `max_calls` per channel in a window of `seconds`.

    The window begins with its first call.
    """

    max_calls: int
    seconds: float


RATES: Mapping[str, BucketRate] = {
    "POST /channels/{channel}/messages": BucketRate(5, 5),
    "PATCH /channels/{channel}/messages/{message}": BucketRate(5, 5),
    "GET /channels/{channel}/messages": BucketRate(5, 5),
    "DELETE /channels/{channel}/messages/{message}": BucketRate(5, 1),
    "PUT /channels/{channel}/messages/{message}/reactions/{emoji}/@me": BucketRate(1, 0.25),
    "DELETE /channels/{channel}/messages/{message}/reactions/{emoji}/@me": BucketRate(1, 0.25),
    "POST /channels/{channel}/typing": BucketRate(5, 5),
}


@dataclass(slots=True)
class _Window:
    """Present window of a rate limit.

    Attributes:
        ends_at: seconds since the epoch.
        call_count: number of calls in the window so far.
    """

    ends_at: float = 0.0
    call_count: int = 0


@dataclass(frozen=True, slots=True)
class RateLimitCheck:
    """Result of a rate-limit check for one call.

    Attributes:
        headers: the response's headers about the limit.
        retry_after: seconds until the client may try again; None if the call is allowed.
        scope: the kind of limit that was reached; of no meaning if the call is allowed.
    """

    headers: Mapping[str, str]
    retry_after: float | None = None
    scope: Scope = "user"


def create_rate_limit_headers(retry_after: float, scope: Scope) -> dict[str, str]:
    """Return the headers of a 429 response: `Retry-After` and the limit's scope.

    Args:
        retry_after: seconds until the client may try again; the header has whole seconds, rounded up.
    """
    headers = {"Retry-After": str(math.ceil(retry_after)), "X-RateLimit-Scope": scope}
    return headers | ({"X-RateLimit-Global": "true"} if scope == "global" else {})


def create_bucket_headers(route: str, limit: int, remaining: int, ends_at: float) -> dict[str, str]:
    """Return the `X-RateLimit` headers about a route's bucket.

    Args:
        limit: calls per window.
        remaining: calls that the window still allows.
        ends_at: the end of the window in seconds since the epoch.
    """
    return {
        "X-RateLimit-Limit": str(limit),
        "X-RateLimit-Remaining": str(remaining),
        "X-RateLimit-Reset": f"{ends_at:.3f}",
        "X-RateLimit-Reset-After": f"{ends_at - time():.3f}",
        "X-RateLimit-Bucket": md5(route.encode(), usedforsecurity=False).hexdigest(),
    }


class DiscordRateLimits:
    """Rate limits that the local Discord applies to the bot's calls.

    They are the global limit and, for the routes in `RATES`, a limit per route and channel. Discord's limit of invalid
    requests is left out.

    Args:
        speed: factor by which windows are shorter than Discord's.
    """

    def __init__(self, speed: float) -> None:
        self._speed = speed
        self._windows: dict[tuple[str, str], _Window] = {}

    def acquire(self, route: str, channel: str) -> RateLimitCheck:
        """Count a call of a route, unless the route's or the global limit rejects it.

        The global limit also counts the calls that the route's limit rejects; it does not apply to
        `GLOBALLY_UNLIMITED_ROUTES`. An allowed call of a route without its own limit gets no headers.

        Args:
            route: such as `GET /channels/{channel}`.
            channel: the id of the channel in the path; "" without one.
        """
        now = time()
        if not route.startswith(GLOBALLY_UNLIMITED_ROUTES):
            global_window = self._window("", "", now, GLOBAL_SECONDS)
            if global_window.call_count >= GLOBAL_CALLS:
                return self._refuse(global_window.ends_at - now, "global", {})
            global_window.call_count += 1
        rate = RATES.get(route)
        if rate is None:
            return RateLimitCheck({})
        window = self._window(route, channel, now, rate.seconds)
        full = window.call_count >= rate.max_calls
        window.call_count += not full
        headers = create_bucket_headers(route, rate.max_calls, rate.max_calls - window.call_count, window.ends_at)
        return self._refuse(window.ends_at - now, "user", headers) if full else RateLimitCheck(headers)

    def clear(self) -> None:
        """Forget all calls, so that each window is empty."""
        self._windows.clear()

    def list_usage(self) -> list[RateLimitUsage]:
        """Return the use of each open rate-limit window; the global one has an empty name."""
        rates = {"": BucketRate(GLOBAL_CALLS, GLOBAL_SECONDS), **RATES}
        return [
            RateLimitUsage(
                f"{route} {channel}".strip(),
                rate.max_calls - window.call_count,
                rate.max_calls,
                rate.seconds,
                window.ends_at - time(),
            )
            for (route, channel), window in self._windows.items()
            if window.ends_at > time() and (rate := rates[route])
        ]

    def _window(self, route: str, channel: str, now: float, seconds: float) -> _Window:
        window = self._windows.setdefault((route, channel), _Window())
        if window.ends_at <= now:
            window.ends_at, window.call_count = now + seconds / self._speed, 0
        return window

    def _refuse(self, retry_after: float, scope: Scope, headers: Mapping[str, str]) -> RateLimitCheck:
        retry_after = max(0.001, round(retry_after, 3))
        return RateLimitCheck({**headers, **create_rate_limit_headers(retry_after, scope)}, retry_after, scope)
