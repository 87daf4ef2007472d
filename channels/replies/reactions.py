"""Reactions that mark users' messages as waiting for an answer."""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from cachetools import LRUCache

from core.concurrency.tasks import BackgroundTasks
from core.errors import SurfaceError

log = logging.getLogger(__name__)

Address = Mapping[str, Any]

#: The most reactions in memory. Other processes remove those of the turns that they run, so that they would stay here.
MAX_REACTIONS = 10_000


class QueuedReactions:
    """Adds and removes the reactions that mark users' messages as waiting.

    Each platform call runs in a background task; its errors are logged. An address is that of the reply to the message.
    """

    def __init__(self, add: Callable[[Address], Awaitable[None]], remove: Callable[[Address], Awaitable[None]]) -> None:
        self._add_reaction = add
        self._remove_reaction = remove
        #: The tasks that added the reactions; None: another process did.
        self._tasks: LRUCache[str, asyncio.Task[None] | None] = LRUCache(MAX_REACTIONS)
        self._background = BackgroundTasks()

    def add(self, address: Address) -> None:
        """Add the "queued" reaction to a user's message, unless this process has added or assumed it."""
        key = _key(address)
        if key not in self._tasks:
            self._tasks[key] = task = asyncio.create_task(_log_errors(self._add_reaction, address), name="reaction")
            self._background.add(task)

    def assume_added(self, address: Address) -> None:
        """Note in memory that another process may have added the "queued" reaction, so that `remove` removes it."""
        self._tasks.setdefault(_key(address), None)

    def remove(self, address: Address) -> None:
        """Remove the "queued" reaction from a user's message, if this process has added or assumed it."""
        key = _key(address)
        if key in self._tasks:
            self._background.add(
                asyncio.create_task(self._remove_after(self._tasks.pop(key), address), name="reaction")
            )

    async def drain(self, seconds: float) -> None:
        """Wait at most `seconds` for platform calls in the background, then cancel them."""
        await self._background.drain(seconds)

    async def _remove_after(self, addition: asyncio.Task[None] | None, address: Address) -> None:
        if addition is not None:
            await addition
        await _log_errors(self._remove_reaction, address)


async def _log_errors(react: Callable[[Address], Awaitable[None]], address: Address) -> None:
    try:
        await react(address)
    except SurfaceError as error:  # the reply does not depend on it
        log.info("a reaction cannot be changed: %s", error)


def _key(address: Address) -> str:
    return json.dumps(address, sort_keys=True)
