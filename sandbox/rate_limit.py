"""Usage of a rate limit."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RateLimitUsage:
    """Remaining calls of a rate limit window.

    Attributes:
        limit: calls per window.
        seconds: length of the window.
        resets_in: real seconds until the oldest call leaves the window.
    """

    name: str
    remaining: int
    limit: int
    seconds: float
    resets_in: float
