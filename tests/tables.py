"""Databases with all tables and nothing in them, cheaper than by migrating each: `tests/core/store/test_migrate.py`
proves that this is what a migration makes.
"""

import tempfile
from pathlib import Path

import asyncpg

from core.store.database import Database
from core.store.migrate import migrate
from core.store.schema import metadata

#: Milliseconds that a connection may take to be cut off.
CUT_OFF = 5_000

_EMPTY = f"""
    SELECT pg_terminate_backend(pid, {CUT_OFF}) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid();
    {"".join(f"DELETE FROM {table};" for table in reversed(metadata.sorted_tables))}
    SELECT setval(format('%I.%I', schemaname, sequencename)::regclass, 1, false) FROM pg_sequences
"""  # quicker than TRUNCATE, which makes each file anew

#: The file of a database that was migrated, once there is one.
_copies: list[bytes] = []


async def migrated(url: str) -> None:
    """Make the tables."""
    database = Database(url)
    await migrate(database)
    await database.aclose()


async def lay(database: Database) -> None:
    """Make the tables, as `migrate` does: where there is no file yet, by a copy of one that was migrated."""
    if database.file is None or database.file.exists():
        await migrate(database)
        return
    if not _copies:
        with tempfile.TemporaryDirectory() as folder:
            await migrated(f"sqlite+aiosqlite:///{folder}/template.db")
            _copies.append(_read(Path(folder, "template.db")))
    database.file.write_bytes(_copies[0])


def _read(path: Path) -> bytes:
    return path.read_bytes()


async def empty(url: str) -> None:
    """Let a database of PostgreSQL be as when its tables were made: whoever is connected to it is cut off."""
    connection = await asyncpg.connect(url.replace("+asyncpg", ""))
    try:
        await connection.execute(_EMPTY)
    except asyncpg.UndefinedTableError:  # a test has dropped one
        await connection.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
        await migrated(url)
    finally:
        await connection.close()
