"""From what a platform tells to what a turn is asked."""
