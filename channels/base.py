"""Interfaces of a platform: `Channel` receives messages, `Surface` shows a reply."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Literal, Protocol

from aiohttp import web

from channels.markdown.dialect import MessageLimits
from core.conversations.history_state import HistoryState
from core.errors import SurfaceError
from core.inbox_message import Attachment, InboxMessage
from core.workers.rate_limit_sharing import LimitUsages

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
#: of its question.
ContextKind = Literal["before", "quoted", "forwarded", "about"]


class Priority(IntEnum):
    """Priorities of calls to a platform under its rate limits, most urgent first.

    A `STREAM_UPDATE` (new text of a growing reply) that cannot be made now is dropped. A `BACKFILL` call (fetching
    missed messages) waits for all others.
    """

    FINAL = 0
    APPROVAL = 1
    ERROR = 2
    PROGRESS = 3
    STREAM_UPDATE = 4
    BACKFILL = 5


#: The priorities of complete texts.
FINAL_PRIORITIES = frozenset({Priority.FINAL, Priority.APPROVAL, Priority.ERROR})


@dataclass(frozen=True, slots=True)
class Chunk:
    """One platform message of a reply, which shows `full_text[start:end]`.

    Attributes:
        start: the first character of the reply's text in Markdown that the message shows.
        end: one after the last one.
        text: the text as it is sent: in the platform's dialect, with split markup closed.
        stable_length: of the last chunk of a growing reply: the number of characters of `text` that more text is not
            expected to change.
    """

    start: int
    end: int
    text: str
    stable_length: int = 0


@dataclass(frozen=True, slots=True)
class Button:
    """Button under a reply, or a select menu.

    Attributes:
        id: the action and its target, such as `retry:TURN`; any process can handle the press (see `parse_button`).
        label: the visible text.
        style: the color; empty for the default.
        options: the options of a menu, empty for a button. A choice is handled as a press of the option.
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
        alt: the alternative text of an image.
    """

    name: str
    data: bytes
    alt: str = ""


@dataclass(frozen=True, slots=True)
class Plan:
    """Chunks, buttons and files of a reply, as the platform is to show them.

    Attributes:
        chunks: one per message, in order.
        priority: the priority of the calls.
        buttons: the buttons under the last chunk.
        files: the files with the last chunk.
        is_growing: whether more text will be added to the last chunk.
        status: the running tool, which the last chunk shows below its text; empty while text arrives.
        elapsed: the seconds without new text as the last chunk shows them; empty if they are few.
    """

    chunks: Sequence[Chunk]
    priority: Priority
    buttons: Sequence[Button] = ()
    files: Sequence[File] = ()
    is_growing: bool = False
    status: str = ""
    elapsed: str = ""


class FileRefusedError(SurfaceError):
    """The platform shows the text of a reply, but refuses some of its files.

    Attributes:
        names: the names of the refused files.
    """

    def __init__(self, message: str, names: Sequence[str]) -> None:
        super().__init__(message)
        self.names = tuple(names)


class EditRefusedError(SurfaceError):
    """The platform refuses an edit of a growing reply, which keeps its previous text."""


@dataclass(frozen=True, slots=True)
class MessageText:
    """Text of a user's message, with display names in place of the platform's ids.

    Attributes:
        speaker: the author's display name.
        is_one_to_one: whether only one person can write in the conversation, so that the prompt needs no names.
        bot_name: the bot's display name; empty if it is not known.
        agent_context: what the platform tells agents about the author, in its own words, for the agent's state.
    """

    text: str
    speaker: str
    is_one_to_one: bool = True
    bot_name: str = ""
    agent_context: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_message(
        cls, text: str, speaker: str, attachments: Sequence[Attachment], *, is_one_to_one: bool, bot_name: str = ""
    ) -> "MessageText":
        """Return the text of a message, with a note for the model if it is empty.

        Args:
            attachments: the files of the message; with files, no note is needed.
        """
        text = text or ("" if attachments else f"[{speaker} mentioned you without a text]")
        return cls(text, speaker, is_one_to_one, bot_name)


@dataclass(frozen=True, slots=True)
class ContextMessage:
    """Message that a turn does not answer, and that the model reads as context.

    Attributes:
        author: the platform's id of the author.
        name: the author's display name.
        text: the text with names in place of the platform's ids.
        sent_at: seconds since the epoch.
        kind: how it relates to a message of the turn.
        event_key: the event key of the message that quotes, forwards or asks about it; empty for `before`.
        is_thread_start: whether the thread was started on this message.
    """

    author: str
    name: str
    text: str
    sent_at: float
    kind: ContextKind = "before"
    event_key: str = ""
    is_thread_start: bool = False


@dataclass(frozen=True, slots=True)
class SurroundingMessages:
    """Context messages of a turn.

    Attributes:
        messages: oldest first, in their current version.
        names: the display names of other participants, by the platform's ids.
    """

    messages: Sequence[ContextMessage] = ()
    names: Mapping[str, str] = field(default_factory=dict)


class Surface(Protocol):
    """Place on a platform where the messages of one reply are posted and edited."""

    @property
    def limits(self) -> MessageLimits: ...

    def track_reply(self) -> AbstractContextManager[None]:
        """Count the reply, within the block, among those that share the rate limits."""
        ...

    def try_open(self) -> bool:
        """Return whether the rate limits allow a message that grows by edits.

        If so, the call that ends the message is reserved.
        """
        ...

    async def acquire_slot(
        self, priority: Priority, *, is_post: bool, is_last_edit: bool, outdated_since: float
    ) -> None:
        """Wait until the rate limits allow one call of `show`, and keep that slot.

        The caller chooses the text after the wait, so that it sends the newest. A cancelled wait holds no slot.

        Args:
            is_post: whether the call posts a message; else it edits one.
            is_last_edit: whether the call ends the growing message.
            outdated_since: the time (of the event loop) since which the shown text is out of date. `FIRST_TEXT` if the
                reply has text and shows none yet: such a call goes before the updates of other replies.
        """
        ...

    async def show(self, plan: Plan, known_ids: Sequence[str], record: RecordMessageId) -> bool:
        """Make the platform show exactly `plan`: edit, post and delete messages.

        A repeated call changes nothing.

        Args:
            known_ids: the ids of the reply's posted messages, in order, followed by those of its files.
            record: awaited after each post.

        Returns:
            Whether all of it is shown; False if the rate limits dropped a `STREAM_UPDATE`.

        Raises:
            FileRefusedError: all is shown but some files.
            EditRefusedError: an edit of the growing message was refused; the final text can still be shown.
            SurfaceError: the plan cannot be shown.
        """
        ...

    async def find_message_ids(self, recorded_ids: Sequence[str] = (), *, is_contested: bool = False) -> list[str]:
        """Look up the reply's messages on the platform, and return their ids in order.

        Args:
            recorded_ids: the stored ids. Those of files are returned as they are: a platform may not list files.
            is_contested: whether calls of another process may still take effect. `show` then overwrites them with the
                final text.

        Raises:
            SurfaceError: the messages cannot be fetched.
        """
        ...

    async def delete_messages(self, message_ids: Sequence[str]) -> None:
        """Delete messages that were posted for this reply but are not part of it.

        Raises:
            SurfaceError: the platform cannot be reached.
        """
        ...

    async def post_message(self, text: str, file: File | None = None) -> None:
        """Post one message beside the reply, such as the result of a command.

        Args:
            file: a file to attach.

        Raises:
            SurfaceError: the message cannot be posted.
        """
        ...

    async def add_reaction(self, emoji: str) -> None:
        """React to the user's message that the reply answers.

        Args:
            emoji: a Unicode emoji or its short name.

        Raises:
            SurfaceError: the platform refuses the reaction, or cannot be reached.
        """
        ...

    def add_queued_reaction(self) -> None:
        """Add the "queued" reaction to the user's message, once per process.

        The call returns at once: a background task adds the reaction.
        """
        ...

    def assume_queued_reaction(self) -> None:
        """Assume, for `remove_queued_reaction`, that another process added the reaction."""
        ...

    async def remove_queued_reaction(self) -> None:
        """Remove the "queued" reaction from the user's message, if added or assumed."""
        ...


