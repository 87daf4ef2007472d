"""Turns that no message of a person begins."""
