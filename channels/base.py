"""Replies and texts as platforms show and read them; `Surface` shows a reply."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import Any, Literal, Protocol

from aiohttp import web

from channels.markdown.dialect import MessageLimits
from core.errors import SurfaceError
from core.identity import clean_name
from core.inbox_message import Attachment

#: Size that each message reserves for a status line under its text, in the unit of the platform's limit.
STATUS_RESERVE = 102

#: The `outdated_since` of a reply that has text and shows none yet: see `Surface.acquire_slot`.
FIRST_TEXT = float("-inf")

#: The style of a button, by the names that both platforms use; empty for the default.
ButtonStyle = Literal["", "primary", "danger"]

#: The arrival of an HTTP request's headers, in seconds of the event loop's clock.
ARRIVED_AT = web.RequestKey("arrived_at", float)

#: Awaited after each post and before the next, with the chunk's position and the new message's id. The positions of a
#: plan's files follow those of its chunks.
RecordMessageId = Callable[[int, str], Awaitable[None]]

#: The relation of a context message to a message of the turn: sent before it, quoted or forwarded by it, or the subject
#: of its prompt.
ContextKind = Literal["before", "quoted", "forwarded", "about"]


class Priority(IntEnum):
    """Priorities of calls to a platform under its rate limits, most urgent first.

    Attributes:
        FINAL: shows the complete text of an answer.
        APPROVAL: shows an approval or an agent's question.
        ERROR: shows a reply that ends with an error message.
        PROGRESS: the default, such as the first call of a reply, a full message of it, or a lookup.
        STREAM_UPDATE: shows new text of a growing reply. It waits for a slot only in `Surface.acquire_slot`;
            `Caller.call` drops it if it has no slot and none is free, or if the platform responds with 429.
        BACKFILL: fetches missed messages; waits for all other calls.
    """

    FINAL = 0
    APPROVAL = 1
    ERROR = 2
    PROGRESS = 3
    STREAM_UPDATE = 4
    BACKFILL = 5


#: The priorities of calls that show a complete text.
FINAL_PRIORITIES = frozenset({Priority.FINAL, Priority.APPROVAL, Priority.ERROR})


@dataclass(frozen=True, slots=True)
class Chunk:
    """One platform message of a reply: a slice of the reply's Markdown text.

    Attributes:
        start: the index in the reply's text of the first character that the message shows.
        end: the index after the last such character.
        text: the text as it is sent: in the platform's dialect, with split markup closed.
        stable_length: of the last chunk of a growing reply: the number of characters at the start of `text` that later
            text is not expected to change; else 0.
    """

    start: int
    end: int
    text: str
    stable_length: int = 0


@dataclass(frozen=True, slots=True)
class Button:
    """Button under a reply, or a select menu.

    Attributes:
        id: the action and the id of its target, such as `retry:TURN_ID`: see `parse_button`. It needs no other state,
            so that any process can handle the press.
        label: the visible text.
        style: the color; empty for the default.
        options: the options of a menu, empty for a button. Choosing an option counts as a press of that `Button`.
    """

    id: str
    label: str
    style: ButtonStyle = ""
    options: "tuple[Button, ...]" = ()


@dataclass(frozen=True, slots=True)
class File:
    """File attached to a reply.

    Attributes:
        name: the file name, unique in the reply.
        data: the content.
        alt: the alternative text of an image; empty for none.
    """

    name: str
    data: bytes
    alt: str = ""


class ToolCallState(Enum):
    """State of a tool call; the values are those of Slack's task cards.

    A call that waits, waits for a person's decision.
    """

    RUNNING = "in_progress"
    WAITING = "pending"
    DONE = "complete"
    FAILED = "error"


@dataclass(frozen=True, slots=True)
class ShownToolCall:
    """Tool call of a reply: its status line in Markdown, and its state."""

    line: str
    state: ToolCallState = ToolCallState.RUNNING


@dataclass(frozen=True, slots=True)
class Plan:
    """Chunks, buttons and files of a reply, as the platform is to show them.

    Attributes:
        chunks: one per platform message, in order.
        priority: the priority of the platform calls that show the plan.
        buttons: the buttons under the last chunk.
        files: the files attached to the last chunk.
        is_growing: whether more text will be added to the last chunk.
        status: the status line of the running tool in Markdown, which the last chunk's text includes; empty for none.
        elapsed: the suffix of the last chunk's text with the seconds since new text or status arrived; empty before
            `SILENCE_SECONDS` (see `channels.replies.reply`), and for a reply that has text but no status line.
        tool_calls: the tool calls of the run so far, in order.
    """

    chunks: Sequence[Chunk]
    priority: Priority
    buttons: Sequence[Button] = ()
    files: Sequence[File] = ()
    is_growing: bool = False
    status: str = ""
    elapsed: str = ""
    tool_calls: Sequence[ShownToolCall] = ()


class FileRefusedError(SurfaceError):
    """The platform shows the text of a reply, but refuses some of its files.

    Attributes:
        names: the names of the refused files, as in `File.name`.
    """

    def __init__(self, message: str, names: Sequence[str]) -> None:
        super().__init__(message)
        self.names = tuple(names)


class EditRefusedError(SurfaceError):
    """The platform refuses an edit of a growing reply, whose message stays as it was."""


@dataclass(frozen=True, slots=True)
class MessageText:
    """Text of a user's message, with display names in place of the platform's ids.

    Attributes:
        speaker: the author's display name.
        is_one_to_one: whether only one person can write in the conversation, so that the prompt needs no names.
        bot_name: the bot's display name; empty if it is unknown.
        agent_context: JSON that the platform sent for agents, for the agent's state. On Slack these are the keys
            `action_token` and `entities`.
        time_zone: the IANA name of the author's time zone; empty if it is unknown.
        locale: see `channels.platform.Platform.get_locale`.
    """

    text: str
    speaker: str
    is_one_to_one: bool = True
    bot_name: str = ""
    agent_context: Mapping[str, Any] = field(default_factory=dict)
    time_zone: str = ""
    locale: str = ""

    @classmethod
    def from_message(
        cls,
        text: str,
        speaker: str,
        attachments: Sequence[Attachment],
        *,
        is_one_to_one: bool,
        is_forward: bool = False,
        bot_name: str = "",
        time_zone: str = "",
        locale: str = "",
    ) -> "MessageText":
        """Return a `MessageText` whose text is never empty, unless the message has files.

        A note to the model replaces an empty text: the author only mentioned the bot, or forwarded a message. Users
        choose the names, so both are cleaned by `clean_name`.

        Args:
            attachments: the files of the message.
            is_forward: whether the message forwards another one.
        """
        speaker = clean_name(speaker)
        note = f"[{speaker} forwarded a message to you]" if is_forward else f"[{speaker} mentioned you without a text]"
        text = text or ("" if attachments else note)
        return cls(text, speaker, is_one_to_one, clean_name(bot_name), time_zone=time_zone, locale=locale)


@dataclass(frozen=True, slots=True)
class ContextMessage:
    """Message that a turn does not answer, but that its prompt quotes for the model.

    Attributes:
        author: the platform's id of the author.
        name: the author's display name.
        text: the text with names in place of the platform's ids.
        sent_at: seconds since the epoch.
        kind: the relation to a message of the turn.
        event_key: the `InboxMessage.event_key` of the turn's message that quotes, forwards or asks about this one;
            empty for the kind `before`.
        is_thread_start: whether the turn's thread was started on this message.
        attachments: the files of the message, which the model reads if the prompt has the message.
        key: the `InboxMessage.event_key` of this message; empty if it is unknown. Of a forwarded message, it is that of
            the message that forwards it.
    """

    author: str
    name: str
    text: str
    sent_at: float
    kind: ContextKind = "before"
    event_key: str = ""
    is_thread_start: bool = False
    attachments: tuple[Attachment, ...] = ()
    key: str = ""


@dataclass(frozen=True, slots=True)
class SurroundingMessages:
    """Context messages of a turn, and the names of other authors in its session.

    Attributes:
        messages: the context messages, oldest first, in their current version.
        names: the display names of authors in the session's stored history who wrote none of the turn's messages (see
            `HistoryState.others`), by the platform's user ids; empty for an unknown name.
    """

    messages: Sequence[ContextMessage] = ()
    names: Mapping[str, str] = field(default_factory=dict)


class Surface(Protocol):
    """Place on a platform where the messages of one reply are posted and edited."""

    @property
    def limits(self) -> MessageLimits: ...

    def track_reply(self) -> AbstractContextManager[None]:
        """Return a context manager for the `with` block in which the reply is shown.

        Within the block, a growing message counts among those that share the rate limits. The end of the block frees
        the slots that the surface has acquired or reserved.
        """
        ...

    def try_open(self) -> bool:
        """Return whether the rate limits allow a message that grows by edits.

        If so, reserve a slot of the rate limits for the call that ends the message. True without another slot while a
        message of this surface grows. If False, a slot that was reserved before is freed.
        """
        ...

    async def acquire_slot(
        self, priority: Priority, *, is_post: bool, is_last_edit: bool, outdated_since: float
    ) -> None:
        """Wait for a slot of the rate limits, and store it for the next call of `show`.

        Even a `STREAM_UPDATE` waits. The caller chooses the text after the wait, so that it sends the newest. A
        cancelled wait stores no slot.

        Args:
            priority: the priority of the wait.
            is_post: whether the next call posts a message; else it edits one.
            is_last_edit: whether the next call ends the growing message.
            outdated_since: the time (of the event loop) since which the shown text is out of date. Of waits with the
                same priority, the one with the earliest time ends first. `FIRST_TEXT`, the earliest, if the reply has
                text and shows none yet.
        """
        ...

    async def show(self, plan: Plan, known_ids: Sequence[str], record: RecordMessageId) -> bool:
        """Make the platform show exactly `plan`: edit, post and delete messages.

        A call for the plan that is shown already changes nothing.

        Args:
            known_ids: the ids of the reply's posted messages, in order, followed by those of its files.
            record: awaited after each post, with the position in the plan and the new id: see `RecordMessageId`.

        Returns:
            True if the platform shows the whole plan; False if a `STREAM_UPDATE` was dropped or not answered.

        Raises:
            FileRefusedError: all is shown but some files.
            EditRefusedError: an edit of the growing message was refused; the final text can still be shown.
            SurfaceError: the plan cannot be shown.
        """
        ...

    async def find_message_ids(self, recorded_ids: Sequence[str] = (), *, is_contested: bool = False) -> list[str]:
        """Look up the reply's messages on the platform, and return their ids in order.

        Args:
            recorded_ids: the message ids in the database. Those of files are appended to the result unchecked. Of
                ephemeral messages and Discord's side messages, all are returned unchecked.
            is_contested: whether calls of another process may still take effect. The final call of `show` then edits
                the messages again, and deletes messages of the other process.

        Raises:
            SurfaceError: the messages cannot be fetched.
        """
        ...

    async def delete_messages(self, message_ids: Sequence[str]) -> None:
        """Delete messages of this reply, or messages that were posted beside it.

        A refusal by the platform is logged, and the message stays. The entries of files (`file:ID:NAME`) are ignored.

        Raises:
            SurfaceError: the platform cannot be reached.
        """
        ...

    async def post_message(self, text: str, file: File | None = None) -> None:
        """Post one message that is not part of the reply, such as the result of a command.

        Args:
            file: a file to attach.

        Raises:
            SurfaceError: the message cannot be posted.
        """
        ...

    async def add_reaction(self, emoji: str) -> None:
        """React to the user's message that the reply answers.

        Args:
            emoji: a Unicode emoji or its short name, such as `tada` or `:tada:`.

        Raises:
            SurfaceError: the platform refuses the reaction or cannot be reached, or the reply is ephemeral.
        """
        ...

    def add_queued_reaction(self) -> None:
        """Add the emoji that marks the user's message as waiting, in a background task.

        Does nothing if this process has added or assumed it already.
        """
        ...

    def mark_queued_reaction_added(self) -> None:
        """Assume that another process has added the "queued" reaction; make no call.

        `add_queued_reaction` then does nothing, and `remove_queued_reaction` removes the reaction.
        """
        ...

    async def remove_queued_reaction(self) -> None:
        """Remove the "queued" reaction from the user's message, in a background task.

        Does nothing if this process neither added it nor assumed it.
        """
        ...
