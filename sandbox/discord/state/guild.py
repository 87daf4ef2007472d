"""State of a Discord server: users, channels and messages.

It is independent of HTTP and the gateway.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from time import monotonic
from typing import Any, Literal

from sandbox.discord.state.mentions import MessageMentions, parse_mentions, replace_ids
from sandbox.discord.state.roles import Roles
from sandbox.discord.state.snowflakes import create_id

ChangeKind = Literal["posted", "updated", "deleted", "ephemeral", "reaction_added", "reaction_removed"]
ChannelKind = Literal["text", "forum", "thread", "dm", "group"]

# Message types and flags: docs.discord.com/developers/resources/message.
DEFAULT, PIN, JOIN, REPLY, CHAT_COMMAND, THREAD_STARTER, MENU_COMMAND = 0, 6, 7, 19, 20, 21, 23
HAS_THREAD, EPHEMERAL, LOADING = 1 << 5, 1 << 6, 1 << 7


@dataclass(frozen=True, slots=True)
class DiscordUser:
    id: str
    name: str
    display_name: str
    is_bot: bool = False


@dataclass(eq=False, slots=True)
class GuildChannel:
    """Text channel, forum, thread (or forum post), DM or group DM.

    Attributes:
        members: the ids of the users who can see it; None for all users.
        foreign_guild_id: the id of its server, if that is one without the bot.
        parent: the channel of a thread; None for others.
        dm_user: the user of a DM with the bot; None for others.
        owner_id: the id of the user who started a thread.
        participants: the ids of the users who joined a thread.
        category_id: the id of its category; None without one.
        is_private: whether only its participants see a thread.
        archived, locked: states of a thread; a message reopens an archived one unless it is locked.
    """

    id: str
    name: str
    kind: ChannelKind
    members: set[str] | None = None
    foreign_guild_id: str | None = None
    parent: "GuildChannel | None" = None
    dm_user: DiscordUser | None = None
    owner_id: str | None = None
    participants: set[str] = field(default_factory=set)
    category_id: str | None = None
    is_private: bool = False
    archived: bool = False
    locked: bool = False
    auto_archive_minutes: int = 1440
    created_at: datetime = field(default_factory=lambda: datetime.now(UTC))

    @property
    def is_dm(self) -> bool:
        return self.kind == "dm"

    @property
    def is_thread(self) -> bool:
        return self.kind == "thread"

    @property
    def is_in_guild(self) -> bool:
        """True for a channel or thread of the sandbox's server."""
        return self.kind in ("text", "forum", "thread") and self.foreign_guild_id is None

    @property
    def has_bot_access(self) -> bool:
        """True where the bot can be; elsewhere users use it as their installed app."""
        return self.kind != "group" and self.foreign_guild_id is None

    @property
    def interaction_context(self) -> int:
        """Discord's context of an interaction there: 0 server, 1 DM with the bot, 2 other DMs."""
        return {"dm": 1, "group": 2}.get(self.kind, 0)

    def is_visible_to(self, user_id: str) -> bool:
        """Return whether the user with this id can see it: is a member of the channel and of a private thread."""
        place = self.parent or self
        is_participant = not self.is_private or user_id in self.participants
        return is_participant and (place.members is None or user_id in place.members)


@dataclass(frozen=True, slots=True)
class DiscordAttachment:
    id: str
    name: str
    data: bytes
    content_type: str | None = None
    description: str | None = None


@dataclass(frozen=True, slots=True)
class DiscordMessageVersion:
    """Version of a message's text.

    Attributes:
        text: the text with names in place of ids.
        pings: ids of the pinged users and roles, `everyone` and `here`.
        at: monotonic time in seconds.
    """

    text: str
    pings: frozenset[str]
    at: float


@dataclass(frozen=True, slots=True)
class DiscordContent:
    """Content of a message as it was sent.

    Attributes:
        allowed_mentions: the request's object; None if omitted, so that all mentions ping.
        stickers: names of stickers.
        poll: a question and its answers; empty for no poll.
    """

    text: str = ""
    embeds: Sequence[Mapping[str, Any]] = ()
    components: Sequence[Mapping[str, Any]] = ()
    attachments: Sequence[DiscordAttachment] = ()
    allowed_mentions: Mapping[str, Any] | None = None
    stickers: Sequence[str] = ()
    poll: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class MessageOrigin:
    """Interaction that a message responds to.

    Attributes:
        target_message: the message whose menu contains the command.
        component_message: the message whose button or menu was used.
        modal_opener: the interaction that opened the submitted modal.
    """

    interaction_id: str
    type: int
    user: DiscordUser
    target_message: "DiscordMessage | None" = None
    component_message: "DiscordMessage | None" = None
    modal_opener: "MessageOrigin | None" = None


