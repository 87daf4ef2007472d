"""Interactions of Slack: slash commands, buttons, shortcuts, modals, ephemeral replies."""
