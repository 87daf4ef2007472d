"""Local Slack, Discord and model servers, for trying and testing the bot without an account."""
