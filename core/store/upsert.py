"""`INSERT ... ON CONFLICT` for SQLite and PostgreSQL.

SQLAlchemy has this statement only in its dialects.
"""

from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection


async def insert_or_ignore(connection: AsyncConnection, table: sa.Table, *rows: dict[str, Any]) -> None:
    """Insert rows with the same columns, and skip each row with a unique key that a stored row has."""
    if rows:
        await connection.execute(build_insert(connection.dialect.name, table).on_conflict_do_nothing(), rows)


async def insert_or_update(connection: AsyncConnection, table: sa.Table, *rows: dict[str, Any]) -> None:
    """Insert rows with the same columns, or update only these columns of rows with the same primary keys."""
    if not rows:
        return
    insert = build_insert(connection.dialect.name, table)
    values = {name: insert.excluded[name] for name in rows[0] if not table.c[name].primary_key}
    await connection.execute(insert.on_conflict_do_update(index_elements=list(table.primary_key), set_=values), rows)


def build_insert(dialect: str, table: sa.Table) -> sqlite.Insert | postgresql.Insert:
    """Return an `INSERT` with `on_conflict_do_nothing` and `on_conflict_do_update`."""
    return postgresql.insert(table) if dialect == "postgresql" else sqlite.insert(table)
