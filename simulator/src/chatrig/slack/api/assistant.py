"""Web API methods of agent apps: sessions, statuses, titles and suggested prompts.

Slack: docs.slack.dev/ai/agent-sessions and the pages of the methods. An assumption that they do not state: an app has
the scope `assistant:write` if and only if it is an agent. An app with the older feature `assistant_view` subscribes to
`assistant_thread_started`; its prompts belong to threads.
"""

from dataclasses import dataclass, field
from time import monotonic
from typing import Any

from chatrig.slack.api.base import WebApi
from chatrig.slack.api.content import parse_thread_ts
from chatrig.slack.api.requests import Arguments, SlackError
from chatrig.slack.state.messages import SlackConversation

#: The event of Slack's own stop button.
STOPPED_EVENT = "agent_session_stopped"

#: The event of an app with `assistant_view`.
STARTED_EVENT = "assistant_thread_started"

MAX_PROMPTS, MAX_TITLE_CHARS, MAX_LOADING_MESSAGES = 4, 200, 10
#: "A two minute timeout applies" to `assistant.threads.setStatus`.
LOADING_SECONDS = 120.0

_AGENT_SCOPE = "assistant:write"
STATUSES = {"active", "processing", "suspended", "closed"}
_MISSING_SUBSCRIPTION = "missing_agent_session_stopped_event_subscription"


@dataclass(eq=False, slots=True)
class AssistantThread:
    """Agent session of one thread, with the texts that `assistant.threads.*` have set.

    Attributes:
        thread_ts: the timestamp of the thread's root message.
        title: the title of the thread; "" without one.
        statuses: all statuses of the session, in order; see `STATUSES`. Empty without a session.
        loading_text: the text of the last `assistant.threads.setStatus`.
        loading_ts: the timestamp of that call.
        loading_ends_at: the latest end of that text, in seconds on the monotonic clock.
    """

    channel: SlackConversation
    thread_ts: str
    title: str = ""
    statuses: list[str] = field(default_factory=list)
    loading_text: str = ""
    loading_ts: str = ""
    loading_ends_at: float = 0.0

    @property
    def status(self) -> str:
        """The current status of the session, one of `STATUSES`; "" without a session."""
        return self.statuses[-1] if self.statuses else ""


