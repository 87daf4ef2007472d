"""Client of the local platforms for one user, shared by the page and the terminal."""
