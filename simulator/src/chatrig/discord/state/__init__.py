"""Data of the local Discord: the server, its JSON, permissions, an activity log."""
