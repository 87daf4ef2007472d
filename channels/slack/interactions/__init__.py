"""Slash commands, buttons, shortcuts and modals."""
