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


class Receipts:
    """The signs that stand. Nobody waits for them.

    Args:
        add: sets the sign on the message of an address.
        remove: takes it away.
    """

    def __init__(self, add: Callable[[Address], Awaitable[None]], remove: Callable[[Address], Awaitable[None]]) -> None:
        self._add = add
        self._remove = remove
        #: None: by another process.
        self._given: LRUCache[str, asyncio.Task[None] | None] = LRUCache(MAX_REACTIONS)
        self._work = Work()

    def give(self, address: Address) -> None:
        """Set the sign, if it was not."""
        key = _key(address)
        if key not in self._given:
            self._given[key] = task = asyncio.create_task(_tried(self._add, address), name="receipt")
            self._work.watch(task)

    def given(self, address: Address) -> None:
        """The sign may have been set by another process."""
        self._given.setdefault(_key(address), None)

    def take_back(self, address: Address) -> None:
        """Take the sign away, if it was given."""
        key = _key(address)
        if key in self._given:
            self._work.watch(asyncio.create_task(self._take(self._given.pop(key), address), name="receipt"))

    async def settle(self, seconds: float) -> None:
        """Wait for what is under way as `Work.end` does."""
        await self._work.end(seconds)

    async def _take(self, given: asyncio.Task[None] | None, address: Address) -> None:
        if given is not None:
            await given
        await _tried(self._remove, address)


async def _tried(react: Callable[[Address], Awaitable[None]], address: Address) -> None:
    try:
        await react(address)
    except SurfaceError as error:  # a nicety: the answer comes without it too
        log.info("no receipt: %s", error)


def _key(address: Address) -> str:
    return json.dumps(address, sort_keys=True)
