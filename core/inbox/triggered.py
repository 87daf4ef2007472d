"""Inbox entries that begin a turn without a message of a person: due schedules, requests to hooks, finished jobs.

An entry is stored once by its event key. A worker then places it: it checks the author, and posts the message under
which the turn's reply begins. After that, the same row waits for a turn, as a message does.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import suppress

import sqlalchemy as sa

from core.concurrency.retry import retry_for_a_day
from core.errors import StoreError, SurfaceError
from core.messages.inbox_message import InboxMessage, InboxOutcome
from core.messages.trigger import TRIGGER_KINDS
from core.observability.secret_redaction import format_error
from core.sessions.lifecycle import lock_session_row, new_session_row
from core.store.database import Database
from core.store.schema import IS_PENDING, inbox, sessions
from core.store.upsert import insert_or_ignore
from core.store.workers.lease import Lease
from core.turns.queries import list_readable_messages, message_columns
from core.turns.store import TurnStore
from core.turns.worker import Worker
from core.usage.user_rate_limits import NO_RATE_LIMITS, UserRateLimiter

log = logging.getLogger(__name__)

#: Seconds between two queries for entries that other workers stored.
POLL_SECONDS = 3.0

#: The most entries that a worker places at a time.
MAX_CONCURRENT = 20

#: Awaited with an entry, and with whether an earlier try may have placed it. It returns the message that a turn is to
#: answer; None if no turn follows, such as for a plain text. A `SurfaceError` means that a later try may succeed.
Place = Callable[[InboxMessage, bool], Awaitable[InboxMessage | None]]


class TriggeredEntries:
    """Entries that wait to be placed: rows of `inbox` with a kind of `TRIGGER_KINDS` and the outcome `pending`.

    `rates` counts an entry for the person who made the schedule: over a limit, it waits.
    """

    def __init__(
        self,
        database: Database,
        turns: TurnStore,
        worker: Worker,
        lease: Lease,
        *,
        rates: UserRateLimiter = NO_RATE_LIMITS,
    ) -> None:
        self._database = database
        self._turns = turns
        self._worker = worker
        self._lease = lease
        self._rates = rates
        self._wake = asyncio.Event()

    def wake(self) -> None:
        """Make this worker place entries now instead of after `POLL_SECONDS`."""
        self._wake.set()

    async def run_placing(self, places: Mapping[str, Place]) -> None:
        """Place the entries of platforms, by name, until cancelled; log errors."""
        placing = set[asyncio.Task[None]]()
        try:
            while True:
                self._wake.clear()
                try:
                    for message, is_repeated in await self._claim(tuple(places), MAX_CONCURRENT - len(placing)):
                        work = self._place(message, is_repeated, places[message.platform])
                        task = asyncio.create_task(work, name=message.event_key)
                        placing.add(task)
                        task.add_done_callback(placing.discard)
                except StoreError as error:
                    log.warning("entries of the inbox cannot be placed: %s", format_error(error))
                with suppress(TimeoutError):
                    async with asyncio.timeout(POLL_SECONDS):
                        await self._wake.wait()
        finally:
            for task in placing:
                task.cancel()
            await asyncio.gather(*placing, return_exceptions=True)

    async def _claim(self, platforms: Collection[str], limit: int) -> list[tuple[InboxMessage, bool]]:
        """Give entries without a live worker to this one; return each with whether it had a worker before."""
        on_platform = sa.or_(*(inbox.c.place.startswith(f"{name}:", autoescape=True) for name in platforms))
        abandoned = IS_PENDING & inbox.c.kind.in_(TRIGGER_KINDS) & self._lease.has_no_live_worker(inbox.c.owner)
        query = sa.select(inbox.c.event_key, inbox.c.message, inbox.c.owner).where(abandoned, on_platform)
        async with self._database.read() as connection:
            found = (await connection.execute(query.order_by(inbox.c.id).limit(limit))).all()
        claimed = list[tuple[InboxMessage, bool]]()
        for row in found:
            is_this = abandoned & (inbox.c.event_key == row.event_key)
            message = next(iter(list_readable_messages([row.message])), None)
            values = {"owner": self._lease.worker_id} if message else {"outcome": InboxOutcome.HANDLED}
            async with self._database.write() as connection:
                updated = await connection.execute(sa.update(inbox).where(is_this).values(values))
            if updated.rowcount and message is None:
                log.error("the entry %s of the inbox cannot be read", row.event_key)
            elif updated.rowcount and message is not None:
                claimed.append((message, row.owner is not None))
        return claimed

    async def _place(self, message: InboxMessage, is_repeated: bool, place: Place) -> None:
        """Place an entry, and queue it for a turn, or end it; log a failure."""
        is_first = not is_repeated

        async def attempt() -> None:
            nonlocal is_first
            may_exist, is_first = not is_first, False
            placed = await place(message, may_exist)
            while (limited := await self._queue(message.event_key, placed)) is not None:
                log.info("%s waits for a rate limit", message.event_key)
                await asyncio.sleep(max(1.0, limited - time.time()))

        try:
            failure = f"{message.event_key} cannot begin yet"
            await retry_for_a_day(attempt, SurfaceError, StoreError, failure=failure)
        except Exception as error:
            log.error("%s does not begin: %s", message.event_key, format_error(error))
            with suppress(StoreError):
                await self._queue(message.event_key, None)
        finally:
            self._wake.set()

    async def _queue(self, event_key: str, placed: InboxMessage | None) -> float | None:
        """Make a placed entry wait for a turn, or end it; return when its rate limit ends, if that prevents it."""
        is_own = IS_PENDING & (inbox.c.event_key == event_key) & (inbox.c.owner == self._lease.worker_id)
        async with self._database.write() as connection:
            if placed is None:
                ended = {"outcome": InboxOutcome.HANDLED, "owner": None, "message": None}
                await connection.execute(sa.update(inbox).where(is_own).values(ended))
                return None
            if not placed.is_bot:
                limited = await self._rates.get_limit_end(connection, author=placed.author, place=placed.place)
                if limited is not None:
                    return limited
            session = new_session_row(placed.session_id, self._turns.agents.default, placed.place)
            await insert_or_ignore(connection, sessions, session)
            generation = await lock_session_row(connection, placed.session_id)
            waiting = message_columns(placed, generation) | {
                "message": placed.to_json(),
                "outcome": None,
                "owner": None,
            }
            is_current = (inbox.c.session != placed.session_id) | (inbox.c.generation == generation)
            queued = await connection.execute(sa.update(inbox).where(is_own, is_current).values(waiting))
            if not queued.rowcount:  # the session was reset meanwhile
                dropped = {"outcome": InboxOutcome.DROPPED, "owner": None, "message": None}
                await connection.execute(sa.update(inbox).where(is_own).values(dropped))
            await self._turns.notify_workers(connection)
        self._worker.wake()
        return None
