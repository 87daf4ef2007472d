"""Replies on Slack: message and stream surfaces, blocks, files, reactions."""
