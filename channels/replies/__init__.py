"""Replies: the plan of their messages, the operations that show it, and buttons."""
