"""Health monitor of the platforms and the database."""

import asyncio
import logging
from collections.abc import Collection, Coroutine
from functools import partial

from channels.platform import PlatformAdapter
from core.concurrency import event_loop
from core.concurrency.tasks import run_every
from core.errors import ConnectionLostError, SchemaError, StoreError
from core.observability.secret_redaction import format_error
from core.store.database import Database
from core.store.migrate import list_known_revisions, verify_revision

log = logging.getLogger(__name__)

#: Seconds that a heartbeat may be overdue before the adapter reconnects.
SILENCE_SECONDS = 30.0

#: Seconds that a heartbeat may be overdue before the process exits, so that its supervisor restarts it.
MAX_SILENCE_SECONDS = 120.0

#: Seconds between two checks of the adapters, and of the database (also that check's timeout).
CHECK_SECONDS = 1.0
DATABASE_CHECK_SECONDS = 5.0


class HealthMonitor:
    """Monitor of the database and of the heartbeats of the platform connections.

    Attributes:
        is_ready: whether messages are received and stored; False before `watch` and after `mark_stopping`.
        reasons: a line for each reason why the bot is not ready.
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

    @property
    def is_stopping(self) -> bool:
        return "stop" in self._reasons

    def mark_stopping(self) -> None:
        """Report the bot as not ready from now on."""
        self._reasons["stop"] = "stopping"

    async def watch(self, adapters: Collection[PlatformAdapter], database: Database) -> None:
        """Watch the adapters and the database until cancelled.

        An adapter whose heartbeat is overdue by `silence_seconds` is reconnected, and again after as many seconds more.
        One that never had a connection is not.

        Raises:
            ConnectionLostError: a heartbeat is overdue by more than `max_silence_seconds`.
            SchemaError: a newer version of Parley has migrated the database.
        """
        self._reasons.pop("start", None)
        work = partial(self._check_database, database, list_known_revisions())
        check = run_every(DATABASE_CHECK_SECONDS, work, failure="the database cannot be checked")
        self._start_task(check, name="health of the database")
        try:
            await self._watch_adapters(adapters)
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _watch_adapters(self, adapters: Collection[PlatformAdapter]) -> None:
        """Reconnect adapters whose heartbeat is overdue, until cancelled.

        Intervals are measured by the monotonic clock: the wall clock may be set, and a machine may have slept.
        """
        heartbeats = {adapter: (adapter.last_event_at(), event_loop.now()) for adapter in adapters}
        tries = dict.fromkeys(adapters, 0)
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            if self._schema_error is not None:
                raise self._schema_error
            for adapter, (last_event_at, since) in heartbeats.items():
                if adapter.last_event_at() != last_event_at or not last_event_at:  # a new event, or no connection yet
                    heartbeats[adapter], tries[adapter] = (adapter.last_event_at(), event_loop.now()), 0
                    self._set_reason(adapter.name)
                    continue
                overdue = event_loop.now() - since - adapter.heartbeat_interval
                if overdue > self._limit:
                    raise ConnectionLostError(
                        f"{adapter.name}: no heartbeat for {event_loop.now() - since:.0f} s; ending"
                    )
                if overdue > self._patience * (tries[adapter] + 1):
                    tries[adapter] += 1
                    self._set_reason(adapter.name, f"{adapter.name}: no heartbeat")
                    self._start_task(self._reconnect(adapter), name=f"reconnecting {adapter.name}")

    async def _reconnect(self, adapter: PlatformAdapter) -> None:
        log.warning("%s: reconnecting", adapter.name)
        try:
            async with asyncio.timeout(self._patience):
                await adapter.reconnect()
        except Exception as error:
            log.error("%s: cannot reconnect: %s", adapter.name, format_error(error))

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
        """Store and log why a platform or the database is not ready, or that it is ready again."""
        if reason is not None and about not in self._reasons:
            log.warning("not ready: %s", reason)
            self._reasons[about] = reason
        elif reason is None and self._reasons.pop(about, None) is not None and self.is_ready:
            log.info("ready again")

    def _start_task(self, work: Coroutine[None, None, None], *, name: str) -> None:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
