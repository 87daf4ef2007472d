"""Shard assignment: divides the gateway shards of a platform evenly among workers.

Each shard has a row in `channels`, whose owner is the worker that connects the shard.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncGenerator, Collection

import sqlalchemy as sa

from core.errors import StoreError
from core.observability.secret_redaction import format_error
from core.store.database import Database
from core.store.schema import platforms, workers
from core.store.upsert import insert_or_ignore
from core.store.workers.lease import RELEASE_SECONDS, Lease

log = logging.getLogger(__name__)

#: Seconds between two reads of the shards' owners, and between two attempts to reserve a slot for identifying.
LOOK_SECONDS, SLOT_SECONDS = 2.0, 0.25

#: Seconds for which a worker gets no shards after it could not connect one.
NO_SHARDS_SECONDS = 600.0


class ShardAssignment:
    """Division of a platform's gateway shards among the live workers.

    A worker becomes the owner of a shard when it writes its id into the shard's row. It stays the owner until it
    releases the shard or its lease ends. A worker that owns more than its quota disconnects the rest, and then releases
    them. So no shard has two connections, with one exception: a worker that cannot reach the database stays connected,
    while another one takes over after its lease has ended. A message that both receive is stored once.

    A quota is an even share of the shards. The workers with the most shards get the remainder, one each.

    Args:
        name: the name of the platform adapter.

    Attributes:
        has_free_shard: whether a shard had no live owner when the owners were last read.
    """

    def __init__(self, database: Database, lease: Lease, name: str) -> None:
        self._database = database
        self._lease = lease
        self._name = name
        self._assigned: frozenset[int] | None = None
        self.has_free_shard = False

    def row_name(self, shard: int, count: int) -> str:
        """Return a shard's row in `channels`: `NAME:SHARD/COUNT`, or `NAME` if `count` is 1."""
        return self._name if count == 1 else f"{self._name}:{shard}/{count}"

    async def get_shard_count(self) -> int | None:
        """Return the number of shards into which live workers divide the platform.

        If they disagree, it is the highest number. None if no live worker owns a shard.
        """
        held = sa.select(platforms.c.name).where(self._is_ours(), ~self._lease.has_no_live_worker(platforms.c.owner))
        async with self._database.read() as connection:
            names = (await connection.execute(held)).scalars().all()
        counts = [int(name.rpartition("/")[2]) if "/" in name else 1 for name in names]
        return max(counts, default=None)

    async def watch(self, count: int = 1) -> AsyncGenerator[frozenset[int], None]:
        """Yield the numbers of this worker's shards: now, and after each change.

        A set may be empty. The caller must disconnect shards that are no longer yielded before it requests the next
        set: they are released then, and other workers may connect them. A failure of the database is logged, and the
        set stays the same.
        """
        self._assigned = None
        while True:
            before: frozenset[int] = self._assigned or frozenset()
            try:
                assigned = await self._assign(count)
            except StoreError as error:
                log.warning("the workers that connect %s cannot be read: %s", self._name, format_error(error))
                assigned = before
            if assigned != self._assigned:
                self._assigned = assigned
                yield assigned
                if released := before - assigned:
                    await self._release(self._is_row_of(released, count))
            await asyncio.sleep(LOOK_SECONDS)

    async def release(self) -> None:
        """Release all shards of this worker, so that other workers may connect them.

        A failure is logged; the shards are then free when the lease of this worker ends.
        """
        await self._release(self._is_ours())

    async def release_failed_shards(self, shards: Collection[int], count: int) -> None:
        """Release shards that cannot be connected, and claim none for `NO_SHARDS_SECONDS`.

        `watch` takes this worker's other shards away as well. If all live workers have failed so, they divide the
        shards all the same. A failure of the database is logged.
        """
        self._assigned = (self._assigned or frozenset()).difference(
            shards
        )  # a shard that is assigned again is connected anew
        await self._release(self._is_row_of(shards, count), no_shards_until=self._database.now + NO_SHARDS_SECONDS)

    async def acquire_identify_slot(self, part: int, count: int, seconds: float) -> None:
        """Wait until no worker identifies a shard of a group, and reserve the group for some seconds.

        Discord requires that the shards of one group identify one after another. A database error is logged and ends
        the wait.

        Args:
            part: the group: a shard's number modulo Discord's `max_concurrency`.
        """
        is_row = platforms.c.name == self.row_name(part, count)
        try:
            while True:
                now = self._database.now
                is_free = platforms.c.next_identify_at.is_(None) | (platforms.c.next_identify_at <= now)
                async with self._database.write() as connection:
                    take = sa.update(platforms).where(is_row, is_free).values(next_identify_at=now + seconds)
                    if (await connection.execute(take)).rowcount:
                        return
                await asyncio.sleep(SLOT_SECONDS)
        except StoreError as error:
            log.warning("%s: cannot wait for a slot to identify: %s", self._name, format_error(error))

    async def _assign(self, count: int) -> frozenset[int]:
        """Claim free shards up to this worker's quota, and return its shards.

        Shards beyond the quota stay in the table until they are released; the result leaves them out.
        """
        worker_id = self._lease.worker_id
        leaders, candidates = await self._read(count)
        shard_counts = Counter(leaders)
        candidates.sort(
            key=lambda worker: (-shard_counts[worker], worker)
        )  # workers with more shards get the remainder, so that no shard moves
        least, rest = divmod(count, max(1, len(candidates)))
        quota = least + (candidates.index(worker_id) < rest) if worker_id in candidates else 0
        own_shards = [shard for shard, leader in enumerate(leaders) if leader == worker_id]
        free = [shard for shard, leader in enumerate(leaders) if leader is None]
        self.has_free_shard = bool(free)
        return frozenset(own_shards[:quota]) | await self._claim(free[: max(0, quota - len(own_shards))], count)

    async def _read(self, count: int) -> tuple[list[str | None], list[str]]:
        """Return the owner of each shard, and the workers that may get shards.

        Workers that could not connect a shard recently are left out, unless no others are live.
        """
        worker_id = self._lease.worker_id
        names = [self.row_name(shard, count) for shard in range(count)]
        row = platforms.c
        now = self._database.now
        # shards that this worker owned before a late renewal stay its own if nobody took them over
        is_free = self._lease.has_no_live_worker(row.owner) & row.owner.is_distinct_from(worker_id)
        holders = sa.select(row.name, sa.case((is_free, None), else_=row.owner).label("owner")).where(
            row.name.in_(names)
        )
        is_fit = workers.c.no_shards_until.is_(None) | (workers.c.no_shards_until <= now)
        live = sa.select(workers.c.id, is_fit).where((workers.c.lease_expires_at > now) | (workers.c.id == worker_id))
        async with self._database.read() as connection:
            leaders = {row.name: row.owner for row in await connection.execute(holders)}
            fitness = (await connection.execute(live)).all()
        if missing := [name for name in names if name not in leaders]:
            async with self._database.write() as connection:
                for name in missing:
                    await insert_or_ignore(connection, platforms, {"name": name})
        fit_workers = [worker for worker, is_fit in fitness if is_fit]
        return [leaders.get(name) for name in names], fit_workers or [worker for worker, _ in fitness]

    async def _claim(self, shards: Collection[int], count: int) -> frozenset[int]:
        acquired = set[int]()
        if shards:
            async with self._database.write() as connection:
                for shard in shards:
                    free = self._is_row_of([shard], count) & self._lease.has_no_live_worker(platforms.c.owner)
                    if (
                        await connection.execute(sa.update(platforms).where(free).values(owner=self._lease.worker_id))
                    ).rowcount:
                        acquired.add(shard)
        return frozenset(acquired)

    async def _release(self, rows: sa.ColumnElement[bool], **values: sa.ColumnElement[float]) -> None:
        worker_id = self._lease.worker_id
        try:
            async with asyncio.timeout(RELEASE_SECONDS), self._database.write() as connection:
                await connection.execute(
                    sa.update(platforms).where(rows, platforms.c.owner == worker_id).values(owner=None)
                )
                if values:
                    await connection.execute(sa.update(workers).where(workers.c.id == worker_id).values(**values))
        except (StoreError, TimeoutError) as error:
            log.warning(
                "%s is connected by no worker until this worker's lease ends: %s", self._name, format_error(error)
            )

    def _is_row_of(self, shards: Collection[int], count: int) -> sa.ColumnElement[bool]:
        return platforms.c.name.in_([self.row_name(shard, count) for shard in shards])

    def _is_ours(self) -> sa.ColumnElement[bool]:
        return (platforms.c.name == self._name) | platforms.c.name.startswith(f"{self._name}:", autoescape=True)
