"""Dispatcher of Events API payloads for changes of the workspace."""

import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from chatrig.slack.catalog import EVENT_SCOPES
from chatrig.slack.state.markup import has_mention
from chatrig.slack.state.messages import SlackConversation, SlackFile, SlackMessage
from chatrig.slack.state.payloads import SlackPayloads
from chatrig.slack.state.workspace import Workspace, WorkspaceChange, WorkspaceUser, create_id

#: Events that the simulator sends.
EVENTS = frozenset(
    {
        "agent_session_stopped",
        "app_context_changed",
        "app_home_opened",
        "app_mention",
        "app_uninstalled",
        "assistant_thread_context_changed",
        "assistant_thread_started",
        "file_created",
        "file_shared",
        "member_joined_channel",
        "member_left_channel",
        "message.channels",
        "message.groups",
        "message.im",
        "message_metadata_deleted",
        "message_metadata_posted",
        "message_metadata_updated",
        "pin_added",
        "pin_removed",
        "reaction_added",
        "reaction_removed",
        "tokens_revoked",
        "user_change",
    }
)
#: The subscriptions of an app without a manifest. Bolt does not acknowledge an event without a listener.
DEFAULT_EVENTS = frozenset(
    {
        "agent_session_stopped",
        "app_context_changed",
        "app_home_opened",
        "app_mention",
        "app_uninstalled",
        "message.channels",
        "message.groups",
        "message.im",
        "tokens_revoked",
        "user_change",
    }
)
#: Scope of apps that search with the token of a message.
_SEARCH_SCOPE = "search:read.public"

#: Events by the subtype of the message that Slack posts about a member.
_MEMBER_EVENTS = {"channel_join": "member_joined_channel", "channel_leave": "member_left_channel"}
_MESSAGE_EVENTS = {"channel": "message.channels", "group": "message.groups", "im": "message.im"}


