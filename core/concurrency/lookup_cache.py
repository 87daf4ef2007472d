"""Cache of lookups on a platform, such as names and locales."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable
from contextlib import suppress
from typing import Generic, TypeVar
from weakref import WeakValueDictionary

from cachetools import LRUCache, TTLCache

from core.errors import SurfaceError
from core.observability.secret_redaction import format_error

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
D = TypeVar("D")

#: Answers in one cache; the least recently used one is dropped first.
MAX_ENTRIES = 10_000

log = logging.getLogger(__name__)


class LookupCache(Generic[K, V]):
    """Cache of a platform's answers by key, with at most `MAX_ENTRIES` entries.

    Tasks that look up the same key at the same time share one call, unless it fails.

    Args:
        kind: the kind of the answers, for the log.
        seconds: the age at which an answer is fetched again.
        timeout: the most seconds that `get_or_last` waits for a new answer, before it cancels the lookup.
    """

    def __init__(self, kind: str, seconds: float, *, timeout: float | None = None) -> None:
        self._kind = kind
        self._timeout = timeout
        self._fresh: TTLCache[K, V, float] = TTLCache(MAX_ENTRIES, seconds)
        self._last: LRUCache[K, V] = LRUCache(MAX_ENTRIES)
        self._locks = WeakValueDictionary[K, asyncio.Lock]()

    async def get(self, key: K, fetch: Callable[[], Awaitable[V]]) -> V:
        """Return the cached answer for a key; a missing or too old one is fetched first.

        Errors of `fetch` are raised, and not cached.
        """
        async with self._locks.setdefault(key, asyncio.Lock()):
            with suppress(KeyError):
                return self._fresh[key]
            answer = self._fresh[key] = self._last[key] = await fetch()
            return answer

    async def get_or_last(self, key: K, fetch: Callable[[], Awaitable[V]], default: D) -> V | D:
        """Return the answer for a key; an older one if the platform fails or is slow.

        If `fetch` raises `SurfaceError` or exceeds the timeout, this is logged, and the last answer for the key, at any
        age, or else `default` is returned.
        """
        try:
            async with asyncio.timeout(self._timeout):
                return await self.get(key, fetch)
        except (SurfaceError, TimeoutError) as error:
            log.warning("%s cannot be looked up: %s", self._kind, format_error(error))
            return self._last.get(key, default)
