"""What the bot says in its own name, and in which language."""
