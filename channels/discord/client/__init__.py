"""The connection to Discord: REST, gateway, shards, login."""