@dataclass(eq=False, slots=True)
class DiscordMessage:
    """Message in its current state.

    Attributes:
        content: the content as last sent.
        mentions: the users and roles that the current text pings.
        versions: each text of the message, oldest first.
        reply_to: the message that it replies to.
        forwarded_message: the message that it forwards.
        ephemeral_to: the only user who sees it; None for a message to all.
        origin: the interaction that it responds to; None for others.
        webhook_id: the id of the webhook or application that posted it; None for others.
        thread: the thread that was started from it.
        reactions: user ids by emoji.
    """

    id: str
    channel: GuildChannel
    author: DiscordUser
    content: DiscordContent
    mentions: MessageMentions
    versions: list[DiscordMessageVersion]
    type: int = DEFAULT
    flags: int = 0
    nonce: str | int | None = None
    reply_to: "DiscordMessage | None" = None
    forwarded_message: "DiscordMessage | None" = None
    ephemeral_to: DiscordUser | None = None
    origin: MessageOrigin | None = None
    webhook_id: str | None = None
    thread: GuildChannel | None = None
    pinned: bool = False
    deleted: bool = False
    edited_at: datetime | None = None
    posted_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    reactions: dict[str, list[str]] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The current text, with names in place of ids."""
        return self.versions[-1].text

    @property
    def buttons(self) -> dict[str, str]:
        """Custom ids of the buttons by label."""
        components = [part for row in self.content.components for part in (row, *row.get("components", ()))]
        return {part["label"]: part["custom_id"] for part in components if part.get("label") and "custom_id" in part}

    @property
    def pings(self) -> frozenset[str]:
        """Ids of users and roles, `everyone` and `here` that any version of the text pings."""
        return frozenset[str]().union(*(version.pings for version in self.versions))

    @property
    def edited(self) -> bool:
        return self.edited_at is not None

    @property
    def loading(self) -> bool:
        """True while it shows "... is thinking" for a deferred response."""
        return bool(self.flags & LOADING)


@dataclass(frozen=True, slots=True)
class GuildChange:
    """Visible change of a message.

    Attributes:
        message: the message in its new state.
        user_id: the id of the user of a reaction; None for other changes.
        emoji: the emoji of a reaction; None for other changes.
    """

    kind: ChangeKind
    message: DiscordMessage
    user_id: str | None = None
    emoji: str | None = None


class Guild:
    """State of a server.

    Args:
        on_change: called after each change of a message.
        on_thread: called with each new thread.
        on_reopen: called with a thread that a message has reopened.

    Attributes:
        roles: the roles of users, and the users who left.
        owner: the first user.
        locale: the language of the server.
        locales: the languages of users by id.
        denied_permissions: names of permissions that users lack, by user id.
    """

    def __init__(
        self,
        on_change: Callable[[GuildChange], None],
        on_thread: Callable[[GuildChannel], None],
        on_reopen: Callable[[GuildChannel], None],
    ) -> None:
        self._on_change = on_change
        self._on_reopen = on_reopen
        self._on_thread = on_thread
        self.id = create_id()
        self.bot = DiscordUser(create_id(), "parley", "Parley", is_bot=True)
        #: Discord: a bot has a role of its own with the bot's name.
        self.bot_role_id = create_id()
        #: Discord: the role with the server's id is `@everyone`.
        self.users: dict[str, DiscordUser] = {self.bot.id: self.bot}
        self.roles = Roles(create_id)
        self.channels: dict[str, GuildChannel] = {}
        self.owner: DiscordUser | None = None
        #: The server's language; languages and denied permissions of users, by user id.
        self.locale = "en-US"
        self.locales: dict[str, str] = {}
        self.denied_permissions: dict[str, set[str]] = {}
        self._messages: dict[str, dict[str, DiscordMessage]] = {}

    # Users and channels

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
        return self._add(GuildChannel(create_id(), name, kind, members=None if members is None else set(members)))

    def add_group_dm(self, name: str, users: Iterable[DiscordUser]) -> GuildChannel:
        """Add a group DM of these users."""
        return self._add(GuildChannel(create_id(), name, "group", members={user.id for user in users}))

    def add_foreign_channel(self, name: str, users: Iterable[DiscordUser]) -> GuildChannel:
        """Add a channel of another server with these users, without the bot."""
        return self._add(
            GuildChannel(create_id(), name, "text", members={user.id for user in users}, foreign_guild_id=create_id())
        )

    def open_dm(self, user: DiscordUser) -> GuildChannel:
        """Return the DM between a user and the bot; it is created if it does not exist."""
        found = next((channel for channel in self.channels.values() if channel.dm_user == user), None)
        return found or self._add(
            GuildChannel(create_id(), user.name, "dm", members={user.id, self.bot.id}, dm_user=user),
        )

    def start_thread(
        self,
        parent: GuildChannel,
        name: str,
        owner: DiscordUser,
        *,
        first_message: DiscordMessage | None = None,
        guest_ids: Sequence[str] = (),
        auto_archive_minutes: int = 1440,
    ) -> GuildChannel:
        """Start a thread in a channel, and return it.

        Args:
            first_message: the message that the thread starts from, whose id it gets; None for a thread without one.
            guest_ids: further participants of a private thread; without any, the thread is public.
        """
        thread = GuildChannel(
            first_message.id if first_message else create_id(),
            name,
            "thread",
            parent=parent,
            owner_id=owner.id,
            participants={owner.id, *guest_ids},
            is_private=bool(guest_ids),
            auto_archive_minutes=auto_archive_minutes,
        )
        self._add(thread)
        self._on_thread(thread)
        if first_message is not None:
            first_message.thread = thread
            first_message.flags |= HAS_THREAD
            self._on_change(GuildChange("updated", first_message))
            self.post_message(
                thread, first_message.author, DiscordContent(), type=THREAD_STARTER, reply_to=first_message
            )
        return thread

    def list_active_threads(self) -> list[GuildChannel]:
        """Return all threads that are not archived."""
        return [channel for channel in self.channels.values() if channel.is_thread and not channel.archived]

    def remove_channel(self, channel: GuildChannel) -> None:
        """Delete a channel with its messages and threads."""
        for removed_channel in [channel, *(thread for thread in self.channels.values() if thread.parent is channel)]:
            del self.channels[removed_channel.id]
            for message in self._messages[removed_channel.id].values():
                message.deleted = True
        for messages in self._messages.values():
            for message in messages.values():
                if message.thread is channel:
                    message.thread = None
                    message.flags &= ~HAS_THREAD

    def _add(self, channel: GuildChannel) -> GuildChannel:
        self.channels[channel.id] = channel
        self._messages[channel.id] = {}
        return channel

    # Messages

    def find_message(self, channel: GuildChannel, message_id: str) -> DiscordMessage | None:
        """Return a message; None if it does not exist, is deleted or ephemeral."""
        message = self._messages[channel.id].get(message_id)
        return None if message is None or message.deleted or message.ephemeral_to else message

    def list_messages(self, channel: GuildChannel) -> list[DiscordMessage]:
        """Return all messages of a channel, oldest first, deleted ones included."""
        return list(self._messages[channel.id].values())

    def latest_messages(self, number: int) -> list[DiscordMessage]:
        """Return the newest `number` messages of the server, oldest first."""
        everything = (message for messages in self._messages.values() for message in messages.values())
        return sorted(everything, key=lambda message: int(message.id))[-number:]

    def post_message(
        self, channel: GuildChannel, author: DiscordUser, content: DiscordContent, **details: Any
    ) -> DiscordMessage:
        """Post a message.

        Args:
            details: further fields of `DiscordMessage`; the first message of a forum post has the post's id as `id`.
        """
        details.setdefault("id", create_id())
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
        if channel.is_thread:
            channel.participants.add(author.id)
        is_reopened, channel.archived = channel.archived, False
        self._on_change(GuildChange("ephemeral" if message.ephemeral_to else "posted", message))
        if is_reopened:
            # Discord does not document the order. A message of a thread that a client does not know yet is harder.
            self._on_reopen(channel)
        return message

    def update_message(self, message: DiscordMessage, content: DiscordContent, *, edited: bool = True) -> None:
        """Replace the content of a message.

        Args:
            edited: whether users see "(edited)".
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

    def delete_messages(self, messages: Iterable[DiscordMessage]) -> None:
        """Delete messages without a change for each (see `dispatch_bulk_delete`)."""
        for message in messages:
            message.deleted = True

    def add_reaction(self, message: DiscordMessage, user: DiscordUser, emoji: str) -> None:
        users = message.reactions.setdefault(emoji, [])
        if user.id not in users:
            users.append(user.id)
            self._on_change(GuildChange("reaction_added", message, user.id, emoji))

    def remove_reaction(self, message: DiscordMessage, user: DiscordUser, emoji: str) -> bool:
        """Remove a user's reaction; return False if there is none."""
        users = message.reactions.get(emoji, [])
        if user.id not in users:
            return False
        users.remove(user.id)
        if not users:
            del message.reactions[emoji]
        self._on_change(GuildChange("reaction_removed", message, user.id, emoji))
        return True

    def _parse_mentions(self, content: DiscordContent, reply_to: DiscordMessage | None, type_: int) -> MessageMentions:
        author = reply_to.author.id if reply_to and type_ == REPLY else None
        return parse_mentions(content.text, content.allowed_mentions, self.users, reply_to=author)

    def _create_version(self, content: DiscordContent, mentions: MessageMentions) -> DiscordMessageVersion:
        names = {user.id: user.display_name for user in self.users.values()} | {self.bot_role_id: self.bot.display_name}
        names |= {channel.id: channel.name for channel in self.channels.values()}
        return DiscordMessageVersion(replace_ids(content.text, names), mentions.pings, monotonic())
