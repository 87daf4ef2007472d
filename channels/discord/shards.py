"""Shards: several connections over which Discord tells what happens, each of a part of the servers.

Discord: docs.discord.com/developers/events/gateway#sharding. The servers are spread by their ids; direct messages go to
the first shard. A connection may have 2500 servers at the most.
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable
from functools import partial

from channels.discord.gateway import PULSE, Connection, Gateway, Shard

#: Discord: so many seconds after a session was begun the next one of its group may be; with some for the way there.
IDENTIFY_SECONDS = 5.25

#: See `Gateway`: a client of that shard.
Make = Callable[[Shard, Callable[[], None], Callable[[], None]], Awaitable[tuple[Connection, str]]]


class Shards:
    """Keeps the connections of all shards.

    Args:
        count: asks Discord how many shards there are to be, and how many sessions may be begun at once.
        make: a new client of a shard: see `Gateway`.
        on_back: see `Gateway`; it is called for each shard by itself.
    """

    def __init__(
        self, count: Callable[[], Awaitable[tuple[int, int]]], make: Make, *, on_back: Callable[[float], None]
    ) -> None:
        self._count = count
        self._make = make
        self._on_back = on_back
        self._gateways: list[Gateway] = []

    @property
    def heard_at(self) -> float:
        """Until when all shards were heard, in seconds since the epoch; 0 before all have been."""
        return min((gateway.heard_at for gateway in self._gateways), default=0.0)

    async def start(self, seconds: float) -> None:
        """Return when all connections stand. What ends it before that takes down what it has begun.

        Args:
            seconds: how long it may take, besides the pauses that Discord wants between the shards.

        Raises:
            SurfaceError: Discord does not say how many there are to be.
            TimeoutError: they do not stand within that time.
        """
        async with asyncio.timeout(seconds) as limit:
            number, at_once = await self._count()
            limit.reschedule((limit.when() or 0.0) + IDENTIFY_SECONDS * ((number - 1) // at_once))
            turnstile = Turnstile(at_once)
            shards = [Shard(id_, number, turnstile.passed) for id_ in range(number)]
            self._gateways = [Gateway(partial(self._make, shard), on_back=self._on_back) for shard in shards]
            async with asyncio.TaskGroup() as starts:
                for gateway in self._gateways:
                    starts.create_task(gateway.start())

    async def stop(self) -> None:
        """Hang up; returns when that is done."""
        await asyncio.gather(*(gateway.stop() for gateway in self._gateways))

    async def reconnect(self) -> None:
        """Give up for dead what is silent, and begin to connect it anew. The others keep their sessions."""
        latest = max(self.heard_at, time.time() - PULSE)  # the most silent one at least: clocks are set
        await asyncio.gather(*(gateway.reconnect() for gateway in self._gateways if gateway.heard_at <= latest))


class Turnstile:
    """Lets sessions be begun no faster than Discord takes them.

    Args:
        at_once: how many shards may begin at once. Discord: those of one group, one after the other.
    """

    def __init__(self, at_once: int) -> None:
        self._at_once = at_once
        self._queues = defaultdict[int, asyncio.Lock](asyncio.Lock)
        self._free_at = defaultdict[int, float](float)

    async def passed(self, shard: int) -> None:
        """Return when it is the shard's turn."""
        group, now = shard % self._at_once, asyncio.get_running_loop().time
        async with self._queues[group]:
            await asyncio.sleep(max(0.0, self._free_at[group] - now()))
            self._free_at[group] = now() + IDENTIFY_SECONDS
