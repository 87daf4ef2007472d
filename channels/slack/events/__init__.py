"""Events of Slack as inbox messages: parsing, history, thread context, downloads."""
