"""Shards: several connections over which Discord tells what happens, each of a part of the servers.

Discord: docs.discord.com/developers/events/gateway#sharding. The servers are spread by their ids; direct messages go to
the first shard. A connection may have 2500 servers at the most.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from functools import partial

from channels.discord.client.gateway import PULSE, Gateway, GatewayClient, Shard
from channels.intake.backfill import Backfill

#: Discord: so many seconds after a session was begun the next one of its group may be; with some for the way there.
IDENTIFY_SECONDS = 5.25

#: See `Gateway`: a client of that shard.
Make = Callable[[Shard, Callable[[], None], Callable[[], None]], Awaitable[tuple[GatewayClient, str]]]

#: Waits until any worker may begin a session of the shard.
AcquireSlot = Callable[[int], Awaitable[None]]


def shard_of(place: str, count: int) -> int:
    """Of so many shards the one that hears a place."""
    server = place.split(":")[1]
    return (int(server) >> 22) % count if server.isdecimal() else 0


@dataclass(frozen=True, slots=True)
class _Part:
    gateway: Gateway
    backfill: Backfill


class Shards:
    """Keeps the connections of those shards that this process is to hear.

    Attributes:
        count: how many there are in all.

    Args:
        at_once: how many sessions may be begun at once.
        make: a new client of a shard: see `Gateway`.
        backfill: returns the backfill of a shard with that last sign of life.
        acquire_slot: waits until a session of a shard may be begun.
    """

    def __init__(
        self,
        count: int,
        at_once: int,
        make: Make,
        backfill: Callable[[int, Callable[[], float]], Backfill],
        acquire_slot: AcquireSlot,
    ) -> None:
        self.count = count
        self._at_once = at_once
        self._make = make
        self._backfill = backfill
        self._acquire_slot = acquire_slot
        self._parts = dict[int, _Part]()
        self._standing = set[int]()

    @property
    def heard_at(self) -> float:
        """Until when all shards were heard that stand, in seconds since the epoch; 0 if none does."""
        return min((self._parts[id_].gateway.heard_at for id_ in self._standing), default=0.0)

    def backfill_of(self, place: str) -> Backfill | None:
        """Return the backfill of a place, if this process receives its messages."""
        part = self._parts.get(shard_of(place, self.count))
        return part.backfill if part is not None else None

    async def lead(self, ids: Collection[int], seconds: float) -> dict[int, Exception]:
        """Hear these shards, and no others; return when their connections stand.

        Args:
            seconds: how long that may take, besides the pauses that Discord wants between the shards.

        Returns:
            Which of them this process cannot hear, and why.
        """
        await asyncio.gather(*map(self._end, self._parts.keys() - set(ids)))
        begins = sorted(set(ids) - self._parts.keys())
        seconds += IDENTIFY_SECONDS * ((self.count - 1) // self._at_once)
        ends = await asyncio.gather(*(self._begin(id_, seconds) for id_ in begins), return_exceptions=True)
        for end in ends:
            if isinstance(end, BaseException) and not isinstance(end, Exception):
                raise end
        return {id_: end for id_, end in zip(begins, ends, strict=True) if isinstance(end, Exception)}

    async def stop(self) -> None:
        """Hang up; returns when that is done."""
        await asyncio.gather(*map(self._end, list(self._parts)))

    async def reconnect(self) -> None:
        """Give up for dead what is silent, and begin to connect it anew. The others keep their sessions."""
        latest = max(self.heard_at, time.time() - PULSE)  # the most silent one at least: clocks are set
        gateways = [self._parts[id_].gateway for id_ in self._standing]  # the others are being connected
        await asyncio.gather(*(gateway.reconnect() for gateway in gateways if gateway.heard_at <= latest))

    async def _begin(self, id_: int, seconds: float) -> None:
        shard = Shard(id_, self.count, self._acquire_slot)
        backfill = self._backfill(id_, lambda: gateway.heard_at)
        gateway = Gateway(partial(self._make, shard), on_back=backfill.open_gap)
        self._parts[id_] = _Part(gateway, backfill)

        async def connect() -> None:
            async with asyncio.timeout(seconds):
                await gateway.start()

        try:
            await backfill.start(connect)
        except BaseException:
            await self._end(id_)
            raise
        self._standing.add(id_)

    async def _end(self, id_: int) -> None:
        self._standing.discard(id_)
        if part := self._parts.get(id_):
            await part.gateway.stop()
            await part.backfill.stop()
            self._parts.pop(id_, None)