class AssistantMethods:
    """Web API methods for agent sessions and suggested prompts.

    Args:
        subscriptions: the app's current event subscriptions.
        speed: divides `LOADING_SECONDS`.
    """

    def __init__(self, api: WebApi, subscriptions: set[str], *, speed: float) -> None:
        self._api = api
        self._workspace = api.workspace
        self._subscriptions = subscriptions
        self._loading_seconds = LOADING_SECONDS / speed
        self._threads: dict[tuple[str, str], AssistantThread] = {}
        api.register("agents.sessions.setStatus", self.set_status, scope="chat:write")
        api.register("agents.sessions.rename", self.rename_session, scope="chat:write")
        api.register("assistant.threads.setStatus", self.set_thread_status)
        api.register("assistant.threads.setTitle", self.set_thread_title, scope=_AGENT_SCOPE)
        api.register("assistant.threads.setSuggestedPrompts", self.set_suggested_prompts, scope=_AGENT_SCOPE)

    @property
    def sessions(self) -> list[AssistantThread]:
        """All agent sessions of the workspace, `closed` ones included."""
        return [thread for thread in self._threads.values() if thread.statuses]

    def find_session(self, channel: SlackConversation, thread_ts: str) -> AssistantThread | None:
        """Return the agent session of a thread, also a `closed` one; None without one."""
        thread = self._threads.get((channel.id, thread_ts))
        return thread if thread is not None and thread.statuses else None

    def get_loading_text(self, channel: SlackConversation, thread_ts: str) -> str:
        """Return the text of `assistant.threads.setStatus` that a thread shows, or "".

        The text disappears after `LOADING_SECONDS` (divided by the speed), or when the app posts in the thread.
        """
        thread = self._threads.get((channel.id, thread_ts))
        if thread is None or thread.loading_ends_at < monotonic():
            return ""
        posted = self._workspace.thread_messages(channel, thread_ts)
        is_answered = any(m.bot_id == self._workspace.bot_id and m.ts > thread.loading_ts for m in posted)
        return "" if is_answered else thread.loading_text

    def get_title(self, channel: SlackConversation, thread_ts: str) -> str:
        """Return the title of a thread; "" if it has none."""
        thread = self._threads.get((channel.id, thread_ts))
        return "" if thread is None else thread.title

    def set_status(self, arguments: Arguments) -> dict[str, Any]:
        """Run `agents.sessions.setStatus`: set the status of a thread's agent session.

        The session is created if it does not exist. A title in the arguments is ignored if the thread has one.

        Returns:
            The response's fields: `status`, `title`, and `warning` for `processing` without a subscription to
            `agent_session_stopped`.

        Raises:
            SlackError: `missing_scope`; `invalid_arguments` for a missing argument, an unknown status or a long title;
                `thread_not_found` or `cannot_reply_to_message`; or as for `WebApi.find_channel` and
                `WebApi.require_writable`.
        """
        channel, thread_ts = self._parse_thread(arguments)
        status = arguments.get_required("status")
        if status not in STATUSES:
            raise SlackError("invalid_arguments", messages=["[ERROR] no such status [json-pointer:/status]"])
        title = _parse_title(arguments)
        session = self._get_thread(channel, thread_ts)
        session.title = session.title or title
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
        session = self.find_session(channel, thread_ts)
        if session is None:
            raise SlackError("session_not_found")
        session.title = _parse_title(arguments)
        return {"title": session.title}

    def set_thread_status(self, arguments: Arguments) -> dict[str, Any]:
        """Run `assistant.threads.setStatus`: show a text in a thread until the app posts.

        An empty status removes the text. The response has no fields. Slack: "accepts either the assistant:write or
        chat:write scope for the time being".

        Raises:
            SlackError: `missing_scope`, `channel_not_found`, `invalid_thread_ts`, or `invalid_arguments` for a missing
                argument or too many `loading_messages`.
        """
        if not self._api.has_scope(_AGENT_SCOPE):
            self._api.require_scope("chat:write")
        thread = self._find_thread(arguments)
        loading = arguments.json("loading_messages", error="invalid_arguments") or []
        if not isinstance(loading, list) or len(loading) > MAX_LOADING_MESSAGES:
            raise SlackError(
                "invalid_arguments", messages=["[ERROR] no more than 10 items [json-pointer:/loading_messages]"]
            )
        if "status" not in arguments:
            arguments.get_required("status")
        thread.loading_text = arguments.text("status")
        thread.loading_ts = self._workspace.create_ts()
        thread.loading_ends_at = monotonic() + self._loading_seconds
        return {}

    def set_thread_title(self, arguments: Arguments) -> dict[str, Any]:
        thread = self._find_thread(arguments)
        thread.title = arguments.get_required("title")
        return {}

    def set_suggested_prompts(self, arguments: Arguments) -> dict[str, Any]:
        channel = self._api.find_channel(Arguments({"channel": arguments.get_required("channel_id")}))
        prompts = arguments.json("prompts", error="invalid_arguments")
        if not isinstance(prompts, list) or not 0 < len(prompts) <= MAX_PROMPTS:
            raise SlackError("invalid_arguments", messages=["[ERROR] must have 1 to 4 items [json-pointer:/prompts]"])
        if not all(isinstance(p, dict) and p.get("title") and p.get("message") for p in prompts):
            raise SlackError("invalid_arguments", messages=["[ERROR] missing required field [json-pointer:/prompts]"])
        # Slack ignores an agent's call with `thread_ts`, without an error.
        if not arguments.text("thread_ts") or STARTED_EVENT in self._subscriptions:
            channel.prompts = tuple((prompt["title"], prompt["message"]) for prompt in prompts)
        return {}

    def _get_thread(self, channel: SlackConversation, thread_ts: str) -> AssistantThread:
        return self._threads.setdefault((channel.id, thread_ts), AssistantThread(channel, thread_ts))

    def _find_thread(self, arguments: Arguments) -> AssistantThread:
        """Return the thread in the arguments of `assistant.threads.*`.

        It is created, without a session, if it is the first call for the thread.

        Raises:
            SlackError: `channel_not_found` or `invalid_thread_ts`; `invalid_arguments` for a missing argument.
        """
        channel = self._api.find_channel(Arguments({"channel": arguments.get_required("channel_id")}))
        thread_ts = arguments.get_required("thread_ts")
        if self._workspace.find_message(channel, thread_ts) is None:
            raise SlackError("invalid_thread_ts")
        return self._get_thread(channel, thread_ts)

    def _parse_thread(self, arguments: Arguments) -> tuple[SlackConversation, str]:
        """Return the conversation and `thread_ts` in the arguments of `agents.sessions.*`.

        Raises:
            SlackError: `missing_scope` if the app is no agent; `channel_not_found`, `is_archived` or
                `not_in_channel`; `thread_not_found` or `cannot_reply_to_message`; `invalid_arguments`.
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
