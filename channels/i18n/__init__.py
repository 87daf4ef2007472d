"""The bot's own messages, their translations, and the language of a user."""
