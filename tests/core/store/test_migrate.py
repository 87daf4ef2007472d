import asyncio
import sqlite3
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import uuid4

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.runtime.migration import MigrationContext

from core.errors import SchemaError, StoreError
from core.store.database import Database
from core.store.migrate import MIGRATIONS, list_pending, migrate, verify_schema
from core.store.schema import metadata
from tests.conftest import add_driver
from tests.data.dumps import VERSIONS, Dump, dump_postgres
from tests.processes.postgres import PostgresServer


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "parley.db"


@pytest.fixture
async def database(path: Path) -> AsyncIterator[Database]:
    database = Database(f"sqlite+aiosqlite:///{path}")
    yield database
    await database.aclose()


def list_tables(path: Path) -> dict[str, str]:
    connection = sqlite3.connect(path)
    rows = connection.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL").fetchall()
    connection.close()
    return {name: " ".join(sql.split()) for name, sql in rows if name != "alembic_version"}


def content(path: Path, new: bytes | None = None) -> bytes:
    if new is not None:
        path.write_bytes(new)
    return path.read_bytes()


async def test_migrations_and_schema_agree(database: Database, path: Path, tmp_path: Path) -> None:
    await migrate(database)
    async with database.read() as connection:
        assert await connection.run_sync(lambda c: compare_metadata(MigrationContext.configure(c), metadata)) == []
    fresh = sa.create_engine(f"sqlite:///{tmp_path / 'fresh.db'}")
    metadata.create_all(fresh)
    fresh.dispose()
    declared = list_tables(tmp_path / "fresh.db")
    migrated = list_tables(path)
    assert migrated.keys() == declared.keys()
    assert {name: migrated[name] for name in declared if name.startswith("ix_")} == {
        name: sql for name, sql in declared.items() if name.startswith("ix_")
    }


async def test_migrations_and_schema_agree_on_postgresql(postgres: str) -> None:
    database = Database(postgres)
    async with database.read() as connection:
        assert await connection.run_sync(lambda c: compare_metadata(MigrationContext.configure(c), metadata)) == []
    await database.aclose()


async def migrate_as_far_as(url: str, dumped: str) -> None:
    """Migrate an empty database to the revision of another database."""
    first, other = Database(dumped), Database(url)
    ((revision,),) = await first.run(sa.text("SELECT version_num FROM alembic_version"))

    def upgrade(connection: sa.Connection) -> None:
        config = Config()
        config.set_main_option("script_location", str(MIGRATIONS))
        config.attributes["connection"] = connection
        command.upgrade(config, revision)

    async with other.write() as connection:
        await connection.run_sync(upgrade)
    await first.aclose()
    await other.aclose()


@pytest.mark.parametrize("version", VERSIONS)
async def test_released_revisions_make_the_tables_of_their_dump(version: str, tmp_path: Path) -> None:
    files = [tmp_path / "dumped.db", tmp_path / "migrated.db"]
    dumped, migrated = (f"sqlite+aiosqlite:///{file}" for file in files)
    await Dump(version, "sqlite").load(dumped)
    await migrate_as_far_as(migrated, dumped)
    before, after = map(list_tables, files)
    assert after == before


@pytest.mark.parametrize("version", VERSIONS)
async def test_released_revisions_make_the_tables_of_their_postgresql_dump(
    version: str, postgres_server: PostgresServer
) -> None:
    dumped, migrated = (postgres_server.create_database(uuid4().hex) for _ in range(2))
    await Dump(version, "postgresql").load(add_driver(dumped))
    await migrate_as_far_as(add_driver(migrated), add_driver(dumped))
    before, after = (dump_postgres(url, postgres_server, "--schema-only") for url in (dumped, migrated))
    assert after == before


async def test_pending_migrations_are_applied_once(database: Database) -> None:
    waiting = await list_pending(database)
    assert waiting[0] == "0001"
    assert await migrate(database) == waiting
    assert await list_pending(database) == []
    assert await migrate(database) == []


async def test_an_incomplete_database_is_described_and_unchanged(database: Database, path: Path) -> None:
    await migrate(database)
    await verify_schema(database)
    connection = sqlite3.connect(path)
    connection.executescript("DROP TABLE blobs; ALTER TABLE turns DROP COLUMN usage")
    connection.close()
    before = content(path)
    with pytest.raises(StoreError, match=r"lacks the table blobs, the column turns\.usage; restore a backup"):
        await verify_schema(database)
    assert content(path) == before


async def test_a_file_that_is_no_database_is_an_error(path: Path) -> None:
    before = b"this is a letter to my grandmother, and nothing else. " * 100
    content(path, before)
    database = Database(f"sqlite+aiosqlite:///{path}")
    with pytest.raises(StoreError, match="SQLITE_NOTADB"):
        await migrate(database)
    await database.aclose()
    assert content(path) == before


async def test_a_newer_database_is_named_and_unchanged(database: Database, path: Path) -> None:
    await migrate(database)
    async with database.write() as connection:
        await connection.execute(sa.text("UPDATE alembic_version SET version_num = 'f00d'"))
    before = list_tables(path)
    for attempt in (migrate, list_pending):
        with pytest.raises(SchemaError, match="f00d") as caught:
            await attempt(database)
        assert not caught.value.retryable
    assert list_tables(path) == before


async def test_a_failed_migration_changes_nothing(database: Database, path: Path) -> None:
    async with database.write() as connection:
        await connection.execute(sa.text("CREATE TABLE turns (id TEXT)"))  # conflicts with a table of the migration
    with pytest.raises(StoreError):
        await migrate(database)
    assert list_tables(path).keys() == {"turns"}


async def test_processes_may_migrate_at_once(path: Path) -> None:
    script = (
        "import asyncio, sys\n"
        "from core.store.database import Database\n"
        "from core.store.migrate import migrate\n"
        "print(asyncio.run(migrate(Database(sys.argv[1]))))\n"
    )
    arguments = [sys.executable, "-c", script, f"sqlite+aiosqlite:///{path}"]
    pipe = asyncio.subprocess.PIPE
    started = [await asyncio.create_subprocess_exec(*arguments, stdout=pipe, stderr=pipe) for _ in range(3)]
    ended = [await asyncio.wait_for(process.communicate(), 100) for process in started]
    assert [process.returncode for process in started] == [0, 0, 0], ended
    assert sum(b"0001" in out for out, _ in ended) == 1
