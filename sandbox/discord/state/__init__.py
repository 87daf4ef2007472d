"""State of the local Discord: the server, its JSON, permissions, and an activity log."""
