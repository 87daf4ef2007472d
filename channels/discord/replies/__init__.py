"""Replies as Discord's messages."""
