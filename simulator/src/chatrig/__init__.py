"""Local Slack, Discord and model servers, to try and test the bot offline."""
