"""Interface of one user to the local platforms, for the page and the terminal."""
