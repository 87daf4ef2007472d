"""Prepared statements, and connections that run one statement as a transaction by the driver itself."""

import asyncio
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol, Self

import sqlalchemy as sa
from sqlalchemy.engine import Dialect
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine
from sqlalchemy.sql.compiler import SQLCompiler

from core.errors import ClosedError
from core.store.engine_options import ANSWER_TIMEOUT

#: Seconds to wait until a connection is free.
FREE_TIMEOUT = 30.0

#: How many go to SQLite at once, at most: all that they do next is done in one pass of the event loop.
_TOGETHER = 16

#: A statement in the driver's own words, and its arguments.
Asked = tuple[str, list[Any]]

Made = sa.Select[Any] | sa.CompoundSelect[Any] | sa.UpdateBase


class Singles(Protocol):
    """Runs statements in the driver's own words."""

    async def ask(self, *asked: Asked, writes: bool) -> list[tuple[Any, ...]]:
        """The rows of the first; all of them are one transaction.

        Args:
            writes: whether one of them changes the database.
        """

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
    """Two connections to SQLite, of which one reads and one writes. Neither is in a transaction for longer than what is
    asked takes.

    Args:
        writing: held by who writes.
    """

    def __init__(self, engine: AsyncEngine, writing: AbstractAsyncContextManager[object]) -> None:
        self._lines = {False: _Line(engine, nullcontext()), True: _Line(engine, writing)}

    async def ask(self, *asked: Asked, writes: bool) -> list[tuple[Any, ...]]:
        return await self._lines[writes].ask(asked)

    async def aclose(self) -> None:
        for line in self._lines.values():
            await line.aclose()


@dataclass(frozen=True, slots=True)
class _Asking:
    """Somebody who waits for the rows of the first of what he asks."""

    asked: Sequence[Asked]
    rows: asyncio.Future[list[tuple[Any, ...]]]


class _Line:
    """A connection to SQLite. The way to its thread and back takes longer than what is asked there, so all go together
    that have come while the ones before were there; what each of them asks is a transaction of its own.

    Args:
        turn: held by who goes there.
    """

    def __init__(self, engine: AsyncEngine, turn: AbstractAsyncContextManager[object]) -> None:
        self._engine = engine
        self._turn = turn
        self._waiting: list[_Asking] = []
        self._going: asyncio.Task[None] | None = None
        self._connection: _Connection | None = None
        self._is_closed = False

    async def ask(self, asked: Sequence[Asked]) -> list[tuple[Any, ...]]:
        """Who is cancelled before he goes has asked nothing."""
        one = _Asking(asked, asyncio.get_running_loop().create_future())
        self._waiting.append(one)
        if self._going is None:
            self._going = asyncio.create_task(self._go(), name="statements")
        return await one.rows

    async def aclose(self) -> None:
        self._is_closed = True
        if self._going is not None:
            await asyncio.wait([self._going])
        if self._connection is not None:
            connection, self._connection = self._connection, None
            await connection.aclose()

    async def _go(self) -> None:
        try:
            while self._waiting:
                async with self._turn:
                    going = [one for one in self._waiting[:_TOGETHER] if not one.rows.done()]
                    del self._waiting[:_TOGETHER]
                    for one, told in zip(going, await self._told(going), strict=True):
                        if one.rows.done():
                            continue
                        if isinstance(told, Exception):
                            one.rows.set_exception(told)
                        else:
                            one.rows.set_result(told)
        finally:
            self._going = None

    async def _told(self, going: Sequence[_Asking]) -> Sequence[list[tuple[Any, ...]] | Exception]:
        """What each is told: if it cannot be used, all the same."""
        try:
            if self._is_closed:
                raise ClosedError
            connection = self._connection or await _Connection.of(self._engine)
            self._connection = None
            told: list[list[tuple[Any, ...]] | Exception]
            try:
                told = await connection.driver._execute(_all_told, connection.driver, [one.asked for one in going])
            except BaseException:
                await connection.aclose()
                raise
            if any(isinstance(one, Exception) for one in told):
                await connection.aclose()  # a query that broke off would hold on to its moment, and see nothing newer
            else:
                self._connection = connection
        except Exception as error:
            return [error] * len(going)
        return told


def _all_told(driver: Any, asked: Sequence[Sequence[Asked]]) -> list[list[tuple[Any, ...]] | Exception]:
    """Ask, in the thread of a connection; what fails keeps nothing else from being asked."""
    connection: sqlite3.Connection = driver._conn
    return [_told(connection, one) for one in asked]


def _told(connection: sqlite3.Connection, asked: Sequence[Asked]) -> list[tuple[Any, ...]] | Exception:
    try:
        if len(asked) == 1:
            return connection.execute(*asked[0]).fetchall()
        connection.execute("BEGIN IMMEDIATE")
        rows = [connection.execute(*one).fetchall() for one in asked]
        connection.execute("COMMIT")
        return rows[0]
    except Exception as error:
        connection.rollback()
        return error


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

    async def ask(self, *asked: Asked, writes: bool) -> list[tuple[Any, ...]]:
        del writes
        [(sql, arguments)] = asked  # PostgreSQL does with one
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
        while not self._free.empty():  # a statement that ends meanwhile closes what it finds as well
            connection = self._free.get_nowait()
            if connection is not None:
                await connection.aclose()


@dataclass(frozen=True, slots=True)
class Step:
    """What a driver is asked at once."""

    sql: str
    _defaults: Mapping[str, Any]
    _places: tuple[str, ...]
    _binders: Mapping[str, Callable[[Any], Any]]

    def arguments(self, values: Mapping[str, Any]) -> list[Any]:
        """The values of the parameters in the order of their places in `sql`."""
        known = {**self._defaults, **values}
        for name, bind in self._binders.items():
            known[name] = bind(known[name])
        return [known[name] for name in self._places]


@dataclass(frozen=True, slots=True)
class Prepared:
    """A statement in the words of one driver.

    Attributes:
        writes: whether it changes the database.
        steps: usually one.
    """

    writes: bool
    steps: Sequence[Step]


@dataclass(frozen=True, eq=False)
class Statement:
    """One statement of one or several databases' dialects.

    What it reads comes as the driver has it: JSON is text.

    Attributes:
        make: makes it, for the dialect of that name. For SQLite it may be several that write.
    """

    make: Callable[[str], Made | tuple[Made, ...]]

    def prepared(self, dialect: Dialect) -> Prepared:
        made = self.make(dialect.name)
        steps = made if isinstance(made, tuple) else (made,)
        return Prepared(any(step.is_dml for step in steps), [_step(step, dialect) for step in steps])


def _step(made: Made, dialect: Dialect) -> Step:
    compiled = made.compile(dialect=dialect)
    assert isinstance(compiled, SQLCompiler)
    binders = {name: _binder(parameter.type, dialect) for name, parameter in compiled.binds.items()}
    return Step(
        str(compiled),
        compiled.params,
        tuple(compiled.positiontup or ()),
        {name: bind for name, bind in binders.items() if bind is not None},
    )


def _binder(kind: sa.types.TypeEngine[Any], dialect: Dialect) -> Callable[[Any], Any] | None:
    return kind.dialect_impl(dialect).bind_processor(dialect)
