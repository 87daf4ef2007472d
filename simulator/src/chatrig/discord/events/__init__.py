"""Gateway of the local Discord: sessions and their events."""
