"""Interactions of the local Slack: slash commands, buttons, shortcuts, modals."""
