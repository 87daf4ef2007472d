"""Users, channels, messages and events of a Discord server."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, TypeVar

from chatrig.discord.state.mentions import MessageMentions

_Component = TypeVar("_Component", bound=Mapping[str, Any])
ChangeKind = Literal["posted", "updated", "deleted", "ephemeral", "reaction_added", "reaction_removed"]
ChannelKind = Literal["text", "forum", "thread", "dm", "group"]
#: Gateway events that are not about one message; their names are Discord's.
GuildEventName = Literal[
    "CHANNEL_CREATE",
    "CHANNEL_DELETE",
    "CHANNEL_PINS_UPDATE",
    "CHANNEL_UPDATE",
    "GUILD_EMOJIS_UPDATE",
    "GUILD_MEMBER_ADD",
    "GUILD_MEMBER_REMOVE",
    "GUILD_MEMBER_UPDATE",
    "INVITE_CREATE",
    "INVITE_DELETE",
    "MESSAGE_DELETE_BULK",
    "MESSAGE_POLL_VOTE_ADD",
    "MESSAGE_POLL_VOTE_REMOVE",
    "MESSAGE_REACTION_REMOVE_ALL",
    "MESSAGE_REACTION_REMOVE_EMOJI",
    "THREAD_CREATE",
    "THREAD_DELETE",
    "THREAD_MEMBERS_UPDATE",
    "THREAD_MEMBER_UPDATE",
    "THREAD_UPDATE",
    "TYPING_START",
    "WEBHOOKS_UPDATE",
]

# Message types and flags: docs.discord.com/developers/resources/message.
DEFAULT, PIN, JOIN, REPLY, CHAT_COMMAND, THREAD_STARTER, MENU_COMMAND = 0, 6, 7, 19, 20, 21, 23
CROSSPOSTED, HAS_THREAD, EPHEMERAL, LOADING, HAS_SNAPSHOT = 1 << 0, 1 << 5, 1 << 6, 1 << 7, 1 << 14


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
        members: the ids of the users who can see the channel; None for all users.
        foreign_guild_id: the id of the channel's server, if that is one without the bot; None otherwise.
        parent: the channel of a thread; None for others.
        dm_user: the user of a DM with the bot; None for others.
        owner_id: the id of the user who started a thread; None for others.
        thread_members: the users who joined a thread: the time of joining by user id.
        tags: the tags of a forum: ids by name.
        applied_tags: the ids of the tags of a forum post, in their order.
        category_id: the id of the channel's category; None without one.
        is_announcement: whether messages of a text channel can be published to other servers.
        slow_mode_seconds: the time between two messages of a user; only reported, not enforced.
        is_private: whether only its members see a thread.
        archived: whether a thread is archived; the next message reopens it unless it is locked.
        locked: whether users cannot post in a thread.
        auto_archive_minutes: the time after which Discord archives an idle thread; only reported.
        archived_at: the time of the last change of `archived`.
    """

    id: str
    name: str
    kind: ChannelKind
    members: set[str] | None = None
    foreign_guild_id: str | None = None
    parent: "GuildChannel | None" = None
    dm_user: DiscordUser | None = None
    owner_id: str | None = None
    thread_members: dict[str, datetime] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    applied_tags: Sequence[str] = ()
    category_id: str | None = None
    topic: str | None = None
    is_nsfw: bool = False
    is_announcement: bool = False
    slow_mode_seconds: int = 0
    last_pinned_at: datetime | None = None
    is_private: bool = False
    archived: bool = False
    locked: bool = False
    auto_archive_minutes: int = 1440
    created_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    archived_at: datetime = field(default_factory=lambda: datetime.now(UTC))

    @property
    def is_dm(self) -> bool:
        return self.kind == "dm"

    @property
    def is_thread(self) -> bool:
        return self.kind == "thread"

    @property
    def is_in_guild(self) -> bool:
        """True for a channel or thread of the simulator's server."""
        return self.kind in ("text", "forum", "thread") and self.foreign_guild_id is None

    @property
    def can_have_bot(self) -> bool:
        """True except in group DMs and in channels of other servers.

        There the bot cannot be, and users run its commands as their installed app. It is True also for a channel of the
        server that the bot cannot see.
        """
        return self.kind != "group" and self.foreign_guild_id is None

    @property
    def interaction_context(self) -> int:
        """Discord's context of an interaction in the channel.

        0 is a server, with or without the bot, 1 a DM with the bot, 2 a group DM.
        """
        return {"dm": 1, "group": 2}.get(self.kind, 0)

    def is_visible_to(self, user_id: str) -> bool:
        """Return whether a user can see the channel or thread.

        Only its members see a private thread. Only `members` see a channel that has such a set, and its threads.
        """
        place = self.parent or self
        is_thread_member = not self.is_private or user_id in self.thread_members
        return is_thread_member and (place.members is None or user_id in place.members)


@dataclass(frozen=True, slots=True)
class DiscordAttachment:
    id: str
    name: str
    data: bytes
    content_type: str | None = None
    description: str | None = None


@dataclass(frozen=True, slots=True)
class DiscordPoll:
    """Poll of a message.

    Attributes:
        answers: the answers, numbered from 1; each has a `text`, an `emoji` or both.
        allows_multiple: whether a user can vote for several answers.
    """

    question: str
    answers: Sequence[Mapping[str, Any]]
    allows_multiple: bool = False
    expires_at: datetime = field(default_factory=lambda: datetime.now(UTC) + timedelta(days=1))


