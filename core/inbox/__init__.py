"""Inbox: accepted messages, edits and deletions, queued interactions, watermarks."""
