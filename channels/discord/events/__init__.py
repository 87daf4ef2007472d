"""Messages of Discord as inbox messages: parsing, history, thread context, downloads."""
