"""Script that Alembic runs to migrate a database.

`core.store.migrate` passes the connection, on which a transaction has begun.
"""

from alembic import context

from core.store.schema import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
context.run_migrations()
