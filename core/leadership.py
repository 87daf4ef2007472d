"""Of several workers, one leads where only one may."""

import asyncio
import logging
from collections.abc import AsyncGenerator

import sqlalchemy as sa

from core.errors import StoreError
from core.lease import Lease
from core.secrets import traced
from core.store.database import Database
from core.store.schema import channels
from core.store.upsert import insert_new

log = logging.getLogger(__name__)

#: Seconds between two looks at who leads.
LOOK = 2.0


class Leadership:
    """Which of all workers a channel hears through: one, for as long as its lease lasts, and then another one.

    For a moment two may think that they lead, when one of them cannot reach the database: what both hear is kept once.

    Args:
        name: the channel's.
    """

    def __init__(self, database: Database, lease: Lease, name: str) -> None:
        self._database = database
        self._lease = lease
        self._name = name

    async def changes(self) -> AsyncGenerator[bool, None]:
        """Whether this worker leads: at once, and then whenever that changes."""
        leads: bool | None = None
        while True:
            try:
                found = await self._seek()
            except StoreError as error:
                log.warning("cannot see who hears %s: %s", self._name, traced(error))
                found = bool(leads)
            if found is not leads:
                leads = found
                yield leads
            await asyncio.sleep(LOOK)

    async def give_up(self) -> None:
        """Let another one lead, if this worker does."""
        ours = (channels.c.name == self._name) & (channels.c.leader == self._lease.worker)
        try:
            async with self._database.write() as connection:
                await connection.execute(sa.update(channels).where(ours).values(leader=None))
        except StoreError as error:
            log.warning("%s is heard by nobody until this worker's lease ends: %s", self._name, traced(error))

    async def _seek(self) -> bool:
        """Lead if nobody else does; whether this worker does then."""
        leader = sa.select(channels.c.leader, self._lease.is_gone(channels.c.leader)).where(
            channels.c.name == self._name
        )
        async with self._database.read() as connection:
            row = (await connection.execute(leader)).one_or_none()
        if row is not None and not row[1]:
            return bool(row[0] == self._lease.worker)
        async with self._database.write() as connection:
            await insert_new(connection, channels, {"name": self._name})
            free = (channels.c.name == self._name) & self._lease.is_gone(channels.c.leader)
            taken = await connection.execute(sa.update(channels).where(free).values(leader=self._lease.worker))
            return bool(taken.rowcount)
