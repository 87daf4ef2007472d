"""Leases: a worker's time-limited right to its turns, renewed while it lives."""

import asyncio
import logging
import uuid
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from core.concurrency import event_loop
from core.concurrency.tasks import run_every
from core.errors import StoreError
from core.observability.secret_redaction import format_error
from core.store.database import Database
from core.store.schema import workers

log = logging.getLogger(__name__)

#: Seconds after its last renewal at which a lease ends.
LEASE_SECONDS = 10.0

#: The most seconds of a release, at shutdown.
RELEASE_SECONDS = 2.0

#: Renewals of a lease within its duration.
RENEWALS_PER_LEASE = 4


class Lease:
    """Lease of this process: a row in `workers` with an expiry time that it renews.

    After the lease has ended, other workers may claim the turns of this one. On SQLite, only one process at a time has
    the database file: its lease does not end.

    Args:
        seconds: duration of the lease without renewal.

    Attributes:
        worker_id: the id of this process, new with each start.
    """

    def __init__(self, database: Database, *, seconds: float = LEASE_SECONDS) -> None:
        self._database = database
        self._seconds = seconds
        self._takeover_from = 0.0
        self._had_ended_until = 0.0
        self._until = 0.0
        self.worker_id = uuid.uuid4().hex[:12]

    @property
    def is_valid(self) -> bool:
        """True if the lease has certainly not ended; False before `acquire`, always True on SQLite after it."""
        return event_loop.now() < self._until

    async def acquire(self) -> None:
        """Insert this worker's row into `workers`; on SQLite, delete those of former processes."""
        async with self._database.write() as connection:
            if self._database.is_sqlite:
                await connection.execute(sa.delete(workers))
            started_at = await self._write(connection)
        self._extend(started_at)

    async def keep_renewed(self) -> None:
        """Renew the lease `RENEWALS_PER_LEASE` times in its duration, until cancelled.

        A failure is logged. On SQLite it returns at once.
        """
        if not self._database.is_sqlite:  # the first renewal is at once: the start may have taken long
            await run_every(self._seconds / RENEWALS_PER_LEASE, self._renew, failure="the lease cannot be renewed")

    async def _renew(self) -> None:
        try:
            async with asyncio.timeout(self._seconds), self._database.write() as connection:
                started_at = await self._write(connection)
        except Exception:
            self._delay_takeover()
            raise
        self._extend(started_at)

    async def release(self) -> None:
        """Delete this worker's row, so that other workers may claim its turns at once.

        A failure, or a wait of `RELEASE_SECONDS`, is logged; the lease then ends by its expiry time.
        """
        try:
            async with asyncio.timeout(RELEASE_SECONDS), self._database.write() as connection:
                await connection.execute(sa.delete(workers).where(workers.c.id == self.worker_id))
        except (StoreError, TimeoutError) as error:
            log.warning("the lease cannot be released, and ends in %s s: %s", self._seconds, format_error(error))

    @property
    def may_take_over(self) -> bool:
        """True if this worker may take over turns of workers whose leases ended.

        It is False for twice the duration of a lease after this worker's own lease ended or a renewal failed. The same
        cause, such as an outage of the database, may have stopped all workers, so they get time to renew.
        """
        return self.is_valid and event_loop.now() >= self._takeover_from

    @property
    def may_have_ended(self) -> bool:
        """True if other workers may have claimed turns of this one.

        That is so if the lease may have ended, or had ended within the last two durations of a lease.
        """
        return not self.is_valid or event_loop.now() < self._had_ended_until

    def has_no_live_worker(self, owner: sa.ColumnElement[Any]) -> sa.ColumnElement[bool]:
        """Return the SQL condition that a row has no owner, or one whose lease has ended.

        While `may_take_over` is False, no lease counts as ended.
        """
        return has_no_live_owner(owner, sa.literal(self.may_take_over), self._database.now)

    def _delay_takeover(self) -> None:
        self._takeover_from = event_loop.now() + 2 * self._seconds

    async def _write(self, connection: AsyncConnection) -> float:
        """Write this worker's expiry time, and return the time from which the committed lease lasts."""
        started_at = event_loop.now()
        until = sa.literal(float("inf")) if self._database.is_sqlite else self._database.now + self._seconds
        renewed = sa.update(workers).where(workers.c.id == self.worker_id).values(lease_expires_at=until)
        if not (await connection.execute(renewed)).rowcount:
            await connection.execute(
                sa.insert(workers).values(id=self.worker_id, lease_expires_at=until, rate_limit_usage={})
            )
        return started_at

    def _extend(self, started_at: float) -> None:
        """Set the time until which `is_valid` is True, from the start of the renewal."""
        if self._until and not self.is_valid:
            log.warning("this worker was blocked for longer than its lease lasts")
            self._delay_takeover()
            self._had_ended_until = self._takeover_from
        self._until = float("inf") if self._database.is_sqlite else started_at + self._seconds


def has_no_live_owner(
    owner: sa.ColumnElement[Any], may_take_over: sa.ColumnElement[bool], now: sa.ColumnElement[float]
) -> sa.ColumnElement[bool]:
    """Return the condition of `Lease.has_no_live_worker`, also for statements that are built once."""
    live = sa.select(workers.c.id).where(workers.c.lease_expires_at > now)
    return owner.is_(None) | (may_take_over & owner.not_in(live))
