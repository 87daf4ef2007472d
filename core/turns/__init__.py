"""Turns: claiming, running, cancelling, repeating and finishing them, and history compaction."""
