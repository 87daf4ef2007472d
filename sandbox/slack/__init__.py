"""Local Slack: Web API, Socket Mode, HTTP mode, OAuth."""

from sandbox.slack.api.assistant import Session
from sandbox.slack.api.faults import Faults
from sandbox.slack.api.views import View
from sandbox.slack.server import SlackSandbox
from sandbox.slack.state.activity_log import Call, Envelope
from sandbox.slack.state.markup import Content, Task
from sandbox.slack.state.workspace import Change, Channel, File, Group, Message, Stream, User, Version

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
