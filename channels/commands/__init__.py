"""Chat commands, and the reports "Why?" and usage."""
