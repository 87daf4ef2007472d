"""Alembic migrations to the tables of `core.store.schema`; one module per revision."""
