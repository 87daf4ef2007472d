"""What one process tells all the others at once."""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from core.concurrency.tasks import run_every
from core.errors import StoreError
from core.secret_redaction import format_error
from core.store.database import Database

log = logging.getLogger(__name__)

#: PostgreSQL's name for what all processes listen to.
CHANNEL = "parley"

#: Seconds to wait before a lost connection is made anew.
RECONNECT_SECONDS = 1.0

#: Seconds that saying goodbye may take.
CLOSE_TIMEOUT_SECONDS = 5.0


class NotificationBus:
    """Short texts, over PostgreSQL's LISTEN and NOTIFY. They may be lost: whoever waits for one has to look by himself
    now and then. On SQLite there is one process, and nobody to tell.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    async def notify(self, connection: AsyncConnection, text: str) -> None:
        """Tell all processes, this one included, when the transaction is committed."""
        if not self._database.is_sqlite:
            await connection.execute(sa.select(sa.func.pg_notify(CHANNEL, text)))

    async def notify_now(self, text: str) -> None:
        """Tell all processes, this one included, now; or nobody, if it cannot be told."""
        if self._database.is_sqlite:
            return
        try:
            async with self._database.write() as connection:
                await self.notify(connection, text)
        except StoreError as error:
            log.warning("the other processes have to look by themselves: %s", format_error(error))

    async def listen(self, on_notification: Callable[[str], None]) -> None:
        """Call `heard` with each text; with an empty one, whenever some may have been missed. Until cancelled."""
        if not self._database.is_sqlite:
            await run_every(
                RECONNECT_SECONDS,
                partial(self._listen_once, on_notification),
                what="no notices from the other processes",
            )

    async def _listen_once(self, on_notification: Callable[[str], None]) -> None:
        """Hear until the connection is gone."""
        gone = asyncio.Event()
        async with self._database.engine.connect() as connection:
            driver: Any = (await connection.get_raw_connection()).driver_connection
            try:
                driver.add_termination_listener(lambda _connection: gone.set())
                await driver.add_listener(CHANNEL, lambda _connection, _pid, _channel, text: on_notification(text))
                on_notification("")
                await gone.wait()
            finally:
                async with asyncio.timeout(CLOSE_TIMEOUT_SECONDS):
                    await connection.invalidate()  # it listens, and must not go back to the others
