"""Discord adapter."""
