"""Dumps of databases of released versions, with the state of the platforms at that time.

A dump is SQL text that the version itself wrote; `platforms` is the companion with the channels and messages that its
ids name. Deadlines (leases, expiries, retention) are absolute, so `load` moves all time columns forward by the age of
the dump.
"""

import json
import sqlite3
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import asyncpg
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import create_async_engine

from tests.processes.postgres import PostgresServer

Dialect = Literal["sqlite", "postgresql"]

FOLDER = Path(__file__).parent

#: The versions with dumps, oldest first.
VERSIONS = sorted(path.name for path in FOLDER.glob("v*"))

#: Lines of `pg_dump` that depend on the server's version, or that only `psql` understands.
_IGNORED_LINES = ("SET ", "SELECT pg_catalog.set_config", "\\", "--")


@dataclass(frozen=True, slots=True)
class Dump:
    """Dump of one database of one version.

    Attributes:
        version: the name of the folder, such as `v0.1.0`.
    """

    version: str
    dialect: Dialect

    @property
    def sql_file(self) -> Path:
        return FOLDER / self.version / f"{self.dialect}.sql"

    @property
    def platforms_file(self) -> Path:
        return FOLDER / self.version / f"{self.dialect}.json"

    @property
    def platforms(self) -> dict[str, Any]:
        """The states of the simulators by platform, and the time of the dump as `made_at`."""
        loaded: dict[str, Any] = json.loads(self.platforms_file.read_text())
        return loaded

    async def load(self, url: str) -> None:
        """Run the dump in an empty database, and move its times to the present.

        Args:
            url: the URL with the driver.
        """
        if self.dialect == "sqlite":
            with sqlite3.connect(str(sa.make_url(url).database)) as database:
                database.executescript(self.sql_file.read_text())
            database.close()
        else:
            connection = await asyncpg.connect(url.replace("+asyncpg", ""))
            await connection.execute(self.sql_file.read_text())
            await connection.close()
        age = time.time() - self.platforms["made_at"]
        engine = create_async_engine(url)
        async with engine.begin() as moved:
            for table, column in await moved.run_sync(_list_time_columns):
                quoted = f'"{column}"'
                await moved.execute(sa.text(f'UPDATE "{table}" SET {quoted} = {quoted} + :age'), {"age": age})
        await engine.dispose()


def _list_time_columns(connection: sa.Connection) -> list[tuple[str, str]]:
    """Return the tables and columns of numbers with decimals, all of which are times."""
    found = sa.inspect(connection)
    return [
        (table, column["name"])
        for table in found.get_table_names()
        for column in found.get_columns(table)
        if isinstance(column["type"], sa.Float)
    ]


def dump_sqlite(file: Path) -> str:
    """Return the SQL text of a SQLite file."""
    with sqlite3.connect(file) as database:
        text = "\n".join(database.iterdump())
    database.close()
    return text.replace(",Inf,", ",9e999,") + "\n"  # SQLite reads no infinity that `iterdump` writes


def dump_postgres(url: str, server: PostgresServer, *options: str) -> str:
    """Return the SQL text of a PostgreSQL database.

    Args:
        url: the URL without a driver.
        options: further options of `pg_dump`.
    """
    command: list[str | Path] = [server.bin_folder / "pg_dump", "--inserts", "--no-owner", "--no-privileges"]
    command += [*options, url]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    return "\n".join(line for line in lines if line and not line.startswith(_IGNORED_LINES)) + "\n"
