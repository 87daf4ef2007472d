"""Discord's interactions: commands, buttons, modals, ephemeral replies."""
