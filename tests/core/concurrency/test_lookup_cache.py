import asyncio
from collections.abc import Awaitable, Callable

import pytest

from core.concurrency import lookup_cache
from core.concurrency.lookup_cache import LookupCache
from core.errors import SurfaceError


def create_fetch(*values: str) -> Callable[[], Awaitable[str]]:
    """Return a function that returns these values, one per call, and then fails."""
    remaining = list(values)

    async def fetch() -> str:
        if not remaining:
            raise SurfaceError("out of reach")
        await asyncio.sleep(0)
        return remaining.pop(0)

    return fetch


async def test_a_value_is_fetched_once_for_concurrent_tasks() -> None:
    cache, fetch = LookupCache[str, str]("name", 60.0), create_fetch("one", "two")
    assert await asyncio.gather(*(cache.get("a", fetch) for _ in range(3))) == ["one"] * 3
    assert await cache.get("a", fetch) == "one"
    assert await cache.get("b", fetch) == "two"


async def test_an_expired_value_is_used_only_while_the_platform_is_unreachable() -> None:
    cache, fetch = LookupCache[str, str]("name", 0.0), create_fetch("one", "two")
    assert await cache.get_or_last("a", fetch, None) == "one"
    assert [await cache.get_or_last("a", fetch, None) for _ in range(2)] == ["two", "two"]
    assert await cache.get_or_last("b", fetch, None) is None
    with pytest.raises(SurfaceError):
        await cache.get("a", fetch)


async def test_a_slow_platform_is_not_awaited() -> None:
    cache = LookupCache[str, str]("name", 60.0, timeout=0.01)

    async def hang() -> str:
        await asyncio.Event().wait()
        return "never"

    looks = (cache.get_or_last("a", hang, "unknown") for _ in range(3))
    assert await asyncio.gather(*looks) == ["unknown"] * 3


async def test_a_full_cache_drops_the_least_recently_used_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup_cache, "MAX_ENTRIES", 2)
    cache = LookupCache[str, str]("name", 60.0)
    for key in ("a", "b", "a", "c"):
        await cache.get(key, create_fetch(key))
    assert await cache.get("a", create_fetch()) == "a"
    with pytest.raises(SurfaceError):
        await cache.get("b", create_fetch())
