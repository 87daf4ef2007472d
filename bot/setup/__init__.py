"""Setting up: the wizard, `.env`, manifests, and the check of each setting."""
