"""Intake: from platform events to inbox messages and prompts."""
