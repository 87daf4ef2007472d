"""What the app is told: each change of the workspace becomes the events that it has subscribed to."""

import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sandbox.slack.state.markup import has_mention
from sandbox.slack.state.payloads import SlackPayloads
from sandbox.slack.state.workspace import (
    SlackConversation,
    SlackMessage,
    Workspace,
    WorkspaceChange,
    WorkspaceUser,
    create_id,
)

#: The scope behind each subscription, if there is one: without it, Slack does not send the events.
EVENT_SCOPES: Mapping[str, str | None] = {
    "agent_session_stopped": "assistant:write",
    "app_home_opened": None,
    "app_mention": "app_mentions:read",
    "app_uninstalled": None,
    "message.channels": "channels:history",
    "message.groups": "groups:history",
    "message.im": "im:history",
    "message.mpim": "mpim:history",
    "tokens_revoked": None,
}
_MESSAGE_EVENTS = {"channel": "message.channels", "group": "message.groups", "im": "message.im"}


class SlackEventDispatcher:
    """Turns changes into event payloads and hands them to `deliver`.

    Only what happens in the bot's own channels is told. Slack: its own messages and their edits are told, too.
    """

    def __init__(
        self,
        workspace: Workspace,
        payloads: SlackPayloads,
        deliver: Callable[[dict[str, Any]], object],
        *,
        scopes: set[str],
        subscriptions: set[str],
        token: str,
    ) -> None:
        self._workspace = workspace
        self._payloads = payloads
        self._scopes = scopes
        self._subscriptions = subscriptions
        self._token = token
        self._deliver = deliver
        self._last_payloads: dict[tuple[str, str], dict[str, Any]] = {}

    def dispatch(self, change: WorkspaceChange) -> None:
        message = change.message
        if change.kind == "posted":
            self._dispatch_posted(message)
        elif message.ephemeral_to is not None:
            return
        elif change.kind == "updated":
            self._dispatch_updated(message)
        elif change.kind == "deleted":
            self._dispatch_deleted(message)

    def dispatch_home_opened(self, user: WorkspaceUser, channel: SlackConversation, tab: str) -> None:
        ts = self._workspace.create_ts()
        event = {"type": "app_home_opened", "user": user.id, "channel": channel.id, "tab": tab}
        if self._is_subscribed(channel, "app_home_opened"):
            self._send(event | {"event_ts": ts})

    def dispatch_session_stopped(
        self, user: WorkspaceUser, channel: SlackConversation, thread_ts: str, streams: Sequence[str]
    ) -> None:
        """Tell that somebody has pressed Slack's own button; `streams` are the messages that Slack has stopped."""
        event = {
            "type": "agent_session_stopped",
            "user": user.id,
            "channel": channel.id,
            "thread_ts": thread_ts,
            "streaming_message_ts": list(streams),
        }
        if self._is_subscribed(channel, "agent_session_stopped"):
            self._send(event | {"event_ts": self._workspace.create_ts()})

    def dispatch_uninstalled(self) -> None:
        """Tell that the app was taken out of the workspace. Slack: in no certain order."""
        told: tuple[dict[str, Any], ...] = (
            {"type": "tokens_revoked", "tokens": {"oauth": [], "bot": [self._workspace.bot.id]}},
            {"type": "app_uninstalled"},
        )
        for event in told:
            if event["type"] in self._subscriptions:
                self._send(event | {"event_ts": self._workspace.create_ts()})

    def _dispatch_posted(self, message: SlackMessage) -> None:
        said = self._payloads.message(message)
        self._last_payloads[message.channel.id, message.ts] = _without_files(said)
        self._send_message(message.channel, said | {"event_ts": message.ts})
        if self._mentions_bot(message, said["text"]):
            self._send_mention(message, said, message.ts)

    def _dispatch_updated(self, message: SlackMessage) -> None:
        said, before = (
            _without_files(self._payloads.message(message)),
            self._last_payloads[message.channel.id, message.ts],
        )
        self._last_payloads[message.channel.id, message.ts] = said
        ts = self._workspace.create_ts()
        changed = {"message": said, "previous_message": before}
        self._send_message(message.channel, self._hidden_event("message_changed", ts) | changed)
        if self._mentions_bot(message, said["text"]) and not has_mention(before["text"], self._workspace.bot.id):
            self._send_mention(message, said, ts)

    def _dispatch_deleted(self, message: SlackMessage) -> None:
        before = self._last_payloads.pop((message.channel.id, message.ts))
        gone = {"deleted_ts": message.ts, "previous_message": before}
        self._send_message(message.channel, self._hidden_event("message_deleted", self._workspace.create_ts()) | gone)

    @staticmethod
    def _hidden_event(subtype: str, ts: str) -> dict[str, Any]:
        return {"type": "message", "subtype": subtype, "hidden": True, "ts": ts, "event_ts": ts}

    def _mentions_bot(self, message: SlackMessage, text: str) -> bool:
        """Slack: `app_mention` is not sent for direct messages, nor for the app's own words."""
        by_itself = message.bot_id == self._workspace.bot_id
        return not message.channel.is_dm and not by_itself and has_mention(text, self._workspace.bot.id)

    def _send_mention(self, message: SlackMessage, said: Mapping[str, Any], ts: str) -> None:
        event = _without_files({name: value for name, value in said.items() if name != "parent_user_id"})
        if self._is_subscribed(message.channel, "app_mention"):
            self._send(event | {"type": "app_mention", "channel": message.channel.id, "event_ts": ts})

    def _send_message(self, channel: SlackConversation, event: dict[str, Any]) -> None:
        if self._is_subscribed(channel, _MESSAGE_EVENTS[channel.type]):
            self._send(event | {"channel": channel.id, "channel_type": channel.type})

    def _is_subscribed(self, channel: SlackConversation, subscription: str) -> bool:
        scope = EVENT_SCOPES[subscription]
        is_granted = subscription in self._subscriptions and (scope is None or scope in self._scopes)
        return is_granted and self._workspace.bot.id in channel.members

    def _is_shared(self, channel: str) -> bool:
        """Whether people of another workspace are in a channel, and not those of the same organisation."""
        place = None if self._workspace.enterprise_id else self._workspace.channels.get(channel)
        known = map(self._workspace.users.get, place.members) if place else ()
        return any(user is not None and user.team_id not in ("", self._workspace.team_id) for user in known)

    def _send(self, event: dict[str, Any]) -> None:
        enterprise = self._workspace.enterprise_id
        authorization = {
            "enterprise_id": enterprise,
            "team_id": None if enterprise else self._workspace.team_id,
            "user_id": self._workspace.bot.id,
            "is_bot": True,
            "is_enterprise_install": enterprise is not None,
        }
        self._deliver(
            {
                "token": self._token,
                "team_id": self._workspace.team_id,
                "api_app_id": self._workspace.app_id,
                "event": event,
                "type": "event_callback",
                "event_id": create_id("Ev"),
                "event_time": int(float(event["event_ts"])),
                "authorizations": [authorization],
                "is_ext_shared_channel": self._is_shared(str(event.get("channel") or "")),
                "event_context": "4-" + secrets.token_urlsafe(48),
            }
        )


def _without_files(said: dict[str, Any]) -> dict[str, Any]:
    """Slack: only the `file_share` message itself is sampled with its files."""
    return {name: value for name, value in said.items() if name != "files"}
