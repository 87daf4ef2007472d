"""Change feed of a sandbox: subscriptions and waiting for conditions."""

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar
from weakref import WeakSet

C = TypeVar("C")
T = TypeVar("T")


class Subscription(Generic[C]):
    """Async iterator over future changes; ends with the sandbox or by `aclose`."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[C | None] = asyncio.Queue()

    def put(self, change: C | None) -> None:
        self._queue.put_nowait(change)

    def __aiter__(self) -> "Subscription[C]":
        return self

    async def __anext__(self) -> C:
        change = await self._queue.get()
        if change is None:
            self._queue.put_nowait(None)
            raise StopAsyncIteration
        return change

    async def aclose(self) -> None:
        self.put(None)


class ChangeFeed(Generic[C]):
    """Publishes changes to subscribers and wakes waiting tasks."""

    def __init__(self) -> None:
        self._subscriptions: WeakSet[Subscription[C]] = WeakSet()
        self._changed = asyncio.Event()

    def subscribe(self) -> Subscription[C]:
        subscription = Subscription[C]()
        self._subscriptions.add(subscription)
        return subscription

    def publish(self, change: C) -> None:
        for subscription in list(self._subscriptions):
            subscription.put(change)
        self.notify()

    def notify(self) -> None:
        """Wake all waiting tasks."""
        self._changed.set()
        self._changed = asyncio.Event()

    async def wait_for_change(self) -> None:
        """Wait for the next change or call."""
        await self._changed.wait()

    async def wait_until(self, predicate: Callable[[], T], seconds: float, state: Callable[[], str]) -> T:
        """Return the first truthy result of `predicate`, called after every change.

        Raises:
            TimeoutError: there was none within `seconds`; the message has the `state`.
        """
        try:
            async with asyncio.timeout(seconds):
                while not (value := predicate()):
                    await self._changed.wait()
                return value
        except TimeoutError:
            raise TimeoutError(f"not within {seconds} s; {state()}") from None

    def close(self) -> None:
        for subscription in list(self._subscriptions):
            subscription.put(None)