@dataclass(frozen=True, slots=True)
class DiscordMessageVersion:
    """Version of a message's text, as posted or after an edit.

    Attributes:
        text: the text with names in place of ids.
        pings: ids of the pinged users and roles; `everyone` and `here` if pinged.
        shown_at: monotonic time in seconds.
    """

    text: str
    pings: frozenset[str]
    shown_at: float


@dataclass(frozen=True, slots=True)
class DiscordContent:
    """Content of a message as its author sent it.

    Attributes:
        embeds: JSON of the embeds.
        components: JSON of the components.
        allowed_mentions: the object in the request; None if omitted, so that all mentions ping.
        stickers: ids of stickers.
    """

    text: str = ""
    embeds: Sequence[Mapping[str, Any]] = ()
    components: Sequence[Mapping[str, Any]] = ()
    attachments: Sequence[DiscordAttachment] = ()
    allowed_mentions: Mapping[str, Any] | None = None
    stickers: Sequence[str] = ()
    poll: DiscordPoll | None = None


@dataclass(frozen=True, slots=True)
class InteractionMetadata:
    """Interaction to which a message of the bot responds.

    Attributes:
        type: Discord's number of the type of the interaction.
        target_message: the message in whose context menu the command was run; None without one.
        component_message: the message whose button or menu was used; None without one.
        modal_opener: the interaction that opened the submitted modal; None without one.
    """

    interaction_id: str
    type: int
    user: DiscordUser
    target_message: "DiscordMessage | None" = None
    component_message: "DiscordMessage | None" = None
    modal_opener: "InteractionMetadata | None" = None


def iterate_components(components: Sequence[_Component]) -> Iterator[_Component]:
    """Yield each component, followed by its nested `components` and its `accessory`.

    The nested ones are treated alike. The input (`component`) of a label is left out: see `iterate_inputs`.
    """
    for component in components:
        yield component
        yield from iterate_components(component.get("components", ()))
        yield from iterate_components([component["accessory"]] if component.get("accessory") else ())


@dataclass(eq=False, slots=True)
class DiscordMessage:
    """Message of the server in its current version.

    Attributes:
        content: the content as last sent.
        mentions: the users, roles, `everyone` and `here` that the current text pings.
        versions: each text of the message, oldest first.
        reply_to: the message to which this one replies, or that Discord's message about a pin or thread is about; None
            for others.
        forwarded_message: a copy of the forwarded message at that time; None for no forward.
        ephemeral_to: the only user who sees the message; None for a message to all.
        interaction_metadata: the interaction to which the message responds; None for others.
        webhook_id: the id of the webhook or application that posted the message; None for others.
        poll_votes: user ids by number of the answer.
        is_poll_over: whether the poll was ended before its time.
        thread: the thread that was started from the message; None without one.
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
    interaction_metadata: InteractionMetadata | None = None
    webhook_id: str | None = None
    thread: GuildChannel | None = None
    pinned_at: datetime | None = None
    poll_votes: dict[int, list[str]] = field(default_factory=dict)
    is_poll_over: bool = False
    deleted: bool = False
    edited_at: datetime | None = None
    posted_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    reactions: dict[str, list[str]] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The newest version of the text, with names in place of ids."""
        return self.versions[-1].text

    @property
    def buttons(self) -> dict[str, str]:
        """Custom ids of the message's buttons by label.

        Link buttons and those without a label are left out. The last one of several with the same label counts.
        """
        parts = iterate_components(self.content.components)
        return {part["label"]: part["custom_id"] for part in parts if part.get("label") and "custom_id" in part}

    @property
    def links(self) -> dict[str, str]:
        """Addresses of the message's link buttons by label."""
        buttons = (part for part in iterate_components(self.content.components) if part.get("type") == 2)
        return {part["label"]: part["url"] for part in buttons if part.get("label") and part.get("url")}

    @property
    def pings(self) -> frozenset[str]:
        """Ids of the users and roles that any version of the text pings.

        The set may also contain `everyone` and `here`.
        """
        return frozenset[str]().union(*(version.pings for version in self.versions))

    @property
    def edited(self) -> bool:
        return self.edited_at is not None

    @property
    def changed_at(self) -> float:
        """The monotonic time of the newest version, in seconds."""
        return self.versions[-1].shown_at

    @property
    def loading(self) -> bool:
        """True while the message shows "... is thinking" for a deferred response."""
        return bool(self.flags & LOADING)


@dataclass(frozen=True, slots=True)
class GuildChange:
    """Visible change of a message.

    Attributes:
        message: the message after the change.
        user_id: the id of the user of a reaction; None for other changes.
        emoji: the emoji of a reaction; None for other changes.
    """

    kind: ChangeKind
    message: DiscordMessage
    user_id: str | None = None
    emoji: str | None = None


@dataclass(frozen=True, slots=True)
class GuildEvent:
    """Change that causes a gateway event other than those of a `GuildChange`.

    Attributes:
        name: Discord's name of the event.
        channel: the channel or thread of the event; None without one.
        user: the user who acts, or whose membership or account changes; None without one.
        messages: the messages that are deleted, or whose reactions or votes change.
        subject: the code of an invite, an emoji, or the number of a poll's answer; "" for none.
        added_ids: ids of the users who joined a thread.
        removed_ids: ids of the users who left a thread.
    """

    name: GuildEventName
    channel: GuildChannel | None = None
    user: DiscordUser | None = None
    messages: Sequence[DiscordMessage] = ()
    subject: str = ""
    added_ids: Sequence[str] = ()
    removed_ids: Sequence[str] = ()
