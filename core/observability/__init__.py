"""Metrics, and the trace context of the current turn."""
