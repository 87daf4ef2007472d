"""The database: one engine, read and written in three ways."""

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import InvalidatePoolError
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine

from core.errors import ClosedError
from core.store.engine_options import engine_options
from core.store.errors import store_errors
from core.store.fast_path import PostgresSingles, Prepared, Singles, SqliteSingles, Statement
from core.store.schema import pulse
from core.store.upsert import insert_of

log = logging.getLogger(__name__)

#: Seconds that all connections to a server may take to be closed.
CLOSE_SECONDS = 2.0


class Database:
    """SQLite (`sqlite+aiosqlite:///path`) or PostgreSQL (`postgresql+asyncpg://...`).

    On SQLite one connection writes at a time and readers never wait for it (write-ahead log). What is
    committed survives the death of the process; the last commits may be lost with the machine's power
    (`synchronous=NORMAL`).

    A database that cannot be used raises `StoreError`, whichever driver says so in whichever way.

    Args:
        connections: how many there may be at once, 3 or more; who needs one more waits for it. Not quite half of them
            are for single statements.

    Raises:
        SettingsError: the URL asks for something that the driver does not know.
    """

    def __init__(self, url: str, *, connections: int = 15) -> None:
        address = sa.make_url(url)
        options = engine_options(address, connections=connections)
        self.engine = create_async_engine(address, json_deserializer=_read_json, **options)
        self.is_sqlite = self.engine.dialect.name == "sqlite"
        # PostgreSQL: each statement sees what is committed by then, in a transaction or not; without, it takes one
        # round trip and not three
        self._readers = self.engine.execution_options(
            reading=True, **({} if self.is_sqlite else {"isolation_level": "AUTOCOMMIT"})
        )
        self._writing = asyncio.Lock() if self.is_sqlite else nullcontext()
        self._prepared: dict[Statement, Prepared] = {}
        self._is_closed = False
        self._singles: Singles = (
            SqliteSingles(self._readers, self._writing)
            if self.is_sqlite
            else PostgresSingles(self._readers, (connections - 1) // 2)
        )
        if self.is_sqlite:
            if self.file is not None:
                with store_errors():
                    self.file.parent.mkdir(parents=True, exist_ok=True)
            sa.event.listen(self.engine.sync_engine, "connect", _prepare_sqlite)
            sa.event.listen(self.engine.sync_engine, "begin", _begin_immediate)
        else:
            sa.event.listen(self.engine.sync_engine, "checkout", _refuse_closed)

    @property
    def file(self) -> Path | None:
        """Where SQLite keeps it; None of what is in memory, or on a server."""
        name = self.engine.url.database
        return Path(name) if self.is_sqlite and name and name != ":memory:" else None

    @property
    def now(self) -> sa.ColumnElement[float]:
        """Seconds since 1970, by the database's clock: the same for all processes that use it."""
        return self.clock(self.engine.dialect.name, sa.literal(time.time(), sa.Double))

    @staticmethod
    def clock(dialect: str, own: sa.ColumnElement[float]) -> sa.ColumnElement[float]:
        """`now`; on SQLite what this process has for it."""
        return own if dialect == "sqlite" else sa.cast(sa.extract("epoch", sa.func.clock_timestamp()), sa.Double)

    @asynccontextmanager
    async def read(self) -> AsyncIterator[AsyncConnection]:
        """A connection for reading."""
        self._see_open()
        with store_errors():
            async with self._readers.connect() as connection:
                yield connection

    @asynccontextmanager
    async def write(self) -> AsyncIterator[AsyncConnection]:
        """One transaction: committed at the end of the block, rolled back by an exception."""
        with store_errors():
            async with self._writing:
                self._see_open()
                async with self.engine.begin() as connection:
                    yield connection

    async def ping(self) -> None:
        """See that the database takes what is written.

        Raises:
            StoreError: it does not; why.
        """
        await self.run(_PULSE, now=time.time())

    async def run(self, statement: Statement, **values: Any) -> list[tuple[Any, ...]]:
        """The rows of one statement, a transaction of its own: one round trip, by the driver itself.

        Where a statement is several on SQLite, they are one transaction, and the rows those of the first.

        Raises:
            ValueError: a stored text is not UTF-8.
            IntegrityError: it contradicts what is there.
        """
        prepared = self._prepared.get(statement)
        if prepared is None:
            prepared = self._prepared[statement] = statement.prepared(self.engine.dialect)
        asked = [(step.sql, step.arguments(values)) for step in prepared.steps]
        with store_errors():
            self._see_open()
            return await self._singles.ask(*asked, writes=prepared.writes)

    async def aclose(self) -> None:
        """Let go of it. Who comes later than that, and would open it anew, gets a `ClosedError`: somebody else may
        have it by then. A server that hangs takes leave of no connection: that is not waited for.
        """
        self._is_closed = True
        try:
            async with asyncio.timeout(None if self.is_sqlite else CLOSE_SECONDS):
                await self._singles.aclose()
                await self.engine.dispose()
        except TimeoutError:
            log.warning("the database does not take leave of its connections: they end with the process")

    def _see_open(self) -> None:
        if self._is_closed:
            raise ClosedError


def _pulse(dialect: str) -> sa.Insert:
    now = sa.bindparam("now", type_=sa.Double)
    insert = insert_of(dialect, pulse).values(id=sa.literal_column("1"), at=now)
    return insert.on_conflict_do_update(index_elements=[pulse.c.id], set_={"at": insert.excluded.at})


_PULSE = Statement(_pulse)


def _read_json(text: str) -> Any:
    """What a column of JSON holds; nothing, if it is damaged: one row must not keep the others from being read."""
    try:
        return json.loads(text)
    except ValueError:
        return None


def _prepare_sqlite(connection: Any, _record: Any) -> None:
    connection.isolation_level = None  # the driver's own idea of when a transaction begins stays out of it
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
    if not connection.get_execution_options().get("reading"):
        connection.exec_driver_sql("BEGIN IMMEDIATE")


def _refuse_closed(_connection: Any, record: Any, _proxy: Any) -> None:
    """A server that went away has closed all connections that wait here: they are made anew."""
    if record.driver_connection.is_closed():
        raise InvalidatePoolError
