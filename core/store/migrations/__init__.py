"""Alembic migrations to the tables of `core.store.schema`; a module per revision."""
