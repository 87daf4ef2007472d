"""How the process is: health, logs, metrics, traces, diagnostics."""
