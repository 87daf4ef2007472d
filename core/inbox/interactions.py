"""Queue of interactions: commands, button presses and submitted forms.

A platform delivers an interaction only once, so each interaction is stored until it is processed. If a worker dies,
another worker processes its interactions.
"""

import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import sqlalchemy as sa

from core.concurrency.tasks import run_every
from core.errors import StoreError
from core.secret_redaction import format_error
from core.store.database import Database
from core.store.schema import interactions
from core.store.upsert import build_insert
from core.workers.lease import Lease

log = logging.getLogger(__name__)

#: Seconds between two queries for the interactions of dead workers.
POLL_SECONDS = 3.0

#: Seconds after which the interaction of a dead worker is dropped.
MAX_AGE_SECONDS = 1_800.0


class InteractionQueue:
    """Queue of accepted interactions, in the table `interactions`.

    Each row is an interaction that a worker has accepted and not processed yet.

    Args:
        lease: the lease of this worker, which accepts interactions and takes over those of dead workers.
    """

    def __init__(self, database: Database, lease: Lease) -> None:
        self._database = database
        self._lease = lease

    async def add(self, channel: str, key: str, payload: str) -> bool:
        """Store an interaction that this worker has to process.

        If the database fails, a warning is logged, and the interaction is lost if this process ends before it is
        processed.

        Args:
            channel: the name of the adapter.
            key: a key that is the same for each delivery of the interaction.
            payload: the data by which the adapter processes the interaction, in its own format.

        Returns:
            Whether this worker has to process the interaction: it is new, or the database failed.
        """
        row = {
            "key": key,
            "channel": channel,
            "payload": payload,
            "owner": self._lease.worker_id,
            "started_at": self._database.now,
        }
        try:
            async with self._database.write() as connection:
                new = build_insert(connection.dialect.name, interactions).values(row).on_conflict_do_nothing()
                return (await connection.execute(new.returning(interactions.c.key))).first() is not None
        except StoreError as error:
            log.warning("an interaction is not stored, and is lost if this process ends now: %s", format_error(error))
            return True

    @asynccontextmanager
    async def process(self, key: str) -> AsyncIterator[None]:
        """Delete an interaction after the block, also if the block raises an error.

        If the block is cancelled, the interaction stays stored. Another worker processes it once this one is dead. A
        failure of the database is logged: see `remove`.

        Args:
            key: the key of the interaction.
        """
        try:
            yield
        except Exception:
            await self.remove(key)
            raise
        await self.remove(key)

    async def remove(self, key: str) -> None:
        """Delete an interaction; log a failure of the database.

        After a failure, another worker may process the interaction again.
        """
        try:
            async with self._database.write() as connection:
                await connection.execute(sa.delete(interactions).where(interactions.c.key == key))
        except StoreError as error:
            log.warning("a processed interaction cannot be deleted: %s", format_error(error))

    async def run_orphaned(self, channel: str, run: Callable[[str, str], Awaitable[None]]) -> None:
        """Process the interactions of dead workers every `POLL_SECONDS`, until cancelled.

        Interactions that are older than `MAX_AGE_SECONDS` are deleted instead. Errors are logged.

        Args:
            channel: the name of the adapter.
            run: called with the key and the payload of each interaction; it has to process the interaction in a block
                of `process`.
        """

        async def run_all() -> None:
            async for key, payload in self._claim_orphaned(channel):
                await run(key, payload)

        await run_every(POLL_SECONDS, run_all, failure="an interaction of a dead worker cannot be processed")

    async def _claim_orphaned(self, channel: str) -> AsyncGenerator[tuple[str, str], None]:
        orphaned = (interactions.c.channel == channel) & self._lease.has_no_live_worker(interactions.c.owner)
        async with self._database.read() as connection:
            found = (
                await connection.execute(sa.select(interactions).where(orphaned).order_by(interactions.c.started_at))
            ).all()
        for row in found:
            is_this, is_late = (
                interactions.c.key == row.key,
                interactions.c.started_at < self._database.now - MAX_AGE_SECONDS,
            )
            async with self._database.write() as connection:
                expired = await connection.execute(sa.delete(interactions).where(is_this, orphaned, is_late))
                claim = sa.update(interactions).where(is_this, orphaned).values(owner=self._lease.worker_id)
                if expired.rowcount or not (await connection.execute(claim)).rowcount:
                    continue
            yield row.key, row.payload
