"""A user's client of the local platforms, shared by the page and the terminal."""
