"""Inbox: accepted messages, their edits and deletions, queued interactions, watermarks."""
