"""Fixtures of the simulator's client tests, shared with the terminal's tests."""

from tests.terminal.conftest import bot, connect, discord_bot, server, slack

__all__ = ["bot", "connect", "discord_bot", "server", "slack"]
