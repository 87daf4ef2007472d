"""Notifications among worker processes, by PostgreSQL's LISTEN and NOTIFY."""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from core.concurrency.tasks import run_every
from core.errors import StoreError
from core.observability.secret_redaction import format_error
from core.store.database import Database

log = logging.getLogger(__name__)

#: The name of the PostgreSQL channel.
CHANNEL = "parley"

#: Seconds until a lost connection for LISTEN is opened again.
RECONNECT_SECONDS = 1.0

#: Seconds that closing the connection for LISTEN may take.
CLOSE_TIMEOUT_SECONDS = 5.0


def build_notification(text: sa.ColumnElement[str]) -> sa.ColumnElement[Any]:
    """Return the SQL expression that sends a text to all workers, this one included; PostgreSQL only."""
    return sa.func.pg_notify(CHANNEL, text)


class NotificationBus:
    """Sender and receiver of short texts (notifications) among all worker processes.

    On SQLite there is only one process: nothing is sent, and `listen` returns at once. A notification may be lost while
    the connection is interrupted, so a listener has to poll the database as well.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    async def notify(self, connection: AsyncConnection, text: str) -> None:
        """Send a text to all workers, this one included, when the transaction commits."""
        if not self._database.is_sqlite:
            await connection.execute(sa.select(build_notification(sa.literal(text))))

    async def notify_now(self, text: str) -> None:
        """Send a text to all workers in a transaction of its own; a failure is logged."""
        if self._database.is_sqlite:
            return
        try:
            async with self._database.write() as connection:
                await self.notify(connection, text)
        except StoreError as error:
            log.warning("the other workers are not notified: %s", format_error(error))

    async def listen(self, on_notification: Callable[[str], None]) -> None:
        """Receive notifications until cancelled, and connect again after a failure.

        After each connect, `on_notification` is called with an empty text, since notifications may have been lost.
        """
        if not self._database.is_sqlite:
            await run_every(
                RECONNECT_SECONDS,
                partial(self._listen_once, on_notification),
                failure="notifications of the other processes cannot be received",
            )

    async def _listen_once(self, on_notification: Callable[[str], None]) -> None:
        disconnected = asyncio.Event()
        async with self._database.engine.connect() as connection:
            driver: Any = (await connection.get_raw_connection()).driver_connection
            try:
                driver.add_termination_listener(lambda _connection: disconnected.set())
                await driver.add_listener(CHANNEL, lambda _connection, _pid, _channel, text: on_notification(text))
                on_notification("")
                await disconnected.wait()
            finally:
                async with asyncio.timeout(CLOSE_TIMEOUT_SECONDS):
                    await connection.invalidate()  # a listening connection must not return to the pool
