"""Connection to Discord: REST API, gateway, shards, login."""
