"""The agent: turns, sessions, models, tools, storage.

It knows nothing of Slack or Discord.
"""
