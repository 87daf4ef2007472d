"""Messages that were received and not answered yet."""
