"""Markdown: parsing, rendering in a platform's dialect, splitting into chunks."""
