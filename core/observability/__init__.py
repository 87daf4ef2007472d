"""Metrics, traces, and what operators are told of turns."""
