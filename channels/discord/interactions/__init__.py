"""Application commands, buttons and menus."""
