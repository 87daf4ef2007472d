"""One module for each vendor of models."""
