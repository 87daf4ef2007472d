"""The agent without the platforms: turns, sessions, models, tools, storage.

Nothing in this package depends on Slack or Discord.
"""
