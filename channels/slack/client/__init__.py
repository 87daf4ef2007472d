"""Connection to Slack: Web API, Socket Mode, HTTP mode, OAuth, workspaces."""
