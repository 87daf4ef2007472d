"""Set-up: the wizard, `.env`, the Slack manifest, and a check of each setting."""
