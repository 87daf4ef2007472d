"""A Slack on this machine: the Web API and Socket Mode, for tests, benchmarks and a look without an account."""

from sandbox.slack.agents import Session
from sandbox.slack.faults import Faults
from sandbox.slack.journal import Call, Envelope
from sandbox.slack.markup import Content, Task
from sandbox.slack.server import SlackSandbox
from sandbox.slack.views import View
from sandbox.slack.workspace import Change, Channel, File, Group, Message, Stream, User, Version

__all__ = [
    "Call",
    "Change",
    "Channel",
    "Content",
    "Envelope",
    "Faults",
    "File",
    "Group",
    "Message",
    "Session",
    "SlackSandbox",
    "Stream",
    "Task",
    "User",
    "Version",
    "View",
]
