"""Turns: runs of an agent, from the claim to the end."""
