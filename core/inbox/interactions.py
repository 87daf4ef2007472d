"""Errands: what people have asked for that is no message, and of which they are told once: kept until it is done.

A platform that was told that it is being done does not ask for it again. So what a worker leaves undone that dies,
another one does.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from core.errors import StoreError
from core.secret_redaction import traced
from core.store.database import Database
from core.store.schema import errands
from core.store.upsert import insert_of
from core.workers.lease import Lease

log = logging.getLogger(__name__)

#: Seconds after which an interaction is acknowledged, stored or not. Slack and Discord wait for 3 seconds, and a
#: statement that waits for a lock of SQLite cannot be interrupted.
ACK_SECONDS = 1.5

#: Seconds between two looks for what was left undone.
LOOK = 3.0

#: Seconds after which nobody waits for it any more.
PATIENCE = 1_800.0


@dataclass(frozen=True, slots=True)
class Errand:
    """Attributes:
    key: the same for each delivery of the same wish.
    what: what is to be done, in the adapter's own words (JSON).
    """

    key: str
    what: Mapping[str, Any]


class Errands:
    """The `errands` table."""

    def __init__(self, database: Database, lease: Lease) -> None:
        self._database = database
        self._lease = lease

    async def keep(self, channel: str, errand: Errand) -> bool:
        """Store an interaction for this worker, and return whether it is new.

        This takes as long as the database does. A database that fails returns True: this worker, and no other, then
        processes the interaction.
        """
        try:
            return await self._keep(channel, errand)
        except StoreError as error:
            log.warning("an interaction is not stored, and is lost if this process ends now: %s", traced(error))
            return True

    async def _keep(self, channel: str, errand: Errand) -> bool:
        row = {
            "key": errand.key,
            "channel": channel,
            "what": dict(errand.what),
            "owner": self._lease.worker,
            "begun_at": self._database.now,
        }
        async with self._database.write() as connection:
            new = insert_of(connection.dialect.name, errands).values(row).on_conflict_do_nothing()
            return (await connection.execute(new.returning(errands.c.key))).first() is not None

    @asynccontextmanager
    async def doing(self, errand: Errand) -> AsyncIterator[None]:
        """Do it within, after which it is forgotten; what is broken off is left to another worker."""
        try:
            yield
        except Exception:
            await self.done(errand)
            raise
        await self.done(errand)

    async def done(self, errand: Errand) -> None:
        """Forget it. Where the database is away, it may be done once more."""
        try:
            async with self._database.write() as connection:
                await connection.execute(sa.delete(errands).where(errands.c.key == errand.key))
        except StoreError as error:
            log.warning("what was done for somebody cannot be forgotten: %s", traced(error))

    async def watch(self, channel: str, do: Callable[[Errand], Awaitable[None]]) -> None:
        """Do what workers have left undone who are gone. Until cancelled."""
        while True:
            try:
                async for errand in self._left(channel):
                    await do(errand)
            except Exception as error:
                log.warning("what was left undone for somebody cannot be done: %s", traced(error))
            await asyncio.sleep(LOOK)

    async def _left(self, channel: str) -> AsyncGenerator[Errand, None]:
        left = (errands.c.channel == channel) & self._lease.is_gone(errands.c.owner)
        async with self._database.read() as connection:
            found = (await connection.execute(sa.select(errands).where(left).order_by(errands.c.begun_at))).all()
        for row in found:
            this, is_late = errands.c.key == row.key, errands.c.begun_at < self._database.now - PATIENCE
            async with self._database.write() as connection:
                late = await connection.execute(sa.delete(errands).where(this, left, is_late))
                taken = sa.update(errands).where(this, left).values(owner=self._lease.worker)
                if late.rowcount or not (await connection.execute(taken)).rowcount:
                    continue
            yield Errand(row.key, row.what)
