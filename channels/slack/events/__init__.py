"""From Slack's events to inbound messages."""
