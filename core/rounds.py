"""Rounds of the event loop: who has much to compute leaves room for others."""

import asyncio
from weakref import WeakKeyDictionary

_lines = WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock]()


async def one_a_round() -> None:
    """Wait for a round of the event loop in which nobody else goes on from here.

    What becomes ready at one moment runs in one round, and all else waits for its end: so each of many computes in a
    round of its own.
    """
    async with _lines.setdefault(asyncio.get_running_loop(), asyncio.Lock()):
        await asyncio.sleep(0)
