"""Connections to SQLite that run a statement in one trip to their thread.

SQLAlchemy opens a cursor, runs a statement, fetches its rows and closes the cursor. With aiosqlite's own cursors these
are four trips of about 0.1 ms each, most of what a statement costs.
"""

import asyncio
import sqlite3
from collections.abc import Iterable, Sequence
from functools import partial
from threading import Thread
from typing import Any, Self

import aiosqlite

#: Rows that aiosqlite fetches at once for an `async for` over a cursor, which nothing here does.
_CHUNK_ROWS = 64


class _FirstStatement(str):
    """SQL text of the first statement of a transaction, before which `_FileConnection` runs `BEGIN IMMEDIATE`."""

    __slots__ = ()


class _FetchedRows(list[Any]):
    """All rows of a statement, with the attributes of its DB-API cursor."""

    description: Any = None
    rowcount = -1
    lastrowid: int | None = None


class _FetchingCursor(sqlite3.Cursor):
    def fetchall(self) -> _FetchedRows:
        rows = _FetchedRows(super().fetchall())
        rows.description = self.description
        rows.rowcount = self.rowcount
        rows.lastrowid = self.lastrowid
        return rows


class _FileConnection(sqlite3.Connection):
    """SQLite connection that reads bytes that are not UTF-8 as U+FFFD.

    It is used in aiosqlite's thread. A decoding error would make all rows of the query unreadable.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.text_factory = partial(str, encoding="utf-8", errors="replace")

    def execute(self, *arguments: Any) -> _FetchingCursor:
        self._begin_transaction(*arguments)
        return self.cursor(_FetchingCursor).execute(*arguments)

    def executemany(self, *arguments: Any) -> sqlite3.Cursor:
        self._begin_transaction(*arguments)
        return super().executemany(*arguments)

    def _begin_transaction(self, sql: str, *_parameters: Any) -> None:
        if isinstance(sql, _FirstStatement):
            super().execute("BEGIN IMMEDIATE")


class _Cursor:
    """Asynchronous DB-API cursor that has read all rows when `execute` returns."""

    arraysize = 1

    def __init__(self, connection: "SqliteConnection") -> None:
        self._connection = connection
        self._rows = _FetchedRows()

    async def __aenter__(self) -> Self:
        return self

    @property
    def description(self) -> Any:
        return self._rows.description

    @property
    def rowcount(self) -> int:
        return self._rows.rowcount

    @property
    def lastrowid(self) -> int | None:
        return self._rows.lastrowid

    async def execute(self, sql: str, parameters: Iterable[Any] = ()) -> None:
        text = self._connection.prepare_statement(sql)
        rows = await self._connection.execute_fetchall(text, parameters)
        self._connection.is_interrupted = False
        assert isinstance(rows, _FetchedRows)
        self._rows = rows

    async def executemany(self, sql: str, parameters: Iterable[Iterable[Any]]) -> None:
        self._rows = _FetchedRows()
        text = self._connection.prepare_statement(sql)
        self._rows.rowcount = (await self._connection.executemany(text, parameters)).rowcount
        self._connection.is_interrupted = False

    async def fetchall(self) -> Sequence[Any]:
        return self._rows

    async def close(self) -> None:
        """Do nothing: no row is left in SQLite."""


class SqliteConnection(aiosqlite.Connection):
    """aiosqlite connection with fewer trips to its thread, for SQLAlchemy's dialect.

    A statement and its rows take one trip; so do `BEGIN` and the first statement of a transaction. A rollback takes
    none if no transaction can be open.

    Attributes:
        is_interrupted: whether the last statement failed, or its caller was cancelled. A transaction may be open then.
    """

    is_interrupted = False

    _is_beginning = False
    _end: asyncio.Future[Any] | None = None

    def begin(self) -> None:
        """Let the next statement begin a transaction, in the same trip to the thread."""
        self._is_beginning = True

    def prepare_statement(self, sql: str) -> str:
        """Return the text to execute as the next statement, and set `is_interrupted`.

        The first statement of a transaction is marked. The caller resets the attribute when the statement has run:
        it stays set after a failure and after a cancellation.
        """
        self.is_interrupted = True
        is_first = self._is_beginning
        self._is_beginning = False
        return _FirstStatement(sql) if is_first else sql

    def cursor(self) -> _Cursor:  # type: ignore[override]
        return _Cursor(self)

    def stop(self) -> asyncio.Future[Any] | None:
        """Stop the thread, and return the same future of its end for each call.

        A second future of aiosqlite (0.22) is never done. SQLAlchemy stops the thread during `close` if the caller is
        cancelled twice.
        """
        if self._end is None:
            self._end = super().stop()
        return self._end

    async def rollback(self) -> None:
        """Roll back the transaction, if there may be one; SQLAlchemy calls this after each read, too."""
        self._is_beginning = False
        if self.in_transaction or self.is_interrupted:
            await super().rollback()
            self.is_interrupted = False

    async def commit(self) -> None:
        self._is_beginning = False
        await super().commit()


async def connect(path: str, **options: Any) -> SqliteConnection:
    """Open a connection, which the caller closes; its thread does not keep the process from ending."""
    connector = partial(sqlite3.connect, path, factory=_FileConnection, **options)
    connections = list[SqliteConnection]()
    # aiosqlite creates a thread object, which inherits `daemon` from the thread that creates it
    creator = Thread(target=lambda: connections.append(SqliteConnection(connector, _CHUNK_ROWS)), daemon=True)
    creator.start()
    creator.join()
    (connection,) = connections
    await connection
    return connection
