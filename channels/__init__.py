"""Platforms: the channel interface, and adapters for Slack and Discord."""
