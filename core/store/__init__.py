"""Database: connections, schema, migrations, notifications, turn states."""
