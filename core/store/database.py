"""The database: one engine, read and written in two ways."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine

from core.errors import StoreError


class Database:
    """SQLite (`sqlite+aiosqlite:///path`) or PostgreSQL (`postgresql+asyncpg://...`).

    On SQLite one connection writes at a time and readers never wait for it (write-ahead log). What is
    committed survives the death of the process; the last commits may be lost with the machine's power
    (`synchronous=NORMAL`).

    A database that cannot be used raises `StoreError`, whichever driver says so in whichever way.
    """

    def __init__(self, url: str) -> None:
        self.engine = create_async_engine(url, json_deserializer=_read_json)
        self.is_sqlite = self.engine.dialect.name == "sqlite"
        self._readers = self.engine.execution_options(reading=True)
        self._writing = asyncio.Lock() if self.is_sqlite else nullcontext()
        if self.is_sqlite:
            if self.file is not None:
                with _store_errors():
                    self.file.parent.mkdir(parents=True, exist_ok=True)
            sa.event.listen(self.engine.sync_engine, "connect", _prepare_sqlite)
            sa.event.listen(self.engine.sync_engine, "begin", _begin_immediate)

    @property
    def file(self) -> Path | None:
        """Where SQLite keeps it; None of what is in memory, or on a server."""
        name = self.engine.url.database
        return Path(name) if self.is_sqlite and name and name != ":memory:" else None

    @property
    def now(self) -> sa.ColumnElement[float]:
        """Seconds since 1970, by the database's clock: the same for all processes that use it."""
        if self.is_sqlite:
            return sa.literal(time.time(), sa.Double)
        return sa.cast(sa.extract("epoch", sa.func.clock_timestamp()), sa.Double)

    @asynccontextmanager
    async def read(self) -> AsyncIterator[AsyncConnection]:
        """A connection for reading."""
        with _store_errors():
            async with self._readers.connect() as connection:
                yield connection

    @asynccontextmanager
    async def write(self) -> AsyncIterator[AsyncConnection]:
        """One transaction: committed at the end of the block, rolled back by an exception."""
        with _store_errors():
            async with self._writing, self.engine.begin() as connection:
                yield connection

    async def ping(self) -> None:
        """Raises StoreError, if the database does not answer."""
        async with self.read() as connection:
            await connection.execute(sa.text("SELECT 1"))

    async def aclose(self) -> None:
        await self.engine.dispose()


@contextmanager
def _store_errors() -> Iterator[None]:
    try:
        yield
    except IntegrityError:
        raise
    except (DBAPIError, PoolTimeoutError, OSError) as error:
        raise StoreError(f"the database cannot be used ({_kind(error)})") from error


def _kind(error: BaseException) -> str:
    """The driver's own word for what went wrong: `SQLITE_FULL`, `InvalidPasswordError`."""
    while error.__cause__ is not None:
        error = error.__cause__
    return str(getattr(error, "sqlite_errorname", type(error).__name__))


def _read_json(text: str) -> Any:
    """What a column of JSON holds; nothing, if it is damaged: one row must not keep the others from being read."""
    try:
        return json.loads(text)
    except ValueError:
        return None


def _prepare_sqlite(connection: Any, _record: Any) -> None:
    connection.isolation_level = None  # the driver's own idea of when a transaction begins stays out of it
    cursor = connection.cursor()
    for pragma in ("journal_mode=WAL", "synchronous=NORMAL", "busy_timeout=10000", "foreign_keys=ON"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _begin_immediate(connection: sa.Connection) -> None:
    if not connection.get_execution_options().get("reading"):
        connection.exec_driver_sql("BEGIN IMMEDIATE")
