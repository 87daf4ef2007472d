"""Command `simulator`: runs the bot as a child process beside the local platforms."""
