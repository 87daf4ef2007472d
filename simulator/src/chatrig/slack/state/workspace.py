"""Data of a Slack workspace: users, user groups, conversations and their messages."""

import re
import secrets
import string
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from time import monotonic, time
from typing import Any, Literal

from chatrig.slack.state.markup import SlackContent, find_pings, render_text
from chatrig.slack.state.messages import SlackConversation, SlackMessage, SlackMessageVersion

#: The user that posts Slack's own messages.
SLACKBOT = "USLACKBOT"

_EMOJI_FILE = Path(__file__).with_name("emoji.txt")
_SKIN_TONE = re.compile(r"::skin-tone-[2-6]$")

ChangeKind = Literal[
    "posted",
    "streamed",
    "updated",
    "deleted",
    "ephemeral",
    "reaction_added",
    "reaction_removed",
    "pinned",
    "unpinned",
]


@cache
def _standard_emoji() -> frozenset[str]:
    lines = _EMOJI_FILE.read_text().splitlines()
    return frozenset(name for line in lines if not line.startswith("#") for name in line.split())


def create_id(prefix: str) -> str:
    """Return a new random id in Slack's format: prefix, `0`, and nine of A-Z and 0-9."""
    alphabet = string.ascii_uppercase + string.digits
    return prefix + "0" + "".join(secrets.choice(alphabet) for _ in range(9))


@dataclass(frozen=True, slots=True)
class WorkspaceUser:
    """User of the workspace, or its bot user.

    Attributes:
        team_id: the id of the user's workspace, if it is another one; "" otherwise.
        time_zone: the IANA name of the time zone.
    """

    id: str
    name: str
    real_name: str
    is_bot: bool = False
    locale: str = "en-US"
    team_id: str = ""
    time_zone: str = "Etc/UTC"

    @property
    def email(self) -> str:
        """The email address; "" for a bot and for Slackbot."""
        return "" if self.is_bot or self.id == SLACKBOT else f"{self.name.lower()}@example.com"


@dataclass(frozen=True, slots=True)
class UserGroup:
    """User group of the workspace; its mention is `<!subteam^ID>`.

    Attributes:
        handle: the name of the group in mentions, without `@`.
        members: ids of the users in the group.
    """

    id: str
    handle: str
    members: frozenset[str]


@dataclass(frozen=True, slots=True)
class WorkspaceChange:
    """Visible change of a message.

    Attributes:
        kind: the change; `ephemeral` is a new ephemeral message, `streamed` an update of a live stream.
        message: the message after the change.
        user: the id of the user of a reaction or pin; None for other changes.
        reaction: the emoji's name of a reaction; None for other changes.
    """

    kind: ChangeKind
    message: SlackMessage
    user: str | None = None
    reaction: str | None = None


