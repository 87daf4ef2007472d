"""Base class to watch a local platform: changes, replies, connections and rate limits."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Generic, Protocol, TypeVar

from chatrig.subscriptions import ChangePublisher, Subscription


class VisibleMessage(Protocol):
    """Message as people see it."""

    deleted: bool

    @property
    def text(self) -> str: ...

    @property
    def loading(self) -> bool:
        """True while the platform shows that the bot is not done: a live stream, or "is thinking"."""

    @property
    def changed_at(self) -> float:
        """The monotonic time of the post or the last change, in seconds."""


C = TypeVar("C")
M = TypeVar("M", bound=VisibleMessage)
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

    def clear(self) -> None:
        """Forget all calls, so that each window is empty."""


class ObservableSimulator(ABC, Generic[C, M]):
    """Base class of the local platforms, with methods to wait for changes.

    Subclasses set `_activity_log`, and `_limits`: None for a platform without rate limits.

    Attributes:
        allowed_unknown_calls: names of calls that `unknown_calls` leaves out: the bot may do without them.
    """

    _activity_log: ChangePublisher[C]
    _limits: RateLimits | None
    allowed_unknown_calls: set[str]

    @property
    @abstractmethod
    def connection_count(self) -> int:
        """Number of connections on which the bot receives events."""

    @property
    @abstractmethod
    def unknown_calls(self) -> list[str]:
        """Called API methods or routes that the simulator does not have, without those in `allowed_unknown_calls`."""

    @property
    @abstractmethod
    def env(self) -> Mapping[str, str]:
        """Environment variables of a bot: tokens and addresses."""

    @abstractmethod
    def list_replies(self, question: M) -> Sequence[M]:
        """Return the bot's visible messages after a question, in its place or its thread, oldest first."""

    async def wait_for_reply(
        self,
        question: M,
        *,
        until: str | Callable[[M], object] | None = None,
        quiet: float = 1.0,
        timeout: float = 20,  # noqa: ASYNC109 (the message)
    ) -> M:
        """Wait until the bot has answered a question, and return the reply.

        Args:
            until: the whole text of the reply, or a function of a reply that returns whether it is the awaited one;
                None for the first reply, once it is complete.
            quiet: seconds without a change after which a reply is complete; only without `until`.
            timeout: the limit in seconds.

        Raises:
            TimeoutError: there was no such reply in time; the message describes the simulator.
        """

        def find_reply() -> M | None:
            for reply in self.list_replies(question):
                if callable(until):
                    is_found = bool(until(reply))
                else:
                    is_found = not reply.loading if until is None else reply.text == until
                if is_found:
                    return reply
            return None

        ends_at = monotonic() + timeout
        reply = await self.wait_for(find_reply, timeout=timeout)
        while until is None and (pause := reply.changed_at + quiet - monotonic()) > 0:
            await asyncio.sleep(pause)
            reply = await self.wait_for(find_reply, timeout=max(ends_at - monotonic(), 0))
        return reply

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

    async def wait_for(self, predicate: Callable[[], T | None], *, timeout: float = 20) -> T:  # noqa: ASYNC109 (the message)
        """Wait until `predicate` returns a true value, and return that value.

        `predicate` is called now, and after each visible change, API call, event or change of a connection.

        Raises:
            TimeoutError: no value was true within `timeout` seconds; the message describes the simulator.
        """
        return await self._activity_log.wait_until(predicate, timeout, self.describe)

    async def wait_until_connected(self, timeout: float = 10) -> None:  # noqa: ASYNC109 (as `wait_for`)
        """Wait until the bot has a connection for events.

        Raises:
            TimeoutError: it had none for `timeout` seconds.
        """
        await self.wait_for(lambda: self.connection_count, timeout=timeout)

    @abstractmethod
    def describe(self) -> str:
        """Return the connections, latest API calls and messages as text, for errors."""
