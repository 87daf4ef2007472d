"""Interactions of the local Discord: application commands, buttons, modals."""
