"""Conformance of any bot: twenty cases, judged by what people see in the local Slack and Discord."""
