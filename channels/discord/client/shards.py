"""Shards: gateway connections, each for the events of a part of the servers.

Discord: docs.discord.com/developers/events/gateway#sharding. The servers are divided by their ids; direct messages go
to the first shard. A connection may have at most 2500 servers.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from functools import partial

from channels.discord.client.gateway import HEARTBEAT_SECONDS, GatewayClient, GatewayReconnector, Shard
from channels.intake.backfill import Backfill

#: Seconds between the starts of two sessions of a group of shards. Discord: 5; the rest is for network delays.
IDENTIFY_INTERVAL_SECONDS = 5.25

#: Returns a new client of a shard, with the callbacks `on_connected` and `on_event`: see `GatewayReconnector`.
ClientFactory = Callable[[Shard, Callable[[], None], Callable[[], None]], Awaitable[tuple[GatewayClient, str]]]

#: Waits until a worker may start a session of the shard.
AcquireSlot = Callable[[int], Awaitable[None]]


def shard_for_place(place: str, count: int) -> int:
    """Return the id of the shard that receives the events of a place; shard 0 receives all DMs."""
    server = place.split(":")[1]
    return (int(server) >> 22) % count if server.isdecimal() else 0


@dataclass(frozen=True, slots=True)
class _ShardConnection:
    gateway: GatewayReconnector
    backfill: Backfill


class ShardConnections:
    """Gateway connections of the shards that are assigned to this process.

    Args:
        max_concurrency: the number of sessions that Discord allows to start at once.
        make_client: returns a new client of a shard: see `ClientFactory`.
        make_backfill: returns a new backfill for the shard with an id.
        acquire_slot: waits until a session of a shard may start.
    """

    def __init__(
        self,
        count: int,
        max_concurrency: int,
        make_client: ClientFactory,
        make_backfill: Callable[[int], Backfill],
        acquire_slot: AcquireSlot,
    ) -> None:
        self.count = count
        self._max_concurrency = max_concurrency
        self._make_client = make_client
        self._make_backfill = make_backfill
        self._acquire_slot = acquire_slot
        self._connections = dict[int, _ShardConnection]()
        self._connected = set[int]()

    @property
    def last_event_at(self) -> float:
        """The time of the oldest last event or heartbeat of the connected shards; 0 if there are none."""
        return min((self._connections[id_].gateway.last_event_at for id_ in self._connected), default=0.0)

    def get_backfill(self, place: str) -> Backfill | None:
        """Return the backfill for a place; None if its shard is not in this process."""
        connection = self._connections.get(shard_for_place(place, self.count))
        return connection.backfill if connection is not None else None

    async def connect(self, ids: Collection[int], connect_seconds: float) -> dict[int, Exception]:
        """Connect the shards with these ids, and disconnect all others; return the errors by shard id.

        Shards that are connected or connecting are left alone. A shard that fails is disconnected again, and does not
        affect the others. The pauses that Discord demands between sessions are added to `connect_seconds`.
        """
        await asyncio.gather(*map(self._disconnect, self._connections.keys() - set(ids)))
        new_ids = sorted(set(ids) - self._connections.keys())
        connect_seconds += IDENTIFY_INTERVAL_SECONDS * ((self.count - 1) // self._max_concurrency)
        results = await asyncio.gather(
            *(self._connect(id_, connect_seconds) for id_ in new_ids), return_exceptions=True
        )
        for result in results:
            if isinstance(result, BaseException) and not isinstance(result, Exception):
                raise result
        return {id_: result for id_, result in zip(new_ids, results, strict=True) if isinstance(result, Exception)}

    async def stop(self) -> None:
        """Disconnect all shards, and return once their connections and backfills ended."""
        await asyncio.gather(*map(self._disconnect, list(self._connections)))

    async def reconnect(self) -> None:
        """Reconnect the connected shards that received no event for `HEARTBEAT_SECONDS`.

        If there is none, reconnect the shard with the oldest last event. The old connections are closed at the end of
        this call; the new ones open in the background.
        """
        latest = max(self.last_event_at, time.time() - HEARTBEAT_SECONDS)  # at least the oldest one
        gateways = [self._connections[id_].gateway for id_ in self._connected]  # the others are connecting
        await asyncio.gather(*(gateway.reconnect() for gateway in gateways if gateway.last_event_at <= latest))

    async def _connect(self, id_: int, connect_seconds: float) -> None:
        shard = Shard(id_, self.count, self._acquire_slot)
        backfill = self._make_backfill(id_)
        gateway = GatewayReconnector(partial(self._make_client, shard), on_reconnect=backfill.open_gap)
        self._connections[id_] = _ShardConnection(gateway, backfill)

        async def connect() -> None:
            async with asyncio.timeout(connect_seconds):
                await gateway.start()

        try:
            await backfill.start(connect, lambda: gateway.last_event_at)
        except BaseException:
            await self._disconnect(id_)
            raise
        self._connected.add(id_)

    async def _disconnect(self, id_: int) -> None:
        self._connected.discard(id_)
        if connection := self._connections.get(id_):
            await connection.gateway.stop()
            await connection.backfill.stop()
            self._connections.pop(id_, None)
