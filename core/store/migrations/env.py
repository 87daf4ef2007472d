"""Script that Alembic runs for each migration.

The connection, with its transaction begun, comes from `core.store.migrate`.
"""

from alembic import context

from core.store.schema import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
context.run_migrations()
