"""Interface of one user to the local platforms, shared by the page and the terminal."""
