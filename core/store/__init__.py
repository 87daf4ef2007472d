"""Storage: database connections, schema, migrations, notifications, turn states."""
