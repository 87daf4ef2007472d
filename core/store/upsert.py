"""`INSERT ... ON CONFLICT`, which SQLite and PostgreSQL both have and SQLAlchemy's common language lacks."""

from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection


async def insert_new(connection: AsyncConnection, table: sa.Table, *rows: dict[str, Any]) -> None:
    """Insert the rows whose key is new; stored rows do not change."""
    if rows:
        await connection.execute(build_insert(connection.dialect.name, table).on_conflict_do_nothing(), rows)


async def insert_or_update(connection: AsyncConnection, table: sa.Table, *rows: dict[str, Any]) -> None:
    """Insert rows; overwrite the columns of rows whose primary key is stored."""
    if not rows:
        return
    insert = build_insert(connection.dialect.name, table)
    values = {name: insert.excluded[name] for name in rows[0] if not table.c[name].primary_key}
    await connection.execute(insert.on_conflict_do_update(index_elements=list(table.primary_key), set_=values), rows)


def build_insert(dialect: str, table: sa.Table) -> sqlite.Insert | postgresql.Insert:
    """Return an insert that supports `ON CONFLICT`."""
    return postgresql.insert(table) if dialect == "postgresql" else sqlite.insert(table)
