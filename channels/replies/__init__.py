"""Replies: chunks, streaming to a surface, buttons, approvals, error messages."""
