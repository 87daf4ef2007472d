"""Web API of the local Slack: methods, limits, faults."""
