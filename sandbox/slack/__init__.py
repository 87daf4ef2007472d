"""Local Slack with the Web API, Socket Mode, HTTP mode and OAuth."""

from sandbox.slack.api.assistant import AssistantThread
from sandbox.slack.api.faults import SlackFaults
from sandbox.slack.server import SlackSandbox
from sandbox.slack.state.activity_log import EnvelopeRecord, SlackCallRecord
from sandbox.slack.state.markup import SlackContent, TaskCard
from sandbox.slack.state.messages import NativeStream, SlackConversation, SlackFile, SlackMessage, SlackMessageVersion
from sandbox.slack.state.views import SlackView
from sandbox.slack.state.workspace import UserGroup, WorkspaceChange, WorkspaceUser

__all__ = [
    "AssistantThread",
    "EnvelopeRecord",
    "NativeStream",
    "SlackCallRecord",
    "SlackContent",
    "SlackConversation",
    "SlackFaults",
    "SlackFile",
    "SlackMessage",
    "SlackMessageVersion",
    "SlackSandbox",
    "SlackView",
    "TaskCard",
    "UserGroup",
    "WorkspaceChange",
    "WorkspaceUser",
]