class Workspace:
    """Data of a workspace, with methods that change it.

    Attributes:
        custom_emoji: URLs of the workspace's own emoji by name, without colons.
        other_bots: ids of other apps' bots by name.
        deactivated_ids: ids of the users whose accounts are deactivated.

    Args:
        on_change: called after every change of a message.
        name: the name of the workspace.
        app_id: the id of the installed app.
        bot_name: the name of the app's bot.
    """

    def __init__(self, on_change: Callable[[WorkspaceChange], None], *, name: str, app_id: str, bot_name: str) -> None:
        self._on_change = on_change
        self._last_ts = 0
        self.name = name
        self.team_id = create_id("T")
        self.enterprise_id: str | None = None
        self.app_id = app_id
        self.bot_id = create_id("B")
        self.bot = WorkspaceUser(create_id("U"), bot_name.lower().replace(" ", "_"), bot_name, is_bot=True)
        slackbot = WorkspaceUser(SLACKBOT, "slackbot", "Slackbot")  # Slack: its `is_bot` is false (bolt-js #794)
        self.users: dict[str, WorkspaceUser] = {user.id: user for user in (self.bot, slackbot)}
        self.channels: dict[str, SlackConversation] = {}
        self.groups: dict[str, UserGroup] = {}
        self.custom_emoji: dict[str, str] = {}
        self.other_bots: dict[str, str] = {}
        self.deactivated_ids: set[str] = set()
        self._messages: dict[str, dict[str, SlackMessage]] = {}

    def has_emoji(self, name: str) -> bool:
        """Return whether an emoji of this name exists, such as `wave`.

        The name has no colons around it; a skin tone (`wave::skin-tone-3`) is accepted.
        """
        return _SKIN_TONE.sub("", name) in _standard_emoji() | self.custom_emoji.keys()

    # Users and conversations

    def add_user(self, name: str, real_name: str, *, locale: str, team_id: str, time_zone: str) -> WorkspaceUser:
        if self.find_user_by_name(name) is not None:
            raise ValueError(f"there is a user named {name} already")
        user = WorkspaceUser(create_id("U"), name, real_name, locale=locale, team_id=team_id, time_zone=time_zone)
        self.users[user.id] = user
        return user

    def deactivate_user(self, user: str) -> None:
        """Deactivate the account of a user (by id), who leaves all channels without a message."""
        self.deactivated_ids.add(user)
        for channel in self.channels.values():
            if not channel.is_dm:
                channel.members.discard(user)

    def find_user_by_name(self, name: str) -> WorkspaceUser | None:
        return next((user for user in self.users.values() if user.name == name), None)

    def add_bot_user(self, name: str) -> WorkspaceUser:
        """Return the bot user of another app; create it if it does not exist."""
        user = self.find_user_by_name(name) or WorkspaceUser(create_id("U"), name, name, is_bot=True)
        return self.users.setdefault(user.id, user)

    def get_bot_id(self, app: str) -> str:
        """Return the id of another app's bot; create it if it does not exist."""
        return self.other_bots.setdefault(app, create_id("B"))

    def add_user_group(self, handle: str, members: Iterable[str]) -> UserGroup:
        group = UserGroup(create_id("S"), handle, frozenset(members))
        self.groups[group.id] = group
        return group

    def add_channel(self, name: str, *, private: bool, members: Iterable[str]) -> SlackConversation:
        if self.find_channel_by_name(name) is not None:
            raise ValueError(f"there is a channel named {name} already")
        return self.register(SlackConversation(create_id("C"), name, private=private, members=set(members)))

    def find_channel_by_name(self, name: str) -> SlackConversation | None:
        return next((c for c in self.channels.values() if c.name == name and not c.is_dm), None)

    def find_dm(self, user: WorkspaceUser) -> SlackConversation | None:
        """Return the DM of a user and the bot; None if it was never opened."""
        return next((channel for channel in self.channels.values() if channel.user == user.id), None)

    def open_dm(self, user: WorkspaceUser) -> SlackConversation:
        """Return the DM of a user and the bot; create it if it does not exist."""
        members = {user.id, self.bot.id}
        return self.find_dm(user) or self.register(
            SlackConversation(create_id("D"), user.name, user=user.id, members=members)
        )

    def register(self, channel: SlackConversation) -> SlackConversation:
        self.channels[channel.id] = channel
        self._messages[channel.id] = {}
        return channel

    # Messages

    def create_ts(self) -> str:
        """Return a new timestamp (`SECONDS.MICROSECONDS`), unique in the workspace.

        The timestamp of a message is its id in its channel.
        """
        self._last_ts = max(self._last_ts + 1, int(time() * 1_000_000))
        return f"{self._last_ts // 1_000_000}.{self._last_ts % 1_000_000:06d}"

    def find_message(self, channel: SlackConversation, ts: str) -> SlackMessage | None:
        """Return a message by its timestamp.

        It is None if the message does not exist, is deleted or ephemeral.
        """
        message = self._messages[channel.id].get(ts)
        return None if message is None or message.deleted or message.ephemeral_to else message

    def messages(self, channel: SlackConversation) -> list[SlackMessage]:
        """Return all messages of a channel, oldest first.

        Thread replies, ephemeral messages and deleted messages are included.
        """
        return list(self._messages[channel.id].values())

    def latest_messages(self, count: int) -> list[SlackMessage]:
        """Return the newest `count` messages of the workspace, oldest first.

        Ephemeral and deleted messages are included.

        Args:
            count: at least 1.
        """
        return sorted(self.all_messages(), key=lambda message: message.ts)[-count:]

    def all_messages(self) -> Iterator[SlackMessage]:
        """Yield all messages of the workspace, with ephemeral and deleted ones.

        The order is channel by channel, the oldest message of each first.
        """
        return (message for messages in self._messages.values() for message in messages.values())

    def clear_messages(self) -> None:
        """Remove all messages without an event."""
        for messages in self._messages.values():
            messages.clear()

    def find_file_messages(self, file_id: str) -> list[SlackMessage]:
        """Return the messages that contain a file, with ephemeral but no deleted ones.

        They are ordered as in `all_messages`; the list is empty for an unknown id.
        """
        return [
            message
            for message in self.all_messages()
            if not message.deleted and any(file.id == file_id for file in message.files)
        ]

    def thread_messages(self, channel: SlackConversation, thread_ts: str) -> list[SlackMessage]:
        """Return the root and the replies of a thread, oldest first; [] if it is unknown.

        Deleted and ephemeral messages are left out; a tombstone is included.
        """
        return [
            message
            for message in self.messages(channel)
            if thread_ts in (message.ts, message.thread_ts) and self.find_message(channel, message.ts)
        ]

    def post_message(
        self,
        channel: SlackConversation,
        content: SlackContent,
        *,
        ephemeral_to: str | None = None,
        **details: Any,
    ) -> SlackMessage:
        """Add a message with a new timestamp to a channel, publish it, and return it.

        Subscribed apps receive its events, unless the message is ephemeral. Nothing is checked: neither the author's
        membership nor `thread_ts`.

        Args:
            ephemeral_to: the id of the only user who sees the message; None for everybody.
            details: further fields of `SlackMessage`, such as `user` and `thread_ts`.
        """
        message = self.add_message(channel, content, ts=self.create_ts(), ephemeral_to=ephemeral_to, **details)
        self._on_change(WorkspaceChange("ephemeral" if ephemeral_to else "posted", message))
        return message

    def add_message(self, channel: SlackConversation, content: SlackContent, **details: Any) -> SlackMessage:
        """Add a message to a channel without an event, and return it.

        Args:
            details: further fields of `SlackMessage`, with its `ts`.
        """
        versions = [self._create_version(content)]
        message = SlackMessage(channel=channel, content=content, versions=versions, **details)
        self._messages[channel.id][message.ts] = message
        return message

    def update_message(self, message: SlackMessage, content: SlackContent, *, edited: bool | None) -> None:
        """Replace the content of a message, and publish the change.

        The former content stays in its versions. Subscribed apps receive `message_changed`, unless the
        message is ephemeral.

        Args:
            edited: whether users see "(edited)"; False removes it, None changes nothing about it.
        """
        message.content = content
        message.versions.append(self._create_version(content))
        if edited is not None:
            message.edited = edited
            message.edited_ts = self.create_ts() if edited else None
        self._on_change(WorkspaceChange("updated", message))

    def update_stream(self, message: SlackMessage, content: SlackContent) -> None:
        """Replace the content of a message while its stream is live.

        The former content stays in its versions. The change is published, but apps receive no event. The caller checks
        that the stream is live.
        """
        message.content = content
        message.versions.append(self._create_version(content))
        self._on_change(WorkspaceChange("streamed", message))

    def delete_message(self, message: SlackMessage) -> None:
        """Delete a message, and publish the change.

        A message with thread replies becomes a tombstone ("This message was deleted."), as in Slack.
        """
        if (
            len(self.thread_messages(message.channel, message.ts)) > 1
            and not message.is_thread_reply
            and message.ephemeral_to is None
        ):
            message.is_tombstone = True
            message.user, message.subtype, message.files = SLACKBOT, "tombstone", ()
            return self.update_message(message, SlackContent("This message was deleted."), edited=False)
        message.deleted = True
        return self._on_change(WorkspaceChange("deleted", message))

    def add_reaction(self, message: SlackMessage, user: str, reaction: str) -> bool:
        """Add a user's reaction to a message, and publish the change.

        Args:
            user: the id of the user.
            reaction: the emoji's name.

        Returns:
            False if the reaction exists already, and nothing changes; True otherwise.
        """
        users = message.reactions.setdefault(reaction, [])
        if user in users:
            return False
        users.append(user)
        self._on_change(WorkspaceChange("reaction_added", message, user, reaction))
        return True

    def remove_reaction(self, message: SlackMessage, user: str, reaction: str) -> bool:
        """Remove a user's reaction from a message, and publish the change.

        Args:
            user: the id of the user.
            reaction: the emoji's name.

        Returns:
            False if there is no such reaction, and nothing changes; True otherwise.
        """
        users = message.reactions.get(reaction, [])
        if user not in users:
            return False
        users.remove(user)
        if not users:
            del message.reactions[reaction]
        self._on_change(WorkspaceChange("reaction_removed", message, user, reaction))
        return True

    def pinned_messages(self, channel: SlackConversation) -> list[SlackMessage]:
        """Return the pinned messages of a channel, the newest pin first.

        Deleted messages are left out.
        """
        pinned = [message for message in self.messages(channel) if message.pinned_by and not message.deleted]
        return sorted(pinned, key=lambda message: message.pinned_at, reverse=True)

    def set_pin(self, message: SlackMessage, user: str, *, is_pinned: bool) -> None:
        """Pin a message to its channel, or unpin it, and publish the change.

        A new pin of a pinned message replaces its user and time. Unpinning a message without a pin is published, too.

        Args:
            user: the id of the user who does it.
            is_pinned: True to pin the message, False to unpin it.
        """
        message.pinned_by, message.pinned_at = (user, int(time())) if is_pinned else (None, 0)
        self._on_change(WorkspaceChange("pinned" if is_pinned else "unpinned", message, user))

    def join_channel(self, channel: SlackConversation, user: str, *, inviter: str | None = None) -> None:
        """Add a user to a channel, and post Slack's message about it.

        The message is posted for a user who is a member already, too.

        Args:
            user: the id of the user.
            inviter: the id of the user who invited them; None for nobody. It is only a field of the message and its
                events; the inviter need not be a member.
        """
        channel.members.add(user)
        text = f"<@{user}> has joined the channel"
        self.post_message(channel, SlackContent(text), user=user, subtype="channel_join", inviter=inviter)

    def leave_channel(self, channel: SlackConversation, user: str) -> None:
        """Remove a user from a channel, and post Slack's message about it.

        The message is posted for a user who is not a member, too.

        Args:
            user: the id of the user.
        """
        channel.members.discard(user)
        self.post_message(channel, SlackContent(f"<@{user}> has left the channel"), user=user, subtype="channel_leave")

    def _create_version(self, content: SlackContent) -> SlackMessageVersion:
        names = {user.id: user.name for user in self.users.values()}
        names |= {channel.id: channel.name for channel in self.channels.values()}
        return SlackMessageVersion(render_text(content, names), find_pings(content, names), monotonic(), content)
