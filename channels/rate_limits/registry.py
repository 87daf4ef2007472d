"""Registry of a platform's rate limiters, shared with other workers."""

from collections.abc import Hashable, Sequence
from hashlib import blake2b

from channels.rate_limits.limiter import RateLimiter, Window
from core.store.workers.rate_limit_sharing import LimitUsage, LimitUsages

#: The most limiters that are kept; above that, idle ones are dropped.
MAX_LIMITERS = 1000


class RateLimiters:
    """Rate limiters by key; calls that share a limit of the platform share a key.

    Args:
        speed: how many times faster than the platform's the windows run; more than 1 only for a simulator whose clock
            runs faster, too.
    """

    def __init__(self, *, speed: float = 1.0) -> None:
        self._speed = speed
        self._limiters: dict[Hashable, RateLimiter] = {}
        self._others: Sequence[LimitUsages] = ()

    def get(self, key: Hashable, window: Window) -> RateLimiter:
        """Return the limiter of a key; if there is none, create it with `window`.

        Args:
            key: the API method with the ids on which the limit depends, such as the workspace.
        """
        limiter = self._limiters.get(key)
        if limiter is None:
            if len(self._limiters) >= MAX_LIMITERS:
                self._limiters = {key: limiter_ for key, limiter_ in self._limiters.items() if not limiter_.is_idle}
            limiter = self._limiters[key] = RateLimiter(window, speed=self._speed)
            self._share(key, limiter)
        return limiter

    def record_usage(self) -> dict[str, LimitUsage]:
        """Return this worker's use of each limit, by a hash of its key; `apply_peer_usage` uses it, too."""
        usage = {_digest(key): limiter.record_usage() for key, limiter in self._limiters.items()}
        return {name: use for name, use in usage.items() if use != LimitUsage()}

    def apply_peer_usage(self, peers: Sequence[LimitUsages]) -> None:
        """Set this worker's share of each limit by what the other workers use.

        The workers divide a limit in proportion to 1 + `REPLY_WEIGHT` * `LimitUsage.live`. Calls of the others beyond
        their shares are subtracted from this worker's, which is one call at least. A larger share takes effect after
        `SETTLE_ROUNDS` calls of this method, a smaller one at once. New limiters get a share too.
        """
        self._others = peers
        for key, limiter in self._limiters.items():
            self._share(key, limiter)

    @property
    def headroom(self) -> float:
        """The lowest `RateLimiter.headroom`, from 0 to 1; 1 without limiters."""
        return min((limiter.headroom for limiter in self._limiters.values()), default=1.0)

    def _share(self, key: Hashable, limiter: RateLimiter) -> None:
        limiter.apply_peer_usage([other.get(_digest(key), LimitUsage()) for other in self._others])


def _digest(key: Hashable) -> str:
    """Return a hash for other workers: a key may hold a secret, such as a `response_url`."""
    return blake2b(repr(key).encode(), digest_size=12).hexdigest()
