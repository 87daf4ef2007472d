"""Data of the local Slack: the workspace, its JSON, markup, and an activity log."""
