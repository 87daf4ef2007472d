"""Receipts: the sign that tells an author that a message was heard and waits for its turn."""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from cachetools import LRUCache

from core.concurrency.tasks import Work
from core.errors import SurfaceError

log = logging.getLogger(__name__)

Address = Mapping[str, Any]

#: Reactions that a process remembers; those of turns that other processes run are never removed here.
MAX_REACTIONS = 10_000


class QueuedReactions:
    """The signs that stand. Nobody waits for them.

    Args:
        add: sets the sign on the message of an address.
        remove: takes it away.
    """

    def __init__(self, add: Callable[[Address], Awaitable[None]], remove: Callable[[Address], Awaitable[None]]) -> None:
        self._add_reaction = add
        self._remove_reaction = remove
        #: None: by another process.
        self._tasks: LRUCache[str, asyncio.Task[None] | None] = LRUCache(MAX_REACTIONS)
        self._background = Work()

    def add(self, address: Address) -> None:
        """Set the sign, if it was not."""
        key = _key(address)
        if key not in self._tasks:
            self._tasks[key] = task = asyncio.create_task(_log_errors(self._add_reaction, address), name="receipt")
            self._background.watch(task)

    def assume_added(self, address: Address) -> None:
        """The sign may have been set by another process."""
        self._tasks.setdefault(_key(address), None)

    def remove(self, address: Address) -> None:
        """Take the sign away, if it was given."""
        key = _key(address)
        if key in self._tasks:
            self._background.watch(
                asyncio.create_task(self._remove_after(self._tasks.pop(key), address), name="receipt")
            )

    async def drain(self, seconds: float) -> None:
        """Wait for what is under way as `Work.end` does."""
        await self._background.end(seconds)

    async def _remove_after(self, adding: asyncio.Task[None] | None, address: Address) -> None:
        if adding is not None:
            await adding
        await _log_errors(self._remove_reaction, address)


async def _log_errors(react: Callable[[Address], Awaitable[None]], address: Address) -> None:
    try:
        await react(address)
    except SurfaceError as error:  # a nicety: the answer comes without it too
        log.info("no receipt: %s", error)


def _key(address: Address) -> str:
    return json.dumps(address, sort_keys=True)