class SlackEventDispatcher:
    """Sender of the events that the app subscribes to and has the scopes for.

    No event is sent about a channel without the bot. Slack sends events for the bot's own messages, too.

    Args:
        deliver: sends an `event_callback` payload.
        scopes: the bot's current scopes.
        subscriptions: the app's current event subscriptions.
        metadata_subscriptions: pairs (app id or `*` for any, event type) of `message_metadata_*` events.
        token: the deprecated verification token in payloads.
    """

    def __init__(
        self,
        workspace: Workspace,
        payloads: SlackPayloads,
        deliver: Callable[[dict[str, Any]], object],
        *,
        scopes: set[str],
        subscriptions: set[str],
        metadata_subscriptions: set[tuple[str, str]],
        token: str,
    ) -> None:
        self._workspace = workspace
        self._payloads = payloads
        self._scopes = scopes
        self._subscriptions = subscriptions
        self._metadata_subscriptions = metadata_subscriptions
        self._token = token
        self._deliver = deliver
        self._last_payloads: dict[tuple[str, str], dict[str, Any]] = {}
        self._last_metadata: dict[tuple[str, str], dict[str, Any]] = {}
        self._created_files: set[str] = set()

    def dispatch(self, change: WorkspaceChange) -> None:
        """Send the events for a change of a message, its reactions or its pin.

        A new message can also have events for a member, a file and metadata. Ephemeral messages and updates of a live
        stream have none.
        """
        message = change.message
        if change.kind == "posted":
            self._dispatch_posted(message)
        elif message.ephemeral_to is not None:
            return
        elif change.kind == "updated":
            self._dispatch_updated(message)
        elif change.kind == "deleted":
            self._dispatch_deleted(message)
        elif change.kind in ("reaction_added", "reaction_removed"):
            self._dispatch_reaction(change)
        elif change.kind in ("pinned", "unpinned"):
            self._dispatch_pin(change)

    def dispatch_home_opened(
        self, user: WorkspaceUser, channel: SlackConversation, tab: str, view: Mapping[str, Any] | None
    ) -> None:
        """Send the event `app_home_opened`, if the app subscribes to it.

        Args:
            channel: the user's DM with the bot.
            tab: `home` or `messages`.
            view: the payload of the published home tab, if the user opened that; None otherwise.
        """
        ts = self._workspace.create_ts()
        event: dict[str, Any] = {"type": "app_home_opened", "user": user.id, "channel": channel.id, "tab": tab}
        event |= {"view": view} if view is not None else {}
        if self._is_subscribed(channel, "app_home_opened"):
            self._send(event | {"event_ts": ts})

    def dispatch_context_changed(
        self, user: WorkspaceUser, channel: SlackConversation, entities: Sequence[Mapping[str, Any]]
    ) -> None:
        """Send the event `app_context_changed`, if the app subscribes to it.

        The fields are those of @slack/types; the page of Slack's docs shows fewer.

        Args:
            channel: the user's DM with the bot.
            entities: the channels or other things that the user views, with `type`, `value` and `team_id`; empty for
                none.
        """
        context = {"entities": list(entities)} if entities else {}
        event = {"type": "app_context_changed", "user": user.id, "channel": channel.id, "context": context}
        if self._is_subscribed(channel, "app_context_changed"):
            self._send(event | {"event_ts": self._workspace.create_ts()})

    def dispatch_session_stopped(
        self, user: WorkspaceUser, channel: SlackConversation, thread_ts: str, streams: Sequence[str]
    ) -> None:
        """Send the event `agent_session_stopped`, if the app subscribes to it.

        Args:
            user: the user who stopped the agent.
            thread_ts: the timestamp of the thread's root message.
            streams: the timestamps of the streamed messages that were stopped.
        """
        event = {
            "type": "agent_session_stopped",
            "user": user.id,
            "channel": channel.id,
            "thread_ts": thread_ts,
            "streaming_message_ts": list(streams),
        }
        if self._is_subscribed(channel, "agent_session_stopped"):
            self._send(event | {"event_ts": self._workspace.create_ts()})

    def dispatch_assistant_thread(
        self, type_: str, user: WorkspaceUser, root: SlackMessage, context: SlackConversation | None
    ) -> None:
        """Send `assistant_thread_started` or `assistant_thread_context_changed`.

        The event is sent only if the app subscribes to it.

        Args:
            type_: the type of the event.
            user: the user of the thread.
            root: the root message of the thread.
            context: the channel that the user sees; None for none.
        """
        shown = {"channel_id": context.id, "team_id": self._workspace.team_id} if context is not None else {}
        enterprise = {"enterprise_id": self._workspace.enterprise_id} if shown else {}
        thread = {
            "user_id": user.id,
            "context": shown | enterprise,
            "channel_id": root.channel.id,
            "thread_ts": root.ts,
        }
        if self._is_subscribed(root.channel, type_):
            ts = self._workspace.create_ts()
            self._send({"type": type_, "assistant_thread": thread, "event_ts": ts})

    def dispatch_uninstalled(self) -> None:
        """Send the events `tokens_revoked` and `app_uninstalled`, if subscribed to.

        Slack guarantees no order.
        """
        events: tuple[dict[str, Any], ...] = (
            {"type": "tokens_revoked", "tokens": {"oauth": [], "bot": [self._workspace.bot.id]}},
            {"type": "app_uninstalled"},
        )
        for event in events:
            if event["type"] in self._subscriptions:
                self._send(event | {"event_ts": self._workspace.create_ts()})

    def dispatch_user_changed(self, user: WorkspaceUser) -> None:
        """Send the event `user_change`, if the app subscribes to it and may read users."""
        if "user_change" in self._subscriptions and not self._scopes.isdisjoint(EVENT_SCOPES["user_change"]):
            ts = self._workspace.create_ts()
            changed = self._payloads.user(user, has_email="users:read.email" in self._scopes)
            self._send({"type": "user_change", "user": changed, "cache_ts": int(float(ts)), "event_ts": ts})

    def record_message(self, message: SlackMessage) -> None:
        """Store a message as the `previous_message` of its next change, without an event."""
        self._last_payloads[message.channel.id, message.ts] = _without_files(self._payloads.message(message))

    def _dispatch_posted(self, message: SlackMessage) -> None:
        payload = self._payloads.message(message)
        self.record_message(message)
        is_readable = message.metadata and message.subtype is None and "metadata.message:read" in self._scopes
        metadata = {"metadata": message.metadata} if is_readable else {}
        self._send_message(message.channel, payload | metadata | {"event_ts": message.ts})
        if self._mentions_bot(message, payload["text"]):
            self._send_mention(message, payload, message.ts)
        if (kind := _MEMBER_EVENTS.get(message.subtype or "")) is not None:
            self._dispatch_member(kind, message)
        for file in message.files:
            self._dispatch_file(message, file)
        self._dispatch_metadata(message)

    def _dispatch_updated(self, message: SlackMessage) -> None:
        payload, previous = (
            _without_files(self._payloads.message(message)),
            self._last_payloads[message.channel.id, message.ts],
        )
        self._last_payloads[message.channel.id, message.ts] = payload
        ts = self._workspace.create_ts()
        changes = {"message": payload, "previous_message": previous}
        self._send_message(message.channel, self._hidden_event("message_changed", ts) | changes)
        self._dispatch_metadata(message)
        if self._mentions_bot(message, payload["text"]) and not has_mention(previous["text"], self._workspace.bot.id):
            self._send_mention(message, payload, ts)

    def _dispatch_deleted(self, message: SlackMessage) -> None:
        previous = self._last_payloads.pop((message.channel.id, message.ts))
        changes = {"deleted_ts": message.ts, "previous_message": previous}
        self._send_message(
            message.channel, self._hidden_event("message_deleted", self._workspace.create_ts()) | changes
        )
        self._dispatch_metadata(message)

    def _dispatch_reaction(self, change: WorkspaceChange) -> None:
        message = change.message
        event = {
            "type": change.kind,
            "user": change.user,
            "item": {"type": "message", "channel": message.channel.id, "ts": message.ts},
            "reaction": change.reaction,
            "item_user": message.user,
        }
        if self._is_subscribed(message.channel, change.kind):
            self._send(event | {"event_ts": self._workspace.create_ts()})

    def _dispatch_pin(self, change: WorkspaceChange) -> None:
        message, kind = change.message, "pin_added" if change.kind == "pinned" else "pin_removed"
        count = len(self._workspace.pinned_messages(message.channel))
        event = {
            "type": kind,
            "user": change.user,
            "channel_id": message.channel.id,
            "item": self._payloads.pinned_item(message),
            "item_user": message.user,
            "pin_count": count,
            "pinned_info": {},
            **({"has_pins": count > 0} if kind == "pin_removed" else {}),
        }
        if self._is_subscribed(message.channel, kind):
            self._send(event | {"event_ts": self._workspace.create_ts()})

    def _dispatch_member(self, type_: str, message: SlackMessage) -> None:
        event = {
            "type": type_,
            "user": message.user,
            "channel": message.channel.id,
            "channel_type": "G" if message.channel.private else "C",
            "team": self._workspace.team_id,
            **({"inviter": message.inviter} if message.inviter else {}),
        }
        if self._is_subscribed(message.channel, type_):
            self._send(event | {"event_ts": self._workspace.create_ts()})

    def _dispatch_file(self, message: SlackMessage, file: SlackFile) -> None:
        about = {"file_id": file.id, "user_id": message.user, "file": {"id": file.id}}
        if file.id not in self._created_files and self._is_subscribed(message.channel, "file_created"):
            self._send({"type": "file_created"} | about | {"event_ts": self._workspace.create_ts()})
        self._created_files.add(file.id)
        if self._is_subscribed(message.channel, "file_shared"):
            shared = {"type": "file_shared", "channel_id": message.channel.id}
            self._send(shared | about | {"event_ts": self._workspace.create_ts()})

    def _dispatch_metadata(self, message: SlackMessage) -> None:
        """Send the event of posted, updated or deleted metadata of the app's own message.

        Nothing is sent if the metadata is unchanged. Slack: docs.slack.dev/reference/events/message_metadata_posted.
        """
        key = (message.channel.id, message.ts)
        previous, current = self._last_metadata.pop(key, None), None if message.deleted else message.metadata
        if current is not None:
            self._last_metadata[key] = current
        metadata = current or previous
        if metadata is None or current == previous or message.bot_id != self._workspace.bot_id:
            return
        type_ = f"message_metadata_{'posted' if previous is None else 'updated' if current else 'deleted'}"
        ts = self._workspace.create_ts()
        event = {
            "type": type_,
            "app_id": self._workspace.app_id,
            "bot_id": message.bot_id,
            "user_id": message.user,
            "team_id": self._workspace.team_id,
            "channel_id": message.channel.id,
            **({"metadata": current} if current else {"deleted_ts": ts}),
            **({"previous_metadata": previous} if previous else {}),
            "message_ts": message.ts,
            "event_ts": ts,
        }
        keys = {(app, metadata["event_type"]) for app in (self._workspace.app_id, "*")}
        if keys & self._metadata_subscriptions and self._is_subscribed(message.channel, type_):
            self._send(event)

    @staticmethod
    def _hidden_event(subtype: str, ts: str) -> dict[str, Any]:
        return {"type": "message", "subtype": subtype, "hidden": True, "ts": ts, "event_ts": ts}

    def _mentions_bot(self, message: SlackMessage, text: str) -> bool:
        """Return whether Slack sends `app_mention` for a message with this text.

        It does if the text mentions the bot, but not for DMs and the app's own messages. The subscription is not
        considered.
        """
        by_itself = message.bot_id == self._workspace.bot_id
        return not message.channel.is_dm and not by_itself and has_mention(text, self._workspace.bot.id)

    def _send_mention(self, message: SlackMessage, payload: Mapping[str, Any], ts: str) -> None:
        dropped = ("parent_user_id", "root")
        event = _without_files({name: value for name, value in payload.items() if name not in dropped})
        event |= self._action_token(event)
        if self._is_subscribed(message.channel, "app_mention"):
            self._send(event | {"type": "app_mention", "channel": message.channel.id, "event_ts": ts})

    def _send_message(self, channel: SlackConversation, event: dict[str, Any]) -> None:
        if self._is_subscribed(channel, _MESSAGE_EVENTS[channel.type]):
            self._send(event | {"channel": channel.id, "channel_type": channel.type} | self._action_token(event))

    def _action_token(self, event: Mapping[str, Any]) -> dict[str, str]:
        """Return the field `action_token` for the event of a message, or no field.

        `assistant.search.context` accepts this token. Events of people's messages have it if the app has the scope
        `search:read.public`.
        Slack: docs.slack.dev/reference/methods/assistant.search.context; at the top of the event, slack-go/slack #1577.
        """
        is_from_person = "user" in event and "bot_id" not in event
        return {"action_token": secrets.token_hex(16)} if is_from_person and _SEARCH_SCOPE in self._scopes else {}

    def _is_subscribed(self, channel: SlackConversation, subscription: str) -> bool:
        """Return whether Slack sends an event of a channel to the app.

        The app needs the subscription, one of the event's scopes, and the bot in the channel.
        """
        scopes = EVENT_SCOPES[subscription]
        is_granted = subscription in self._subscriptions and (not scopes or not self._scopes.isdisjoint(scopes))
        return is_granted and self._workspace.bot.id in channel.members

    def _is_shared(self, channel: str) -> bool:
        """Return whether a channel has users of another workspace (Slack Connect).

        False in an Enterprise Grid organisation.

        Args:
            channel: the id of the channel; "" for an event without one, which gives False.
        """
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


def _without_files(payload: dict[str, Any]) -> dict[str, Any]:
    """Return a copy of an event's JSON without `files`.

    Only `file_share` events have this field.
    """
    return {name: value for name, value in payload.items() if name != "files"}
