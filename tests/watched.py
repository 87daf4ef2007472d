"""A database that tells when something was written: to ask it again and again was a third of the work of some tests."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from sqlalchemy.ext.asyncio import AsyncConnection

from core.store.database import Database
from core.store.fast_path import Statement

T = TypeVar("T")


class Watched(Database):
    """What others than this one write, in their own connections to the file, it does not tell of."""

    _written: asyncio.Event | None = None

    @asynccontextmanager
    async def write(self) -> AsyncIterator[AsyncConnection]:
        try:
            async with super().write() as connection:
                yield connection
        finally:
            self._tell()

    async def run(self, statement: Statement, **values: Any) -> list[tuple[Any, ...]]:
        try:
            return await super().run(statement, **values)
        finally:
            if self._prepared[statement].writes:
                self._tell()

    async def until(self, look: Callable[[], Awaitable[T]], holds: Callable[[T], object], *, seconds: float = 30) -> T:
        """What `look` finds, as soon as `holds` is true of it: it looks again whenever something was written.

        Raises:
            TimeoutError: that takes longer.
        """
        async with asyncio.timeout(seconds):
            while True:
                written = self._written = self._written or asyncio.Event()
                found = await look()
                if holds(found):
                    return found
                await written.wait()

    def _tell(self) -> None:
        if self._written is not None:
            self._written.set()
            self._written = None
