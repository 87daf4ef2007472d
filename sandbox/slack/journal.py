"""What happened in the sandbox, in the order it did: calls, envelopes and changes, for whoever watches."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic
from typing import Any, Literal, TypeVar
from weakref import WeakSet

from sandbox.slack.workspace import Change

T = TypeVar("T")


@dataclass(eq=False, slots=True)
class Call:
    """One call of the Web API, or one post to a `response_url` (its method is `response_url`).

    Attributes:
        status: the HTTP status that was answered; 0 as long as none was, and for a reply that was lost.
        error: what Slack put into `error`, `ratelimited` included; None for a call that succeeded.
        at: when it came, on the monotonic clock, in seconds.
        rate_limited: whether a rate limit (or `Faults.rate_limit`) refused it.
        reply: the body that was answered, or would have been.
    """

    method: str
    arguments: dict[str, Any]
    at: float
    status: int = 0
    error: str | None = None
    rate_limited: bool = False
    reply: dict[str, Any] | None = None


@dataclass(eq=False, slots=True)
class Envelope:
    """One sending of one Socket Mode envelope; a redelivery is another one with the same `id`.

    Attributes:
        type: `events_api` or `slash_commands`.
        attempt: 0 for the first delivery, then what `retry_attempt` said.
        reason: what `retry_reason` said.
        sent_at, acknowledged_at: on the monotonic clock, in seconds.
        response: the payload that came with the acknowledgement.
    """

    id: str
    type: Literal["events_api", "slash_commands"]
    payload: dict[str, Any]
    sent_at: float
    attempt: int = 0
    reason: str = ""
    acknowledged_at: float | None = None
    response: dict[str, Any] | None = None


class Subscription:
    """The changes from now on: an async iterator that ends with the sandbox, or by `aclose`."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[Change | None] = asyncio.Queue()

    def put(self, change: Change | None) -> None:
        self._queue.put_nowait(change)

    def __aiter__(self) -> "Subscription":
        return self

    async def __anext__(self) -> Change:
        change = await self._queue.get()
        if change is None:
            self._queue.put_nowait(None)
            raise StopAsyncIteration
        return change

    async def aclose(self) -> None:
        self.put(None)


class Journal:
    """Keeps what happened, and wakes whoever waits for something to happen."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.envelopes: list[Envelope] = []
        self._subscriptions: WeakSet[Subscription] = WeakSet()
        self._tick = asyncio.Event()

    def subscribe(self) -> Subscription:
        subscription = Subscription()
        self._subscriptions.add(subscription)
        return subscription

    def change(self, change: Change) -> None:
        for subscription in list(self._subscriptions):
            subscription.put(change)
        self.tick()

    def call(self, method: str, arguments: dict[str, Any]) -> Call:
        call = Call(method, arguments, monotonic())
        self.calls.append(call)
        self.tick()
        return call

    def tick(self) -> None:
        """Let those who wait look again."""
        self._tick.set()
        self._tick = asyncio.Event()

    async def until(self, predicate: Callable[[], T]) -> T:
        """Return what `predicate` gives as soon as it is truthy; looks again whenever something happens."""
        while not (value := predicate()):
            await self._tick.wait()
        return value

    def close(self) -> None:
        for subscription in list(self._subscriptions):
            subscription.put(None)
