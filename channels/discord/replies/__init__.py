"""Replies on Discord: message surface and reactions."""
