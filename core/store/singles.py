"""Connections for single statements, each a transaction of its own: past SQLAlchemy, by the driver itself."""

import asyncio
from dataclasses import dataclass
from typing import Any, Protocol, Self

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from core.errors import ClosedError
from core.store.address import ANSWER_TIMEOUT

#: Seconds to wait until a connection is free.
FREE_TIMEOUT = 30.0


#: A statement in the driver's own words, and its arguments.
Asked = tuple[str, list[Any]]


class Singles(Protocol):
    """Runs statements in the driver's own words."""

    async def ask(self, first: Asked, *more: Asked) -> list[tuple[Any, ...]]:
        """The rows of the first; all of them are one transaction."""

    async def aclose(self) -> None:
        """Close all: what is in use, as soon as it is not. Nothing is asked any more."""


@dataclass(frozen=True, slots=True)
class _Connection:
    """A connection that is taken from the others."""

    connection: AsyncConnection
    driver: Any

    @classmethod
    async def of(cls, engine: AsyncEngine) -> Self:
        connection = await engine.connect()
        return cls(connection, (await connection.get_raw_connection()).driver_connection)

    async def aclose(self) -> None:
        """To be called once: of two that close one connection of aiosqlite (0.22), one waits for ever."""
        await self.connection.invalidate()  # who knows what it is still busy with
        await self.connection.close()


class SqliteSingles:
    """A connection to SQLite that is never in a transaction for longer than a statement, so that all can use it; and
    one for what takes several, one after the other.
    """

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine
        self._connecting = asyncio.Lock()
        self._connection: _Connection | None = None
        self._several: _Connection | None = None
        self._is_closed = False

    async def ask(self, first: Asked, *more: Asked) -> list[tuple[Any, ...]]:
        if more:
            return await self._ask_together(first, *more)
        connection = self._connection or await self._connect()
        try:
            rows: list[tuple[Any, ...]] = await connection.driver.execute_fetchall(*first)
        except Exception:  # a query that broke off would hold on to its moment: others would see nothing newer
            if self._connection is connection:  # several may fail at once
                self._connection = None
                await connection.aclose()
            raise
        return rows

    async def _ask_together(self, first: Asked, *more: Asked) -> list[tuple[Any, ...]]:
        """Nobody else writes meanwhile: the caller has seen to that."""
        connection = self._several or await _Connection.of(self._engine)
        self._several = None
        try:
            ask = connection.driver.execute_fetchall
            await ask("BEGIN IMMEDIATE")
            rows: list[tuple[Any, ...]] = await ask(*first)
            for asked in more:
                await ask(*asked)
            await ask("COMMIT")
        except BaseException:
            await connection.aclose()  # and what it has begun with it
            raise
        if self._is_closed:
            await connection.aclose()
        else:
            self._several = connection
        return rows

    async def aclose(self) -> None:
        self._is_closed = True
        async with self._connecting:
            pass
        connections = (self._connection, self._several)
        self._connection = self._several = None
        for connection in connections:
            if connection is not None:
                await connection.aclose()

    async def _connect(self) -> _Connection:
        async with self._connecting:
            if self._is_closed:
                raise ClosedError
            if self._connection is None:
                self._connection = await _Connection.of(self._engine)
            return self._connection


class PostgresSingles:
    """Some connections to PostgreSQL, each for one statement at a time; the last one that was used goes first.

    Args:
        most: how many there may be.
    """

    def __init__(self, engine: AsyncEngine, most: int) -> None:
        self._engine = engine
        self._free: asyncio.LifoQueue[_Connection | None] = asyncio.LifoQueue()
        for _ in range(most):
            self._free.put_nowait(None)
        self._is_closed = False

    async def ask(self, first: Asked, *more: Asked) -> list[tuple[Any, ...]]:
        assert not more, "PostgreSQL does with one"
        sql, arguments = first
        async with asyncio.timeout(FREE_TIMEOUT):
            connection = await self._free.get()
        try:
            if connection is not None and connection.driver.is_closed():  # the server went away
                await connection.aclose()
                connection = None
            if connection is None:
                connection = await _Connection.of(self._engine)
            rows: list[tuple[Any, ...]] = await connection.driver.fetch(sql, *arguments, timeout=ANSWER_TIMEOUT)
        except BaseException:
            broken, connection = connection, None
            if broken is not None:
                await broken.aclose()
            raise
        finally:
            self._free.put_nowait(connection)
            if self._is_closed:
                await self.aclose()
        return rows

    async def aclose(self) -> None:
        self._is_closed = True
        for _ in range(self._free.qsize()):
            connection = self._free.get_nowait()
            if connection is not None:
                await connection.aclose()
