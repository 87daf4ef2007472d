"""Methods of agent apps: sessions, statuses, titles and suggested prompts.

Slack: docs.slack.dev/ai/agent-sessions and the pages of the methods. An assumption that they do not state: an app has
the scope `assistant:write` if and only if it is an agent.
"""

from dataclasses import dataclass, field
from typing import Any

from sandbox.slack.api.base import WebApi
from sandbox.slack.api.content import parse_thread_ts
from sandbox.slack.api.requests import Arguments, SlackError
from sandbox.slack.state.workspace import SlackConversation

#: The event of Slack's own stop button.
STOPPED_EVENT = "agent_session_stopped"

MAX_PROMPTS, MAX_TITLE_CHARS = 4, 200

_AGENT_SCOPE = "assistant:write"
_STATUSES = {"active", "processing", "suspended", "closed"}
_MISSING_SUBSCRIPTION = "missing_agent_session_stopped_event_subscription"


@dataclass(eq=False, slots=True)
class AssistantThread:
    """Agent session of one thread.

    Attributes:
        thread_ts: the timestamp of the thread's root.
        statuses: all statuses that the app set, in order; see `_STATUSES`.
    """

    channel: SlackConversation
    thread_ts: str
    title: str = ""
    statuses: list[str] = field(default_factory=list)

    @property
    def status(self) -> str:
        """The current status."""
        return self.statuses[-1]


class AssistantMethods:
    """Methods for agent sessions and suggested prompts.

    Args:
        subscriptions: the app's current event subscriptions.

    Attributes:
        sessions: agent sessions by (channel id, timestamp of the thread's root).
    """

    def __init__(self, api: WebApi, subscriptions: set[str]) -> None:
        self._api = api
        self._workspace = api.workspace
        self._subscriptions = subscriptions
        self.sessions: dict[tuple[str, str], AssistantThread] = {}
        api.register("agents.sessions.setStatus", self.set_status, scope="chat:write")
        api.register("agents.sessions.rename", self.rename_session, scope="chat:write")
        api.register("assistant.threads.setSuggestedPrompts", self.set_suggested_prompts, scope=_AGENT_SCOPE)

    def set_status(self, arguments: Arguments) -> dict[str, Any]:
        """Set the status of a thread's session, which is created if it does not exist."""
        channel, thread_ts = self._parse_thread(arguments)
        status = arguments.get_required("status")
        if status not in _STATUSES:
            raise SlackError("invalid_arguments", messages=["[ERROR] no such status [json-pointer:/status]"])
        title = _parse_title(arguments)
        session = self.sessions.get((channel.id, thread_ts)) or AssistantThread(channel, thread_ts, title)
        self.sessions[channel.id, thread_ts] = session
        session.statuses.append(status)
        warning = (
            {"warning": _MISSING_SUBSCRIPTION}
            if status == "processing" and STOPPED_EVENT not in self._subscriptions
            else {}
        )
        return {"status": status, "title": session.title} | warning

    def rename_session(self, arguments: Arguments) -> dict[str, Any]:
        channel, thread_ts = self._parse_thread(arguments)
        arguments.get_required("title")
        session = self.sessions.get((channel.id, thread_ts))
        if session is None:
            raise SlackError("session_not_found")
        session.title = _parse_title(arguments)
        return {"title": session.title}

    def set_suggested_prompts(self, arguments: Arguments) -> dict[str, Any]:
        channel = self._api.find_channel(Arguments({"channel": arguments.get_required("channel_id")}))
        prompts = arguments.json("prompts", error="invalid_arguments")
        if not isinstance(prompts, list) or not 0 < len(prompts) <= MAX_PROMPTS:
            raise SlackError("invalid_arguments", messages=["[ERROR] must have 1 to 4 items [json-pointer:/prompts]"])
        if not all(isinstance(p, dict) and p.get("title") and p.get("message") for p in prompts):
            raise SlackError("invalid_arguments", messages=["[ERROR] missing required field [json-pointer:/prompts]"])
        if not arguments.text("thread_ts"):  # Slack ignores the call of an agent with one, without an error
            channel.prompts = tuple((prompt["title"], prompt["message"]) for prompt in prompts)
        return {}

    def _parse_thread(self, arguments: Arguments) -> tuple[SlackConversation, str]:
        """Return the conversation and the thread of the arguments `channel_id` and `thread_ts`.

        Raises:
            SlackError: the app is no agent, the bot cannot post there, or the thread does not exist.
        """
        self._api.require_scope(_AGENT_SCOPE)
        channel = self._api.require_writable(
            self._api.find_channel(Arguments({"channel": arguments.get_required("channel_id")}))
        )
        thread_ts = arguments.get_required("thread_ts")
        parse_thread_ts(self._workspace, channel, arguments)
        return channel, thread_ts


def _parse_title(arguments: Arguments) -> str:
    title = arguments.text("title")
    if len(title) > MAX_TITLE_CHARS:
        raise SlackError("invalid_arguments", messages=["[ERROR] too long [json-pointer:/title]"])
    return title
