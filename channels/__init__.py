"""Platforms: their interface, and adapters for Slack and Discord."""
