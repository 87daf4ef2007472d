"""From Discord's messages to inbound messages."""
