"""Bots of the terminal's tests, for the client's tests."""

from tests.sandbox.terminal.conftest import bot, connect, discord_bot, server, slack

__all__ = ["bot", "connect", "discord_bot", "server", "slack"]