class FileCheck(Protocol):
    """Check of a file's size and type before it is downloaded for the model.

    Attributes:
        max_bytes: the most bytes that may be downloaded.
    """

    @property
    def max_bytes(self) -> int: ...

    def __call__(self, file: Attachment) -> None:
        """Check the metadata of a file as far as it is known.

        Raises:
            UnreadableFileError: the file is too large, or of a type that the model does not support.
        """
        ...


@dataclass(frozen=True, slots=True)
class FetchedFile:
    """Downloaded file of a message.

    Attributes:
        file: its metadata, with the size and type that the download told.
        data: its bytes.
    """

    file: Attachment
    data: bytes


class RateLimits(Protocol):
    """Rate limits of a platform, of which each worker process uses a share."""

    @property
    def headroom(self) -> float:
        """The unused fraction of the most used limit, from 0 (none left) to 1."""
        ...

    def announce_usage(self) -> LimitUsages:
        """Return this worker's use of each limit, to be sent to the other workers."""
        ...

    def apply_peer_usage(self, peers: Sequence[LimitUsages]) -> None:
        """Set this worker's share of each limit by what the other workers use.

        Args:
            peers: the announced usage of each other worker.
        """
        ...


class Channel(Protocol):
    """Adapter of a platform: receives messages and shows replies.

    Attributes:
        heartbeat_interval: the most seconds between two events or heartbeats of a working connection.
        max_menu_options: the most options of a select menu.
        limiters: the platform's rate limits.
    """

    @property
    def name(self) -> str: ...

    @property
    def heartbeat_interval(self) -> float: ...

    @property
    def max_menu_options(self) -> int: ...

    @property
    def limiters(self) -> RateLimits: ...

    async def start(self) -> None:
        """Connect to the platform, and return once messages are received.

        Raises:
            SettingsError: the platform refuses the credentials.
        """
        ...

    async def stop(self) -> None:
        """Stop receiving messages; replies can still be shown."""
        ...

    def last_event_at(self) -> float:
        """Return when the last event or heartbeat came.

        Returns:
            Seconds since the epoch; 0 before the first.
        """
        ...

    async def reconnect(self) -> None:
        """Drop the connection and begin to open a new one."""
        ...

    def create_surface(self, address: Mapping[str, Any], *, turn_id: str = "") -> Surface:
        """Return the surface that shows the reply to a message.

        Args:
            address: the place of the reply: see `InboxMessage.address`.
            turn_id: the id that marks the reply's messages on the platform, so that `find_message_ids` finds them;
                empty for none.
        """
        ...

    def side_message_address(self, address: Mapping[str, Any], name: str) -> Mapping[str, Any]:
        """Return the address of a message beside a reply, such as an approval.

        Args:
            address: the address of the reply.
            name: the id of the approval or question; its buttons' ids end with it, and `create_surface` gets it as
                `turn_id`.
        """
        ...

    def reply_address(self, address: Mapping[str, Any], message_id: str) -> Mapping[str, Any]:
        """Return the address for a reply to a message beside a reply, such as an approval.

        Args:
            address: the address of the reply.
            message_id: the platform's id of the message beside it.
        """
        ...

    async def get_locale(self, inbound: InboxMessage) -> str:
        """Return the locale of a message's author, such as `ko-KR`; empty if unknown."""
        ...

    async def read_message(self, inbound: InboxMessage) -> MessageText:
        """Return the text of a message for the prompt, with names in place of ids."""
        ...

    async def fetch_file(self, inbound: InboxMessage, file: Attachment, check: FileCheck) -> FetchedFile:
        """Download a file of a message.

        Args:
            check: called again when the download tells the size and type.

        Raises:
            UnreadableFileError: the file is not available, or `check` refuses it.
        """
        ...

    async def fetch_context(
        self, messages: Sequence[InboxMessage], history: HistoryState | None
    ) -> SurroundingMessages:
        """Fetch the messages that the model reads with those of a turn.

        These are the messages that they quote or forward and, in a thread, other people's messages since the stored
        history ends, up to the newest message of the turn.

        Args:
            messages: the messages of the turn, oldest first.
            history: the messages that the stored history covers; None in a conversation with only one person.

        Raises:
            SurfaceError: the messages cannot be fetched.
        """
        ...
