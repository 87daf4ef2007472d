"""Events API of the local Slack: events, and their delivery by Socket Mode or HTTP."""
