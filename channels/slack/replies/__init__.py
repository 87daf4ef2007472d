"""Replies on Slack: edited and streamed messages, thread status, reactions."""
