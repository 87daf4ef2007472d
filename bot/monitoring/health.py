"""Health: whether the bot hears what is said, and can keep it."""

import asyncio
import logging
from collections.abc import Collection, Coroutine
from functools import partial

from channels.base import Channel
from core.concurrency import event_loop
from core.concurrency.tasks import run_every
from core.errors import ConnectionLostError, StoreError
from core.secret_redaction import format_error
from core.store.database import Database

log = logging.getLogger(__name__)

#: Seconds that a sign of life may be overdue before the channel counts as deaf and is connected anew.
PATIENCE = 30.0

#: Seconds that it may be overdue before the process ends: a platform starts anew only what has ended.
LIMIT = 120.0

#: Seconds between two looks at the channels, and between two questions to the database, which may take as long.
LOOK_SECONDS = 1.0
DATABASE_SECONDS = 5.0


class Health:
    """Watches the channels and the database.

    Attributes:
        is_ready: whether what is said is heard and kept.
        why: if not, a line for each reason.
    """

    def __init__(self, *, patience: float = PATIENCE, limit: float = LIMIT) -> None:
        self._patience = patience
        self._limit = limit
        self._reasons: dict[str, str] = {"start": "starting"}
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def is_ready(self) -> bool:
        return not self._reasons

    @property
    def why(self) -> list[str]:
        return list(self._reasons.values())

    def drain(self) -> None:
        """A stop has begun: nothing new is answered."""
        self._reasons["stop"] = "stopping"

    async def watch(self, channels: Collection[Channel], database: Database) -> None:
        """Watch, from when all channels have connected until this is cancelled. What is deaf is connected anew.

        Raises:
            ConnectionLostError: a channel stays deaf.
        """
        self._reasons.pop("start", None)
        check = run_every(DATABASE_SECONDS, partial(self._check_database, database), what="the database is not checked")
        self._own(check, name="health of the database")
        try:
            await self._watch_channels(channels)
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _watch_channels(self, channels: Collection[Channel]) -> None:
        """By a clock of its own: that of the day may be set, and a machine may have slept."""
        lives = {channel: (channel.last_event_at(), event_loop.now()) for channel in channels}
        tries = dict.fromkeys(channels, 0)
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            for channel, (heard_at, since) in lives.items():
                if channel.last_event_at() != heard_at or not heard_at:  # or it has not been meant to hear by now
                    lives[channel], tries[channel] = (channel.last_event_at(), event_loop.now()), 0
                    self._note(channel.name)
                    continue
                overdue = event_loop.now() - since - channel.heartbeat_interval
                if overdue > self._limit:
                    raise ConnectionLostError(
                        f"{channel.name}: there was no sign of life for {event_loop.now() - since:.0f} s; ending"
                    )
                if overdue > self._patience * (tries[channel] + 1):
                    tries[channel] += 1
                    self._note(channel.name, f"{channel.name}: there is no sign of life")
                    self._own(self._reconnect(channel), name=f"reconnecting {channel.name}")

    async def _reconnect(self, channel: Channel) -> None:
        log.warning("%s: connecting anew", channel.name)
        try:
            async with asyncio.timeout(self._patience):
                await channel.reconnect()
        except Exception as error:
            log.error("%s: cannot be connected anew: %s", channel.name, format_error(error))

    async def _check_database(self, database: Database) -> None:
        reason = None
        try:
            async with asyncio.timeout(DATABASE_SECONDS):
                await database.ping()
        except StoreError as error:
            reason = str(error)
        except TimeoutError:
            reason = f"the database has not answered for {DATABASE_SECONDS:g} s"
        self._note("database", reason)

    def _note(self, about: str, reason: str | None = None) -> None:
        """Something is in the way of being ready, or is no more."""
        if reason is not None and about not in self._reasons:
            log.warning("not ready: %s", reason)
            self._reasons[about] = reason
        elif reason is None and self._reasons.pop(about, None) is not None and self.is_ready:
            log.info("ready again")

    def _own(self, work: Coroutine[None, None, None], *, name: str) -> None:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
