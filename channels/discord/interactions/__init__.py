"""Interactions of Discord: application commands, buttons, modals, ephemeral replies."""
