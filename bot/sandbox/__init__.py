"""The `sandbox` command: the bot as a child process against local platforms."""
