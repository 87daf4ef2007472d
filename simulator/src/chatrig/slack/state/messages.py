"""Conversations, messages and files of a Slack workspace."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from time import monotonic, time
from typing import Any, Literal

from chatrig.slack.state.controls import find_controls
from chatrig.slack.state.inputs import InputState
from chatrig.slack.state.markup import SlackContent, TaskCard

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
        is_from_other_org: whether another organisation owns the file; events then have only its id.
        is_hidden: whether Slack hides the old file, as in a workspace without a paid plan.
        redirect_url: the URL to which a download redirects; "" for none.
    """

    id: str
    name: str
    data: bytes = b""
    title: str = ""
    alt_text: str = ""
    is_from_other_org: bool = False
    is_hidden: bool = False
    redirect_url: str = ""


@dataclass(eq=False, slots=True)
class SlackConversation:
    """Public channel, private channel, or DM.

    Attributes:
        name: the name of the channel; for a DM, that of its user.
        user: the id of the user of a DM; None for a channel.
        members: user ids, with the bot's if it is a member.
        created: seconds since the epoch.
        prompts: the suggested prompts of a DM as pairs of title and message.
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
        """The type of the conversation as in `channel_type` of events."""
        if self.is_dm:
            return "im"
        return "group" if self.private else "channel"


@dataclass(frozen=True, slots=True)
class SlackMessageVersion:
    """Version of a message: its content since the post or an update.

    Attributes:
        text: the visible text.
        pings: ids of the pinged users and user groups; `channel`, `here` and `everyone` if pinged.
        shown_at: seconds on the monotonic clock.
        content: the content as its author sent it.
    """

    text: str
    pings: frozenset[str]
    shown_at: float
    content: SlackContent

    @property
    def tasks(self) -> tuple[TaskCard, ...]:
        """The task cards of this version; empty for a message without a stream."""
        return self.content.tasks


@dataclass(eq=False, slots=True)
class NativeStream:
    """Stream that `chat.startStream` started for a message.

    Attributes:
        recipient: the id of the user who sees live updates; None for nobody. As users report, others see the first
            version until the stream ends.
        ends_at: the end of the stream, if not stopped before, in seconds on the monotonic clock.
        mode: `markdown_text` or `chunks`, decided by the first call with text; None before.
        byte_count: the size of the streamed content in bytes.
    """

    recipient: str | None
    ends_at: float
    mode: str | None = None
    byte_count: int = 0

    @property
    def is_live(self) -> bool:
        """True until the stream is stopped or expires."""
        return monotonic() < self.ends_at


@dataclass(eq=False, slots=True)
class SlackMessage:
    """Message of the workspace in its current version.

    Attributes:
        ts: the timestamp, the id of the message in its channel.
        content: the content as its author sent it.
        versions: all versions, oldest first.
        user: the id of the author; None for a message of another app.
        bot_id: the id of the bot that posted the message; None for people.
        username: the author's name that the app chose; None for its own name.
        thread_ts: the timestamp of the thread's root message; None outside threads.
        edited: whether people see "(edited)". Slack: not after an update with blocks.
        edited_ts: the timestamp of the edit; None without one.
        reactions: user ids by emoji name.
        ephemeral_to: the id of the only user who sees the message; None for everybody.
        attachments: shared and linked messages below the content.
        icons: the picture of the author, if the app chose another one.
        unfurl_links, unfurl_media: arguments of the call; None if missing.
        stream: stream of a message from `chat.startStream`; None for other messages.
        is_tombstone: whether the message replaces a deleted one with replies.
        inviter: the id of the user who invited the user of a `channel_join` message.
        pinned_by: the id of the user who pinned the message; None if it is not pinned.
        pinned_at: the Unix time of the pin; 0 if the message is not pinned.
        input_states: the values that users entered, by user id.
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
        """The visible text of the newest version: mentions by name, entities decoded."""
        return self.versions[-1].text

    @property
    def tasks(self) -> tuple[TaskCard, ...]:
        """The task cards of the newest version; empty for a message without a stream."""
        return self.versions[-1].tasks

    def version_for(self, user: str) -> SlackMessageVersion:
        """Return the version of the message that a user sees: usually the newest one.

        While the message is a live stream for another recipient, it is the first version.

        Args:
            user: the id of the user.
        """
        is_for_another = self.stream is not None and self.stream.is_live and self.stream.recipient != user
        return self.versions[0 if is_for_another else -1]

    @property
    def blocks(self) -> Sequence[Mapping[str, Any]] | None:
        return self.content.blocks

    @property
    def buttons(self) -> dict[str, str]:
        """The ids of the message's buttons and options by label; see `BlockControl`.

        If several controls have the same label, it is the id of the last one.
        """
        return {control.label: control.id for control in find_controls(self.blocks or ())}

    @property
    def pings(self) -> frozenset[str]:
        """The ids of users and groups that any version of the message pings.

        The set may also contain `channel`, `here` and `everyone`.
        """
        return frozenset[str]().union(*(version.pings for version in self.versions))

    def find_file(self, id_: str) -> SlackFile:
        """Return the file of the message with this id.

        Raises:
            StopIteration: the message has no such file.
        """
        return next(file for file in self.files if file.id == id_)

    @property
    def changed_at(self) -> float:
        """The monotonic time of the newest version, in seconds."""
        return self.versions[-1].shown_at

    @property
    def loading(self) -> bool:
        """True while the message is a live stream."""
        return self.stream is not None and self.stream.is_live

    @property
    def is_thread_reply(self) -> bool:
        return self.thread_ts is not None and self.thread_ts != self.ts

    @property
    def is_in_channel(self) -> bool:
        """True if the message is shown in the channel outside threads."""
        return not self.is_thread_reply or self.subtype == BROADCAST_SUBTYPE
