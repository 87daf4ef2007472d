"""Cache of a platform's answers: each is fetched at most once in a while."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable
from contextlib import suppress
from typing import Generic, TypeVar
from weakref import WeakValueDictionary

from cachetools import LRUCache, TTLCache

from core.errors import SurfaceError
from core.secret_redaction import format_error

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
D = TypeVar("D")

#: Answers in one cache; the least recently used one is dropped first.
MAX_ANSWERS = 10_000

log = logging.getLogger(__name__)


class LookupCache(Generic[K, V]):
    """Answers by key. Tasks that need the same answer at the same time share one call.

    Args:
        kind: what the answers are about, for the log.
        seconds: how long an answer is used before it is fetched again.
        timeout: seconds that `get_or_last` waits for a new answer.
    """

    def __init__(self, kind: str, seconds: float, *, timeout: float | None = None) -> None:
        self._kind = kind
        self._timeout = timeout
        self._fresh: TTLCache[K, V, float] = TTLCache(MAX_ANSWERS, seconds)
        self._last: LRUCache[K, V] = LRUCache(MAX_ANSWERS)
        self._locks = WeakValueDictionary[K, asyncio.Lock]()

    async def get(self, key: K, fetch: Callable[[], Awaitable[V]]) -> V:
        """Return the answer for a key. An error of `fetch` is raised, and not cached."""
        async with self._locks.setdefault(key, asyncio.Lock()):
            with suppress(KeyError):
                return self._fresh[key]
            answer = self._fresh[key] = self._last[key] = await fetch()
            return answer

    async def get_or_last(self, key: K, fetch: Callable[[], Awaitable[V]], default: D) -> V | D:
        """Return the answer for a key; if the platform does not answer in time, the last one, or `default`."""
        try:
            async with asyncio.timeout(self._timeout):
                return await self.get(key, fetch)
        except (SurfaceError, TimeoutError) as error:
            log.warning("%s cannot be looked up: %s", self._kind, format_error(error))
            return self._last.get(key, default)
