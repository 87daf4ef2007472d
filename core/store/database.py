"""Database client: connections for reads, transactions, and single statements."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.exc import InvalidatePoolError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from core.concurrency.retry import retry_store
from core.errors import DatabaseClosedError
from core.store.engine_options import engine_options
from core.store.errors import convert_database_errors
from core.store.schema import read_json, write_checks
from core.store.upsert import insert_or_update

log = logging.getLogger(__name__)

Rows = Sequence[sa.Row[*tuple[Any, ...]]]

T = TypeVar("T")

#: Seconds that closing all connections to a server may take.
CLOSE_SECONDS = 2.0


def find_sqlite_file(url: sa.URL) -> Path | None:
    """Return the path of the SQLite file of a database's URL; None for SQLite in memory and for PostgreSQL."""
    name = url.database if url.get_backend_name() == "sqlite" else None
    return Path(name) if name and name != ":memory:" else None


class Database:
    """Client of a SQLite or PostgreSQL database, with a pool of connections.

    Connections are opened when they are needed; `aclose` closes them. On SQLite one connection writes at a time, and
    reads never wait for a write (write-ahead log). A commit survives the death of the process; the last commits may be
    lost with the machine's power (`synchronous=NORMAL`).

    Every method raises `StoreError` for a database that cannot be used, whichever driver reports the error, and
    SQLAlchemy's `IntegrityError` if a constraint of a table does not hold.

    Args:
        url: `sqlite+aiosqlite:///path` or `postgresql+asyncpg://...`.
        connections: the most connections at once, 3 or more. A caller waits while all are in use.

    Raises:
        SettingsError: the URL has a parameter that the driver does not know, or whose value is not a number.
        StoreError: the folder of the SQLite file cannot be created.
    """

    def __init__(self, url: str, *, connections: int = 15) -> None:
        address = sa.make_url(url)
        options = engine_options(address, connections=connections)
        self.engine = create_async_engine(address, json_deserializer=read_json, **options)
        self.is_sqlite = self.engine.dialect.name == "sqlite"
        self._autocommit = self.engine.execution_options(autocommit=True)
        self._write_lock = asyncio.Lock() if self.is_sqlite else nullcontext()
        self._is_closed = False
        if self.is_sqlite:
            if self.file is not None:
                with convert_database_errors():
                    self.file.parent.mkdir(parents=True, exist_ok=True)
            sa.event.listen(self.engine.sync_engine, "connect", _prepare_sqlite)
            sa.event.listen(self.engine.sync_engine, "begin", _begin_immediate)
        else:
            # without a transaction, a statement on PostgreSQL takes one round trip instead of three
            self._autocommit = self._autocommit.execution_options(isolation_level="AUTOCOMMIT")
            sa.event.listen(self.engine.sync_engine, "checkout", _refuse_closed)

    @property
    def file(self) -> Path | None:
        """The path of the SQLite file; None for SQLite in memory and for PostgreSQL."""
        return find_sqlite_file(self.engine.url)

    @property
    def now(self) -> sa.ColumnElement[float]:
        """SQL expression of the current time by the database's clock, in Unix seconds.

        All processes that use the database have the same clock. For SQLite it is the time of this process.
        """
        return self.clock(self.engine.dialect.name, sa.literal(time.time(), sa.Double))

    @staticmethod
    def clock(dialect: str, own: sa.ColumnElement[float]) -> sa.ColumnElement[float]:
        """Return the SQL expression of the current time in Unix seconds; `own` for SQLite."""
        return own if dialect == "sqlite" else sa.cast(sa.extract("epoch", sa.func.clock_timestamp()), sa.Double)

    @asynccontextmanager
    async def read(self) -> AsyncIterator[AsyncConnection]:
        """Yield a connection for reads; each statement is a transaction of its own."""
        with convert_database_errors():
            async with self._connect(self._autocommit) as connection:
                yield connection

    @asynccontextmanager
    async def write(self) -> AsyncIterator[AsyncConnection]:
        """Yield a connection in a transaction: commit after the block, or roll back after an exception.

        On SQLite, this waits for the end of the other writes of this process, so a nested `write` waits forever.
        """
        with convert_database_errors():
            async with self._write_lock, self._connect(self.engine) as connection, connection.begin():
                yield connection

    async def run(self, statement: sa.Executable, **values: Any) -> Rows:
        """Run one statement as a transaction of its own, in one round trip, and return its rows."""
        lock = self._write_lock if isinstance(statement, sa.UpdateBase) else nullcontext()
        with convert_database_errors():
            async with lock, self._connect(self._autocommit) as connection:
                return (await connection.execute(statement, values)).all()

    async def run_with_retries(self, statement: sa.Executable, *, operation: str, **values: Any) -> Rows:
        """Run one statement as `run` does, and retry it while the database is unavailable.

        It must be safe to repeat after a success: see `retry_store`. The operation is a noun phrase for the log.
        """
        return await retry_store(partial(self.run, statement, **values), operation=operation)

    async def read_with_retries(self, work: Callable[[AsyncConnection], Awaitable[T]], *, operation: str) -> T:
        """Return the result of `work` with a connection for reading, and call it again as by `retry_store`."""
        return await self._retry(self.read, work, operation)

    async def write_with_retries(self, work: Callable[[AsyncConnection], Awaitable[T]], *, operation: str) -> T:
        """Return the result of `work` in a transaction, with retries.

        While the database is unavailable, `work` is called again in a new transaction, as by `retry_store`. It must be
        safe to repeat after a commit, whose reply may be lost. The operation is a noun phrase for the log.

        Raises:
            StoreError: the last error after retries for 90 s, or the first that is not `retryable`.
        """
        return await self._retry(self.write, work, operation)

    async def ping(self) -> None:
        """Write a row of `write_checks`; raise `StoreError` with the reason if the database accepts no writes."""
        async with self.write() as connection:
            await insert_or_update(connection, write_checks, {"id": 1, "written_at": time.time()})

    async def aclose(self) -> None:
        """Close all connections; later calls of other methods raise `DatabaseClosedError`.

        Another process may use the SQLite file after this. For PostgreSQL this takes at most `CLOSE_SECONDS`; then a
        warning is logged, and the connections stay open until the process ends.
        """
        self._is_closed = True
        try:
            async with asyncio.timeout(None if self.is_sqlite else CLOSE_SECONDS):
                await self.engine.dispose()
        except TimeoutError:
            log.warning("the database does not close its connections: they end with the process")

    async def _retry(
        self,
        connect: Callable[[], AbstractAsyncContextManager[AsyncConnection]],
        work: Callable[[AsyncConnection], Awaitable[T]],
        operation: str,
    ) -> T:
        async def attempt() -> T:
            async with connect() as connection:
                return await work(connection)

        return await retry_store(attempt, operation=operation)

    @asynccontextmanager
    async def _connect(self, engine: AsyncEngine) -> AsyncIterator[AsyncConnection]:
        self._check_open()
        async with engine.connect() as connection:
            try:
                yield connection
            finally:
                if self._is_closed:  # its pool is gone: nothing else would close it
                    await connection.invalidate()

    def _check_open(self) -> None:
        if self._is_closed:
            raise DatabaseClosedError


def _prepare_sqlite(connection: Any, _record: Any) -> None:
    connection.isolation_level = None  # `SqliteConnection.begin` begins transactions, not `sqlite3`
    cursor = connection.cursor()
    for pragma in (
        "journal_mode=WAL",
        "synchronous=NORMAL",
        "busy_timeout=10000",
        "foreign_keys=ON",
        "secure_delete=ON",
    ):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _begin_immediate(connection: sa.Connection) -> None:
    if not connection.get_execution_options().get("autocommit"):
        driver: Any = connection.connection.driver_connection
        driver.begin()


def _refuse_closed(_connection: Any, record: Any, _proxy: Any) -> None:
    """Make SQLAlchemy's pool replace a connection that the server has closed."""
    if record.driver_connection.is_closed():
        raise InvalidatePoolError
