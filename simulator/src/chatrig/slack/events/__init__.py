"""Events API of the local Slack: events, their delivery by Socket Mode or HTTP."""
