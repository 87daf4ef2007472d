"""Data of a Discord server: users, channels and messages.

It is independent of HTTP and the gateway.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from time import monotonic
from typing import Any

from chatrig.discord.state.integrations import GuildIntegrations
from chatrig.discord.state.mentions import MessageMentions, parse_mentions, replace_ids
from chatrig.discord.state.messages import (
    DEFAULT,
    HAS_SNAPSHOT,
    HAS_THREAD,
    PIN,
    REPLY,
    THREAD_STARTER,
    ChannelKind,
    DiscordContent,
    DiscordMessage,
    DiscordMessageVersion,
    DiscordUser,
    GuildChange,
    GuildChannel,
    GuildEvent,
    GuildEventName,
)
from chatrig.discord.state.roles import Roles
from chatrig.discord.state.snowflakes import create_id


class Guild:
    """Data of a Discord server, with methods that change it.

    Args:
        on_change: called after a message is posted, changed or deleted, or a reaction is added or removed.
        on_event: called for each other gateway event. The methods that add users, channels and DMs do not call it.
        bot_name: the name of the app and its bot.

    Attributes:
        emit: `on_event`.
        roles: the roles in the server and their users; it also has the ids of users who left the server.
        nicknames: names in this server by user id.
        owner: the first user; None without users.
        locale: the language of the server.
        locales: the languages of users by id.
        denied_permissions: names of permissions that users lack, by user id.
    """

    def __init__(
        self, on_change: Callable[[GuildChange], None], on_event: Callable[[GuildEvent], None], *, bot_name: str
    ) -> None:
        self._on_change = on_change
        self.emit = on_event
        #: Discord: the role `@everyone` has the server's id.
        self.id = create_id()
        self.bot = DiscordUser(create_id(), bot_name.lower().replace(" ", "_"), bot_name, is_bot=True)
        #: Discord: a bot has a role of its own with the bot's name.
        self.bot_role_id = create_id()
        self.users: dict[str, DiscordUser] = {self.bot.id: self.bot}
        self.roles = Roles(create_id)
        self.channels: dict[str, GuildChannel] = {}
        self.integrations = GuildIntegrations()
        self.nicknames: dict[str, str] = {}
        self.owner: DiscordUser | None = None
        self.locale = "en-US"
        self.locales: dict[str, str] = {}
        self.denied_permissions: dict[str, set[str]] = {}
        self._messages: dict[str, dict[str, DiscordMessage]] = {}

    # Users and channels

    def list_members(self) -> list[DiscordUser]:
        """Return the members of the server, ordered by their ids.

        The bot is one of them. Users who left are not, nor is a removed bot.
        """
        members = (user for user in self.users.values() if user.id not in self.roles.absent_user_ids)
        return sorted(members, key=lambda user: int(user.id))

    @property
    def has_bot(self) -> bool:
        """True until the bot is removed from the server."""
        return self.bot.id not in self.roles.absent_user_ids

    def is_visible(self, channel: GuildChannel, user_id: str) -> bool:
        """Return whether a user can see a channel or thread.

        Users who left the server, and a removed bot, see none of its channels: see also `GuildChannel.is_visible_to`.
        """
        is_absent = channel.is_in_guild and user_id in self.roles.absent_user_ids
        return channel.is_visible_to(user_id) and not is_absent

    def set_nickname(self, user: DiscordUser, nickname: str | None) -> None:
        """Set or remove the name of a user in this server; `GUILD_MEMBER_UPDATE` is sent.

        Args:
            nickname: the name; None or empty to remove it.
        """
        self.nicknames.pop(user.id, None)
        if nickname:
            self.nicknames[user.id] = nickname
        self.emit(GuildEvent("GUILD_MEMBER_UPDATE", user=user))

    def add_user(self, name: str, display_name: str, *, is_bot: bool = False) -> DiscordUser:
        if any(user.name == name for user in self.users.values()):
            raise ValueError(f"there is a user named {name} already")
        user = DiscordUser(create_id(), name, display_name, is_bot)
        self.users[user.id] = user
        self.owner = self.owner or user
        return user

    def add_channel(self, name: str, kind: ChannelKind, members: Iterable[str] | None) -> GuildChannel:
        if any(c.name == name and c.kind in ("text", "forum") for c in self.channels.values()):
            raise ValueError(f"there is a channel named {name} already")
        return self.register(GuildChannel(create_id(), name, kind, members=None if members is None else set(members)))

    def add_group_dm(self, name: str, users: Iterable[DiscordUser]) -> GuildChannel:
        """Add a group DM of some users, and return it."""
        return self.register(GuildChannel(create_id(), name, "group", members={user.id for user in users}))

    def add_foreign_channel(self, name: str, users: Iterable[DiscordUser]) -> GuildChannel:
        """Add a channel of another server with some users, and return it.

        The bot is not in the channel.
        """
        return self.register(
            GuildChannel(create_id(), name, "text", members={user.id for user in users}, foreign_guild_id=create_id())
        )

    def open_dm(self, user: DiscordUser) -> GuildChannel:
        """Return the DM of a user and the bot; create it if it does not exist."""
        found = next((channel for channel in self.channels.values() if channel.dm_user == user), None)
        return found or self.register(
            GuildChannel(create_id(), user.name, "dm", members={user.id, self.bot.id}, dm_user=user),
        )

    def start_thread(
        self,
        parent: GuildChannel,
        name: str,
        owner: DiscordUser,
        *,
        first_message: DiscordMessage | None = None,
        member_ids: Sequence[str] = (),
        auto_archive_minutes: int = 1440,
        applied_tags: Sequence[str] = (),
    ) -> GuildChannel:
        """Start a thread in a channel, publish its events, and return it.

        Args:
            first_message: the message from which the thread starts and whose id it has. Discord's system message about
                it is posted in the thread. None for a thread without one.
            member_ids: further members of a private thread; without any, the thread is public.
            applied_tags: the ids of the tags of a forum post.
        """
        thread = GuildChannel(
            first_message.id if first_message else create_id(),
            name,
            "thread",
            parent=parent,
            owner_id=owner.id,
            thread_members={owner.id: datetime.now(UTC)},
            is_private=bool(member_ids),
            auto_archive_minutes=auto_archive_minutes,
            applied_tags=applied_tags,
        )
        self.register(thread)
        self.emit(GuildEvent("THREAD_CREATE", thread))
        if owner.id in self.users:
            self.emit(GuildEvent("THREAD_MEMBERS_UPDATE", thread, added_ids=[owner.id]))
        self.add_thread_members(thread, *member_ids)
        if first_message is not None:
            first_message.thread = thread
            first_message.flags |= HAS_THREAD
            self._on_change(GuildChange("updated", first_message))
            self.post_message(
                thread, first_message.author, DiscordContent(), type=THREAD_STARTER, reply_to=first_message
            )
        return thread

    def set_archived(self, thread: GuildChannel, archived: bool) -> bool:
        """Archive or reopen a thread without an event.

        Returns:
            True if the thread was archived and is reopened; False otherwise.
        """
        if thread.archived == archived:
            return False
        thread.archived, thread.archived_at = archived, datetime.now(UTC)
        return not archived

    def publish_thread(self, thread: GuildChannel, *, is_reopened: bool = False) -> None:
        """Publish `THREAD_UPDATE` for a changed thread.

        Discord: the bot also receives its own member if it is in a reopened thread (docs.discord.com/developers/topics/
        threads, "Unarchiving a Thread").

        Args:
            is_reopened: whether the change reopened the thread.
        """
        self.emit(GuildEvent("THREAD_UPDATE", thread))
        if is_reopened and self.bot.id in thread.thread_members:
            self.emit(GuildEvent("THREAD_MEMBER_UPDATE", thread, self.bot))

    def add_thread_members(self, thread: GuildChannel, *user_ids: str) -> None:
        """Add users to a thread, and publish one event about all of them.

        Users who joined already are skipped; without new ones, no event is published. Discord: an added bot also
        receives the thread itself.
        """
        added = [user_id for user_id in dict.fromkeys(user_ids) if user_id not in thread.thread_members]
        thread.thread_members |= dict.fromkeys(added, datetime.now(UTC))
        if added:
            self.emit(GuildEvent("THREAD_MEMBERS_UPDATE", thread, added_ids=added))
        if self.bot.id in added:
            self.emit(GuildEvent("THREAD_CREATE", thread, self.bot))

    def remove_thread_member(self, thread: GuildChannel, user_id: str) -> None:
        if user_id in thread.thread_members:
            self.emit(GuildEvent("THREAD_MEMBERS_UPDATE", thread, removed_ids=[user_id]))
            del thread.thread_members[user_id]

    def list_active_threads(self) -> list[GuildChannel]:
        """Return all threads that are not archived, also private ones."""
        return [channel for channel in self.channels.values() if channel.is_thread and not channel.archived]

    def remove_channel(self, channel: GuildChannel) -> None:
        """Delete a channel with its messages and threads, or a thread; publish the events.

        Its webhooks and invites are removed, too.
        """
        threads = [thread for thread in self.channels.values() if thread.parent is channel]
        self.integrations.remove_channel(channel.id)
        for removed_channel in [channel, *threads]:
            del self.channels[removed_channel.id]
            for message in self._messages[removed_channel.id].values():
                message.deleted = True
        for messages in self._messages.values():
            for message in messages.values():
                if message.thread is channel:
                    message.thread = None
                    message.flags &= ~HAS_THREAD
        for place in [*threads, channel]:
            self.emit(GuildEvent("THREAD_DELETE" if place.is_thread else "CHANNEL_DELETE", place))

    def register(self, channel: GuildChannel) -> GuildChannel:
        self.channels[channel.id] = channel
        self._messages[channel.id] = {}
        return channel

    # Messages

    def find_message(self, channel: GuildChannel, message_id: str) -> DiscordMessage | None:
        """Return a message of a channel by its id.

        It is None if the message does not exist, is deleted or ephemeral.
        """
        message = self._messages[channel.id].get(message_id)
        return None if message is None or message.deleted or message.ephemeral_to else message

    def list_messages(self, channel: GuildChannel) -> list[DiscordMessage]:
        """Return all messages of a channel, oldest first, with deleted ones."""
        return list(self._messages[channel.id].values())

    def latest_messages(self, number: int) -> list[DiscordMessage]:
        """Return the newest `number` messages of all channels, oldest first.

        DMs, and deleted and ephemeral messages, are included.

        Args:
            number: at least 1.
        """
        return sorted(self.all_messages(), key=lambda message: int(message.id))[-number:]

    def all_messages(self) -> Iterator[DiscordMessage]:
        """Yield all messages, with ephemeral and deleted ones, channel by channel."""
        return (message for messages in self._messages.values() for message in messages.values())

    def clear_messages(self) -> None:
        """Remove all messages without an event."""
        for messages in self._messages.values():
            messages.clear()

    def post_message(
        self, channel: GuildChannel, author: DiscordUser, content: DiscordContent, **details: Any
    ) -> DiscordMessage:
        """Add a message to a channel, publish it, and return it.

        An archived thread is reopened. The author and the pinged users join a thread, unless the message is ephemeral
        or of a webhook.

        Args:
            details: further fields of `DiscordMessage`; the first message of a forum post has the post's id as `id`.
        """
        message = self.add_message(channel, author, content, **{"id": create_id(), **details})
        self._add_thread_members(message)
        is_reopened = self.set_archived(channel, False)
        self._on_change(GuildChange("ephemeral" if message.ephemeral_to else "posted", message))
        if is_reopened:
            # Discord does not document the order. A message before its thread is the harder case.
            self.publish_thread(channel, is_reopened=True)
        return message

    def add_message(
        self, channel: GuildChannel, author: DiscordUser, content: DiscordContent, **details: Any
    ) -> DiscordMessage:
        """Add a message to a channel without an event, and return it.

        Args:
            details: further fields of `DiscordMessage`, with its `id`.
        """
        mentions = self._parse_mentions(content, details.get("reply_to"), details.get("type", DEFAULT))
        message = DiscordMessage(
            channel=channel,
            author=author,
            content=content,
            mentions=mentions,
            versions=[self._create_version(content, mentions)],
            **details,
        )
        self._messages[channel.id][message.id] = message
        return message

    def _add_thread_members(self, message: DiscordMessage) -> None:
        """Add the author and the mentioned users of a message to its thread.

        Outside of a thread, and for a message that is ephemeral or of a webhook, nobody is added. Discord: posting in a
        thread and being mentioned in it both add a user. The order of the events is not documented; a mention in a
        private thread must come after the thread.
        """
        channel, is_shown = message.channel, message.ephemeral_to is None and message.webhook_id is None
        if channel.is_thread and is_shown:
            users = (message.author.id, *message.mentions.users)
            self.add_thread_members(channel, *(user for user in users if user not in self.roles.absent_user_ids))

    def forward_message(self, message: DiscordMessage, channel: GuildChannel, author: DiscordUser) -> DiscordMessage:
        """Post a message that forwards another message, and return it.

        It has a copy of the other message, so later changes of that message do not show. Discord nests no copies: the
        forward of a forward has the copy of the first message.

        Args:
            message: the message to forward.
            channel: the channel of the new message.
            author: the author of the new message.
        """
        original = message.forwarded_message or message
        snapshot = replace(original, reactions={}, versions=list(original.versions))
        return self.post_message(channel, author, DiscordContent(), forwarded_message=snapshot, flags=HAS_SNAPSHOT)

    def update_message(self, message: DiscordMessage, content: DiscordContent, *, edited: bool = True) -> None:
        """Replace the content of a message, and publish the change.

        `versions` gets a new entry, also if the text is the same.

        Args:
            edited: whether users see "(edited)"; False changes nothing about it.
        """
        message.content = content
        message.mentions = self._parse_mentions(content, message.reply_to, message.type)
        message.versions.append(self._create_version(content, message.mentions))
        if edited:
            message.edited_at = datetime.now(UTC)
        self._on_change(GuildChange("updated", message))

    def delete_message(self, message: DiscordMessage) -> None:
        message.deleted = True
        self._on_change(GuildChange("deleted", message))

    def delete_messages(self, messages: Sequence[DiscordMessage]) -> None:
        """Delete messages of one channel, and publish one event, or none for no message."""
        for message in messages:
            message.deleted = True
        if messages:
            self.emit(GuildEvent("MESSAGE_DELETE_BULK", messages[0].channel, messages=messages))

    def publish_update(self, message: DiscordMessage) -> None:
        """Publish `MESSAGE_UPDATE` for a message whose text has not changed.

        For example, a thread was started on it.
        """
        self._on_change(GuildChange("updated", message))

    def pin_message(self, message: DiscordMessage, user: DiscordUser) -> DiscordMessage:
        """Pin a message, publish the change, and return Discord's system message.

        The system message is posted in the channel with `user` as its author, also if the message was pinned already.
        """
        message.pinned_at = message.channel.last_pinned_at = datetime.now(UTC)
        self.publish_update(message)
        self.emit(GuildEvent("CHANNEL_PINS_UPDATE", message.channel))
        return self.post_message(message.channel, user, DiscordContent(), type=PIN, reply_to=message)

    def unpin_message(self, message: DiscordMessage) -> None:
        message.pinned_at = None
        self.publish_update(message)
        self.emit(GuildEvent("CHANNEL_PINS_UPDATE", message.channel))

    def list_pins(self, channel: GuildChannel) -> list[DiscordMessage]:
        """Return the pinned messages of a channel, the last pinned first."""
        pins = [(m.pinned_at, m) for m in self.list_messages(channel) if m.pinned_at is not None and not m.deleted]
        return [message for _, message in sorted(pins, key=lambda pin: pin[0], reverse=True)]

    def add_reaction(self, message: DiscordMessage, user: DiscordUser, emoji: str) -> None:
        users = message.reactions.setdefault(emoji, [])
        if user.id not in users:
            users.append(user.id)
            self._on_change(GuildChange("reaction_added", message, user.id, emoji))

    def remove_reaction(self, message: DiscordMessage, user: DiscordUser, emoji: str) -> bool:
        """Remove a user's reaction from a message, and publish the change.

        Returns:
            Whether the reaction existed; otherwise nothing is published.
        """
        users = message.reactions.get(emoji, [])
        if user.id not in users:
            return False
        users.remove(user.id)
        if not users:
            del message.reactions[emoji]
        self._on_change(GuildChange("reaction_removed", message, user.id, emoji))
        return True

    def clear_reactions(self, message: DiscordMessage, emoji: str | None = None) -> None:
        """Remove the reactions of a message, and publish one event about it.

        Args:
            emoji: remove only the reactions with this emoji, without an event if there are none. None removes all; then
                there is always an event.
        """
        if emoji is None:
            message.reactions.clear()
            self.emit(GuildEvent("MESSAGE_REACTION_REMOVE_ALL", message.channel, messages=[message]))
        elif message.reactions.pop(emoji, None):
            event = GuildEvent("MESSAGE_REACTION_REMOVE_EMOJI", message.channel, messages=[message], subject=emoji)
            self.emit(event)

    def set_vote(self, message: DiscordMessage, user: DiscordUser, answer: int, *, voted: bool) -> None:
        """Add or remove a user's vote for an answer of a message's poll.

        An event is published if the vote has changed. Votes for other answers stay.

        Args:
            answer: the number of the answer, from 1.
            voted: whether to add the vote.
        """
        votes = message.poll_votes.setdefault(answer, [])
        if voted == (user.id in votes):
            return
        if voted:
            votes.append(user.id)
        else:
            votes.remove(user.id)
        name: GuildEventName = "MESSAGE_POLL_VOTE_ADD" if voted else "MESSAGE_POLL_VOTE_REMOVE"
        self.emit(GuildEvent(name, message.channel, user, [message], str(answer)))

    def _parse_mentions(self, content: DiscordContent, reply_to: DiscordMessage | None, type_: int) -> MessageMentions:
        author = reply_to.author.id if reply_to and type_ == REPLY else None
        return parse_mentions(content.text, content.allowed_mentions, self.users, reply_to=author)

    def _create_version(self, content: DiscordContent, mentions: MessageMentions) -> DiscordMessageVersion:
        names = {user.id: user.display_name for user in self.users.values()} | {self.bot_role_id: self.bot.display_name}
        names |= {channel.id: channel.name for channel in self.channels.values()}
        return DiscordMessageVersion(replace_ids(content.text, names), mentions.pings, monotonic())
