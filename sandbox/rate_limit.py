"""Usage of a rate limit, as the sandboxes show it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RateLimitUsage:
    """Use of a rate limit's current window.

    Attributes:
        name: the method or route, with the channel's id if the limit is per channel; "" for Discord's global limit.
        remaining: calls that the window still allows.
        limit: calls per window.
        seconds: length of the window in platform seconds.
        resets_in: real seconds until the window allows more calls.
    """

    name: str
    remaining: int
    limit: int
    seconds: float
    resets_in: float
