"""Health monitor of the channels and the database."""

import asyncio
import logging
from collections.abc import Collection, Coroutine
from functools import partial

from channels.base import Channel
from core.concurrency import event_loop
from core.concurrency.tasks import run_every
from core.errors import ConnectionLostError, SchemaError, StoreError
from core.secret_redaction import format_error
from core.store.database import Database
from core.store.migrate import list_known_revisions, verify_revision

log = logging.getLogger(__name__)

#: Seconds that a heartbeat may be overdue before the channel reconnects.
SILENCE_SECONDS = 30.0

#: Seconds that a heartbeat may be overdue before the process exits, so that its supervisor restarts it.
MAX_SILENCE_SECONDS = 120.0

#: Seconds between two checks of the channels, and of the database (also that check's timeout).
CHECK_SECONDS = 1.0
DATABASE_CHECK_SECONDS = 5.0


class HealthMonitor:
    """Monitor of the database and of the heartbeats of the platform connections.

    Args:
        silence_seconds: seconds that a heartbeat may be overdue before the channel reconnects. After as many seconds
            more, the channel reconnects again.
        max_silence_seconds: seconds that a heartbeat may be overdue before `watch` raises.

    Attributes:
        is_ready: whether messages are received and stored; False before `watch` and after `mark_stopping`.
        reasons: a line for each reason why the bot is not ready; empty if it is ready.
    """

    def __init__(
        self, *, silence_seconds: float = SILENCE_SECONDS, max_silence_seconds: float = MAX_SILENCE_SECONDS
    ) -> None:
        self._patience = silence_seconds
        self._limit = max_silence_seconds
        self._reasons: dict[str, str] = {"start": "starting"}
        self._tasks: set[asyncio.Task[None]] = set()
        self._schema_error: SchemaError | None = None

    @property
    def is_ready(self) -> bool:
        return not self._reasons

    @property
    def reasons(self) -> list[str]:
        return list(self._reasons.values())

    def mark_stopping(self) -> None:
        """Report the bot as not ready from now on, because the shutdown has begun."""
        self._reasons["stop"] = "stopping"

    async def watch(self, channels: Collection[Channel], database: Database) -> None:
        """Watch the channel adapters and the database until cancelled.

        An adapter whose heartbeat is overdue is reconnected; one that never had a connection is not. `reasons` has the
        failures of adapters and database.

        Raises:
            ConnectionLostError: a heartbeat is overdue by more than `max_silence_seconds`.
            SchemaError: a newer version of Parley has migrated the database.
        """
        self._reasons.pop("start", None)
        work = partial(self._check_database, database, list_known_revisions())
        check = run_every(DATABASE_CHECK_SECONDS, work, failure="the database cannot be checked")
        self._start_task(check, name="health of the database")
        try:
            await self._watch_channels(channels)
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _watch_channels(self, channels: Collection[Channel]) -> None:
        """Reconnect channel adapters whose heartbeat is overdue, until cancelled.

        Intervals are measured by the monotonic clock: the wall clock may be set, and a machine may have slept.

        Raises:
            ConnectionLostError: a heartbeat is overdue by more than `max_silence_seconds`.
            SchemaError: as for `watch`.
        """
        heartbeats = {channel: (channel.last_event_at(), event_loop.now()) for channel in channels}
        tries = dict.fromkeys(channels, 0)
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            if self._schema_error is not None:
                raise self._schema_error
            for channel, (last_event_at, since) in heartbeats.items():
                if channel.last_event_at() != last_event_at or not last_event_at:  # a new event, or no connection yet
                    heartbeats[channel], tries[channel] = (channel.last_event_at(), event_loop.now()), 0
                    self._set_reason(channel.name)
                    continue
                overdue = event_loop.now() - since - channel.heartbeat_interval
                if overdue > self._limit:
                    raise ConnectionLostError(
                        f"{channel.name}: no heartbeat for {event_loop.now() - since:.0f} s; ending"
                    )
                if overdue > self._patience * (tries[channel] + 1):
                    tries[channel] += 1
                    self._set_reason(channel.name, f"{channel.name}: no heartbeat")
                    self._start_task(self._reconnect(channel), name=f"reconnecting {channel.name}")

    async def _reconnect(self, channel: Channel) -> None:
        log.warning("%s: reconnecting", channel.name)
        try:
            async with asyncio.timeout(self._patience):
                await channel.reconnect()
        except Exception as error:
            log.error("%s: cannot reconnect: %s", channel.name, format_error(error))

    async def _check_database(self, database: Database, known_revisions: Collection[str]) -> None:
        reason = None
        try:
            async with asyncio.timeout(DATABASE_CHECK_SECONDS):
                await database.ping()
                await verify_revision(database, known_revisions)
        except SchemaError as error:
            reason = str(error)
            self._schema_error = error
        except StoreError as error:
            reason = str(error)
        except TimeoutError:
            reason = f"the database has not answered for {DATABASE_CHECK_SECONDS:g} s"
        self._set_reason("database", reason)

    def _set_reason(self, about: str, reason: str | None = None) -> None:
        """Store why a platform or the database is not ready, or delete that reason.

        A stored reason is not replaced by another one. Changes are logged.

        Args:
            about: name of the platform, or `database`.
            reason: line for `reasons`; None if the platform or the database is ready.
        """
        if reason is not None and about not in self._reasons:
            log.warning("not ready: %s", reason)
            self._reasons[about] = reason
        elif reason is None and self._reasons.pop(about, None) is not None and self.is_ready:
            log.info("ready again")

    def _start_task(self, work: Coroutine[None, None, None], *, name: str) -> None:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
