"""Rounds of the event loop: who has much to compute leaves room for others."""

import asyncio
import time
from weakref import WeakKeyDictionary

#: Seconds of computing after which the rest waits for the next round.
ENOUGH = 0.005

_began = WeakKeyDictionary[asyncio.AbstractEventLoop, float]()


async def room() -> None:
    """Wait for a round of the event loop in which not enough was computed yet.

    What becomes ready at one moment runs in one round, and all else waits for its end: so those of many who find no
    room in it go on in a later one.
    """
    loop = asyncio.get_running_loop()
    # no event tells of a round
    while (began := _began.get(loop)) is not None and time.thread_time() - began >= ENOUGH:  # noqa: ASYNC110
        await asyncio.sleep(0)
    if began is None:
        _began[loop] = time.thread_time()
        loop.call_soon(_began.pop, loop, None)
