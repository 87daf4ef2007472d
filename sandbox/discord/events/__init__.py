"""Gateway of the local Discord, and its events."""
