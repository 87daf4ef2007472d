"""What is left of a rate limit."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RateLimitUsage:
    """How many `calls` of a window of `seconds` are left; `again` is in how many (real) seconds there are more."""

    name: str
    remaining: int
    limit: int
    seconds: float
    resets_in: float
