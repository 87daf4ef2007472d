"""Base class to watch a local platform: changes, connections and rate limits."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from chatrig.subscriptions import ChangePublisher, Subscription

C = TypeVar("C")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RateLimitUsage:
    """Use of a rate limit's current window.

    Attributes:
        name: the method or route, with the channel's id if the limit is per channel; "" for Discord's global limit.
        remaining: number of calls that the window still allows.
        limit: number of calls per window.
        seconds: length of the platform's window in seconds, which the simulator divides by its `speed`.
        resets_in: real seconds until the window allows at least one more call than now.
    """

    name: str
    remaining: int
    limit: int
    seconds: float
    resets_in: float


class RateLimits(Protocol):
    """Rate limits that a local platform applies to API calls."""

    def list_usage(self) -> list[RateLimitUsage]:
        """Return the use of each rate-limit window that has calls."""


class ObservableSimulator(ABC, Generic[C]):
    """Base class of the local platforms, with methods to wait for changes.

    Subclasses set `_activity_log`, and `_limits`: None for a platform without rate limits.
    """

    _activity_log: ChangePublisher[C]
    _limits: RateLimits | None

    @property
    @abstractmethod
    def connection_count(self) -> int:
        """Number of connections on which the bot receives events."""

    def changes(self) -> Subscription[C]:
        """Return a subscription to the changes of messages from now on.

        The subscription ends with `aclose`, or when the simulator stops.
        """
        return self._activity_log.subscribe()

    async def wait_for_change(self) -> None:
        """Wait for the next visible change, API call, event, or change of a connection."""
        await self._activity_log.wait_for_change()

    def rate_limit_usage(self) -> list[RateLimitUsage]:
        """Return the use of each rate-limit window that has calls.

        The list is empty if the simulator has no rate limits.
        """
        return self._limits.list_usage() if self._limits else []

    async def wait_for(self, predicate: Callable[[], T], *, timeout: float = 20) -> T:  # noqa: ASYNC109 (the message)
        """Wait until `predicate` returns a true value, and return that value.

        `predicate` is called now, and after each visible change, API call, event or change of a connection.

        Raises:
            TimeoutError: no value was true within `timeout` seconds; the message describes the simulator.
        """
        return await self._activity_log.wait_until(predicate, timeout, self._describe_state)

    async def wait_until_connected(self, timeout: float = 10) -> None:  # noqa: ASYNC109 (as `wait_for`)
        """Wait until the bot has a connection for events.

        Raises:
            TimeoutError: it had none for `timeout` seconds.
        """
        await self.wait_for(lambda: self.connection_count, timeout=timeout)

    @abstractmethod
    def _describe_state(self) -> str:
        """Return the connections, latest API calls and messages as text, for errors."""
