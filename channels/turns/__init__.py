"""Turns: their errors, sources and further messages, beside the growing text of the reply."""
