"""Local Slack with the Web API, Socket Mode, HTTP mode and OAuth."""

from chatrig.slack.api.assistant import AssistantThread
from chatrig.slack.api.faults import SlackFaults
from chatrig.slack.server import SlackSimulator
from chatrig.slack.state.activity_log import EnvelopeRecord, SlackCallRecord
from chatrig.slack.state.markup import SlackContent, TaskCard
from chatrig.slack.state.messages import NativeStream, SlackConversation, SlackFile, SlackMessage, SlackMessageVersion
from chatrig.slack.state.views import SlackView
from chatrig.slack.state.workspace import UserGroup, WorkspaceChange, WorkspaceUser

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
    "SlackSimulator",
    "SlackView",
    "TaskCard",
    "UserGroup",
    "WorkspaceChange",
    "WorkspaceUser",
]
