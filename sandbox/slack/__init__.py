"""A Slack on this machine: the Web API and Socket Mode, for tests, benchmarks and a look without an account."""

from sandbox.slack.faults import Faults
from sandbox.slack.journal import Call, Envelope
from sandbox.slack.server import SlackSandbox
from sandbox.slack.workspace import Change, Channel, File, Message, User, Version

__all__ = ["Call", "Change", "Channel", "Envelope", "Faults", "File", "Message", "SlackSandbox", "User", "Version"]
