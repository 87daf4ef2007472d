"""Process of the bot: command line, settings, set-up, monitoring, composition."""
