"""Work that mostly waits, and is done for several at once."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

T = TypeVar("T")


async def abreast(work: Callable[[T], Awaitable[None]], items: Iterable[T], many: int) -> None:
    """Do the work for each of the items, begun in their order, for so many at once.

    Raises:
        Exception: what the first one raises that fails; the others are ended, and no more is begun.
    """
    left = iter(items)

    async def go_on() -> None:
        for item in left:
            await work(item)

    tasks = [asyncio.create_task(go_on(), name="abreast") for _ in range(many)]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
