"""Chat commands."""
