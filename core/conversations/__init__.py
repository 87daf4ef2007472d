"""Conversations: stop, mute, choice of agent and model, status, turn reports."""
