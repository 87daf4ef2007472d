"""Conversations, messages and files of a Slack workspace."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from time import monotonic, time
from typing import Any, Literal

from sandbox.slack.state.controls import find_controls
from sandbox.slack.state.inputs import InputState
from sandbox.slack.state.markup import SlackContent, TaskCard

#: The subtype of a reply that is also shown in the channel.
BROADCAST_SUBTYPE = "thread_broadcast"
#: The subtype of a message by `/me` or `chat.meMessage`.
ME_SUBTYPE = "me_message"


@dataclass(frozen=True, slots=True)
class SlackFile:
    """File of a message.

    Attributes:
        data: the content.
        alt_text: the description of a picture.
        is_from_other_org: whether another organisation owns it; events then have only its id.
        redirect_url: the target to which a download redirects; "" for none.
    """

    id: str
    name: str
    data: bytes = b""
    title: str = ""
    alt_text: str = ""
    is_from_other_org: bool = False
    redirect_url: str = ""


@dataclass(eq=False, slots=True)
class SlackConversation:
    """Public channel, private channel, or DM.

    Attributes:
        user: the id of the user of a DM; None for a channel.
        members: user ids, with the bot's if it is a member.
        created: seconds since the epoch.
        prompts: the suggested prompts of a DM as (title, message).
    """

    id: str
    name: str
    private: bool = False
    user: str | None = None
    archived: bool = False
    members: set[str] = field(default_factory=set)
    created: int = field(default_factory=lambda: int(time()))

    prompts: tuple[tuple[str, str], ...] = ()

    @property
    def is_dm(self) -> bool:
        return self.user is not None

    @property
    def type(self) -> Literal["channel", "group", "im"]:
        """The type as in `channel_type` of events."""
        if self.is_dm:
            return "im"
        return "group" if self.private else "channel"


@dataclass(frozen=True, slots=True)
class SlackMessageVersion:
    """Version of a message.

    Attributes:
        text: the visible text.
        pings: see `find_pings`.
        shown_at: seconds on the monotonic clock.
        content: the content as it was sent.
    """

    text: str
    pings: frozenset[str]
    shown_at: float
    content: SlackContent

    @property
    def tasks(self) -> tuple[TaskCard, ...]:
        """The task cards of a streamed message."""
        return self.content.tasks


@dataclass(eq=False, slots=True)
class NativeStream:
    """Stream of a message.

    Attributes:
        recipient: the id of the user who sees live updates. As users report, others see the first version until it
            ends.
        ends_at: the end of the stream, if not stopped before, in seconds on the monotonic clock.
        mode: `markdown_text` or `chunks`, decided by the first call with text; None before.
        byte_count: the size of its content.
    """

    recipient: str | None
    ends_at: float
    mode: str | None = None
    byte_count: int = 0

    @property
    def is_live(self) -> bool:
        """True until it is stopped or expires."""
        return monotonic() < self.ends_at


@dataclass(eq=False, slots=True)
class SlackMessage:
    """Message in its current state.

    Attributes:
        user: the author; None for a message of another app.
        bot_id: the app that posted it; None for people.
        content: the text and blocks as they were sent.
        versions: all versions, oldest first.
        edited: whether people see "(edited)". Slack: not after an update with blocks.
        ephemeral_to: the only user who sees it; None for everybody.
        reactions: user ids by emoji name.
        unfurl_links, unfurl_media: arguments of the call; None if missing.
        stream: set for messages from `chat.startStream`.
        attachments: shared and linked messages below it.
        icons: the picture of its author, if the app chose another one.
        is_tombstone: whether it replaces a deleted message with replies.
        input_states: the values that users entered, by user id.
        inviter: the user who invited the user of a `channel_join` message.
        pinned_by, pinned_at: the user who pinned it, and the Unix time; None and 0 if it is not pinned.
    """

    ts: str
    channel: SlackConversation
    content: SlackContent
    versions: list[SlackMessageVersion]
    user: str | None = None
    bot_id: str | None = None
    username: str | None = None
    thread_ts: str | None = None
    subtype: str | None = None
    client_msg_id: str | None = None
    metadata: dict[str, Any] | None = None
    edited: bool = False
    edited_ts: str | None = None
    deleted: bool = False
    reactions: dict[str, list[str]] = field(default_factory=dict)
    ephemeral_to: str | None = None
    files: Sequence[SlackFile] = ()
    attachments: Sequence[Mapping[str, Any]] = ()
    icons: Mapping[str, str] = field(default_factory=dict)
    unfurl_links: bool | None = None
    unfurl_media: bool | None = None
    stream: NativeStream | None = None
    is_tombstone: bool = False
    inviter: str | None = None
    pinned_by: str | None = None
    pinned_at: int = 0
    input_states: dict[str, InputState] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The visible text: mentions by name, entities decoded."""
        return self.versions[-1].text

    @property
    def tasks(self) -> tuple[TaskCard, ...]:
        """The current task cards."""
        return self.versions[-1].tasks

    def version_for(self, user: str) -> SlackMessageVersion:
        """Return the version that a user (given by id) sees: the newest, or the first of another's live stream."""
        is_for_another = self.stream is not None and self.stream.is_live and self.stream.recipient != user
        return self.versions[0 if is_for_another else -1]

    @property
    def blocks(self) -> Sequence[Mapping[str, Any]] | None:
        return self.content.blocks

    @property
    def buttons(self) -> dict[str, str]:
        """The ids of its buttons and options by label; see `BlockControl`."""
        return {control.label: control.id for control in find_controls(self.blocks or ())}

    @property
    def pings(self) -> frozenset[str]:
        """The `find_pings` of all versions."""
        return frozenset[str]().union(*(version.pings for version in self.versions))

    def find_file(self, id_: str) -> SlackFile:
        """Return its file with this id."""
        return next(file for file in self.files if file.id == id_)

    @property
    def is_thread_reply(self) -> bool:
        return self.thread_ts is not None and self.thread_ts != self.ts

    @property
    def is_in_channel(self) -> bool:
        """True if the message is shown in the channel outside threads."""
        return not self.is_thread_reply or self.subtype == BROADCAST_SUBTYPE
