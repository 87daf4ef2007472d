"""Markdown: parsing, rendering in a platform dialect, and pages that fit a message."""
