"""Monitoring: health, logs, metrics, traces, diagnostics."""
