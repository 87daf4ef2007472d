"""Replies: planning chunks, streaming them to a surface, buttons, approvals, error messages."""
