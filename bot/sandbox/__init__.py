"""The `sandbox` command: the bot as a child process beside the local platforms."""
