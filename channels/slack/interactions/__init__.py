"""Slack's interactions: slash commands, buttons, shortcuts, modals."""
