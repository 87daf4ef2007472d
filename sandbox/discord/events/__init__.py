"""Gateway of the local Discord, and the events on it."""
