"""Events API of the local Slack: dispatch by Socket Mode or HTTP."""
