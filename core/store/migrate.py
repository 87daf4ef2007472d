"""Schema migrations: applies Alembic's revisions, and checks tables and columns."""

from collections.abc import Collection
from pathlib import Path

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory

from core.errors import SchemaError, StoreError
from core.store.database import Database
from core.store.schema import metadata

MIGRATIONS = Path(__file__).with_name("migrations")

#: Alembic's table of the applied revisions.
_APPLIED = sa.table("alembic_version", sa.column("version_num", sa.Text))


async def migrate(database: Database) -> list[str]:
    """Apply all missing migrations in one transaction, and return their revisions, oldest first.

    If one fails, none is applied. Several processes may call this at once.

    Raises:
        SchemaError: the database is newer than this version of Parley, and stays unchanged.
    """
    async with database.write() as connection:
        return await connection.run_sync(_migrate)


async def verify_schema(database: Database) -> None:
    """Check that a database has the tables and columns of this version.

    Raises:
        SchemaError: the database has all migrations but lacks tables or columns, or is newer than this version of
            Parley.
        StoreError: the database is empty or older, so that `migrate` has to be run first; or it cannot be used.
    """
    async with database.read() as connection:
        pending = await connection.run_sync(_find_pending)
        missing = [] if pending else await connection.run_sync(_find_missing)
    if pending:
        raise StoreError("DATABASE_URL: the database lacks migrations: run `parley migrate`")
    if missing:
        raise SchemaError(f"the database is damaged: it lacks {', '.join(missing)}; restore a backup")


def _find_missing(connection: sa.Connection) -> list[str]:
    found = sa.inspect(connection)
    tables = set(found.get_table_names())
    columns = {name: {column["name"] for column in found.get_columns(name)} for name in tables & metadata.tables.keys()}
    missing = [f"the table {name}" for name in sorted(metadata.tables.keys() - tables)]
    for name in sorted(columns):
        expected = [column.name for column in metadata.tables[name].c]
        missing += [f"the column {name}.{column}" for column in expected if column not in columns[name]]
    return missing


async def list_pending(database: Database) -> list[str]:
    """Return the revisions that `migrate` would apply, oldest first; raise `SchemaError` for a newer database."""
    async with database.read() as connection:
        return await connection.run_sync(_find_pending)


def list_known_revisions() -> list[str]:
    """Return the Alembic revisions of this version of Parley, newest first.

    They are read from disk, where an upgrade may replace the files of a running process.
    """
    return [script.revision for script in ScriptDirectory(str(MIGRATIONS)).walk_revisions()]


async def verify_revision(database: Database, known: Collection[str]) -> None:
    """Raise `SchemaError` if a newer version of Parley has migrated the database since `known` was listed."""
    _verify_known({row.version_num for row in await database.run(sa.select(_APPLIED))}, known)


def _migrate(connection: sa.Connection) -> list[str]:
    missing = _find_pending(connection)
    if missing:
        command.upgrade(_create_config(connection), "head")
    return missing


def _find_pending(connection: sa.Connection) -> list[str]:
    applied = set(MigrationContext.configure(connection).get_current_heads())
    revisions = list_known_revisions()  # a single line
    _verify_known(applied, revisions)
    newer = revisions[: min((revisions.index(revision) for revision in applied), default=len(revisions))]
    return newer[::-1]


def _verify_known(applied: set[str], known: Collection[str]) -> None:
    if unknown := applied - set(known):
        raise SchemaError(
            f"the database is at revision {', '.join(sorted(unknown))}, which this version of Parley does not "
            "know: run the version that wrote it, or a newer one"
        )


def _create_config(connection: sa.Connection) -> Config:
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.attributes["connection"] = connection
    return config
