"""The bots that answer here are those of the terminal's tests."""

from tests.sandbox.terminal.conftest import bot, connect, discord_bot, server, slack

__all__ = ["bot", "connect", "discord_bot", "server", "slack"]
