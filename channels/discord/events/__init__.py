"""Discord's messages as inbox messages: parsing, history, context, downloads."""
