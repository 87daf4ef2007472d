"""Replies as Slack's messages and streams."""
