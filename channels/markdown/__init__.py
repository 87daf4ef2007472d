"""Markdown: parsing, rendering in a platform dialect, and splitting into chunks."""
