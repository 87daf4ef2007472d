"""Inbox messages, their authors, and the places where they are sent."""
