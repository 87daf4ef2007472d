"""The connection to Slack: Web API, Socket Mode, HTTP mode, OAuth."""
