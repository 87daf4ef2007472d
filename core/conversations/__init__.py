"""Conversations: who is in them, what they are set to, how they stand."""
