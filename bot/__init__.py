"""The process: command line, settings, set-up, monitoring, wiring."""
