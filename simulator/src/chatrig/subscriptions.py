"""Publisher and subscriptions for the visible changes of a simulator."""

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar
from weakref import WeakSet

C = TypeVar("C")
T = TypeVar("T")


class Subscription(Generic[C]):
    """Async iterator over the changes since its creation.

    It ends when `aclose` is called or the simulator stops, after it has yielded the changes before.
    """

    def __init__(self) -> None:
        self._queue: asyncio.Queue[C | None] = asyncio.Queue()

    def put(self, change: C | None) -> None:
        """Queue a change for the iterator; None ends the iteration."""
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


class ChangePublisher(Generic[C]):
    """Publisher of changes to subscriptions and to tasks that wait for a condition."""

    def __init__(self) -> None:
        self._subscriptions: WeakSet[Subscription[C]] = WeakSet()
        self._changed = asyncio.Event()

    def subscribe(self) -> Subscription[C]:
        subscription = Subscription[C]()
        self._subscriptions.add(subscription)
        return subscription

    def publish(self, change: C) -> None:
        """Send a change to all subscriptions, and wake all tasks that wait for a change."""
        for subscription in list(self._subscriptions):
            subscription.put(change)
        self.notify()

    def notify(self) -> None:
        """Wake all tasks that wait for a change, and send nothing to the subscriptions."""
        self._changed.set()
        self._changed = asyncio.Event()

    async def wait_for_change(self) -> None:
        """Wait for the next call of `publish` or `notify`."""
        await self._changed.wait()

    async def wait_until(self, predicate: Callable[[], T | None], seconds: float, state: Callable[[], str]) -> T:
        """Wait until `predicate` returns a true value, and return that value.

        The predicate is called now, and after every `publish` or `notify`.

        Args:
            seconds: the limit in real seconds.
            state: returns a description of the simulator, for the error.

        Raises:
            TimeoutError: `predicate` returned no true value within `seconds`.
        """
        try:
            async with asyncio.timeout(seconds):
                while not (value := predicate()):
                    await self._changed.wait()
                return value
        except TimeoutError:
            raise TimeoutError(f"not within {seconds} s; {state()}") from None

    def close(self) -> None:
        """End the present subscriptions; tasks that wait for a change still wait."""
        for subscription in list(self._subscriptions):
            subscription.put(None)
