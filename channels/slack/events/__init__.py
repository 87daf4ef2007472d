"""Slack's events as inbox messages: parsing, history, thread context, downloads."""
