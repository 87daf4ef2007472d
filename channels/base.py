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
    """Priorities of calls under a rate limit; a `STREAM_UPDATE` that cannot be made now is dropped.

    A `BACKFILL` call waits for all others.
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
    """One platform message of a reply: `text` shows `full_text[start:end]`.

    Attributes:
        stable_length: of a growing message: the characters of `text` that the following text is not expected to
            change. An earlier cut, or a replaced text, can still change them.
    """

    start: int
    end: int
    text: str
    stable_length: int = 0


@dataclass(frozen=True, slots=True)
class Button:
    """Button under a reply, or a menu.

    Attributes:
        id: identifies a press in any process (`retry:TURN`).
        label: the visible text.
        options: of a menu: its options. A choice is a press of the option.
    """

    id: str
    label: str
    style: ButtonStyle = ""
    options: "tuple[Button, ...]" = ()


@dataclass(frozen=True, slots=True)
class File:
    """File of a reply.

    Attributes:
        name: unique among the files of the reply.
        alt: alternative text.
    """

    name: str
    data: bytes
    alt: str = ""


@dataclass(frozen=True, slots=True)
class Plan:
    """Chunks, buttons and files that a surface is to show, in order.

    Attributes:
        buttons: the buttons under the last chunk.
        files: the files with the last chunk.
        is_growing: whether text will be added to the last chunk.
        status: the running tool, as the last chunk says it below its text; empty while text arrives.
        elapsed: the seconds without new text, as the last chunk says them.
    """

    chunks: Sequence[Chunk]
    priority: Priority
    buttons: Sequence[Button] = ()
    files: Sequence[File] = ()
    is_growing: bool = False
    status: str = ""
    elapsed: str = ""


class FileRefusedError(SurfaceError):
    """The platform shows the messages of a plan and refuses some of its files.

    Attributes:
        names: the names of the refused files.
    """

    def __init__(self, message: str, names: Sequence[str]) -> None:
        super().__init__(message)
        self.names = tuple(names)


class EditRefusedError(SurfaceError):
    """The platform refuses an edit of a growing message, which keeps its former text."""


@dataclass(frozen=True, slots=True)
class MessageText:
    """Text of a message with names in place of the platform's ids.

    Attributes:
        speaker: the author's display name.
        is_one_to_one: whether only one person can write there, so that the prompt needs no names.
        bot_name: the bot's display name; empty if it is not known.
    """

    text: str
    speaker: str
    is_one_to_one: bool = True
    bot_name: str = ""

    @classmethod
    def from_message(
        cls, text: str, speaker: str, attachments: Sequence[Attachment], *, is_one_to_one: bool, bot_name: str = ""
    ) -> "MessageText":
        """Return the text of a message; a message without text and attachments says so."""
        text = text or ("" if attachments else f"[{speaker} called you without saying anything]")
        return cls(text, speaker, is_one_to_one, bot_name)


@dataclass(frozen=True, slots=True)
class ContextMessage:
    """Message that the turn does not answer and the model reads as context.

    Attributes:
        author: the platform's id of the author.
        name: the author's display name.
        text: the text with names in place of the platform's ids.
        sent_at: seconds since the epoch.
        kind: the relation to the message with `event_key`.
        event_key: the event key of the related message of the turn; empty if it was only sent before.
        is_thread_start: whether its thread was started on it.
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
    """Messages around those of a turn.

    Attributes:
        messages: oldest first, in their current version.
        names: the display names of other participants, by id.
    """

    messages: Sequence[ContextMessage] = ()
    names: Mapping[str, str] = field(default_factory=dict)


class Surface(Protocol):
    """Place where one reply is shown."""

    @property
    def limits(self) -> MessageLimits: ...

    def track_reply(self) -> AbstractContextManager[None]:
        """Count the reply among those that share the rate limits, for as long as it is being shown."""
        ...

    def try_open(self) -> bool:
        """Return whether a growing message may be shown now, and reserve the call that ends it."""
        ...

    async def acquire_slot(
        self, priority: Priority, *, is_post: bool, is_last_edit: bool, outdated_since: float
    ) -> None:
        """Wait until the rate limits allow the next call, and hold that slot for `show`.

        The text is chosen after the wait: the caller shows its newest. A cancelled wait holds no slot.

        Args:
            is_post: whether the call posts a message.
            is_last_edit: whether the call ends the growing message.
            outdated_since: the loop's time since which the shown text is out of date. `FIRST_TEXT` if the reply has
                text and shows none yet: such a call does not keep the pace of updates.
        """
        ...

    async def show(self, plan: Plan, known_ids: Sequence[str], record: RecordMessageId) -> bool:
        """Make the platform show exactly `plan`: edit what differs, post what is missing, delete the rest.

        Safe to repeat.

        Args:
            known_ids: the known ids of the reply's messages, followed by those of its files.

        Returns:
            Whether all of it is shown; a `STREAM_UPDATE` that the rate limits do not allow now is dropped.

        Raises:
            FileRefusedError: everything but some files is shown.
            EditRefusedError: an edit of the growing message was refused; the final text can still be shown.
            SurfaceError: the plan cannot be shown.
        """
        ...

    async def find_message_ids(self, recorded_ids: Sequence[str] = (), *, is_contested: bool = False) -> list[str]:
        """Return the ids of the reply's messages on the platform, in order.

        Args:
            recorded_ids: the stored ids; the platform may not tell those of files.
            is_contested: whether calls of another process may still take effect. `show` reverts them with the final
                text.

        Raises:
            SurfaceError: the messages cannot be fetched.
        """
        ...

    async def delete_messages(self, message_ids: Sequence[str]) -> None:
        """Delete messages that were posted and are not part of the reply.

        Raises:
            SurfaceError: the platform cannot be reached.
        """
        ...

    async def post_message(self, text: str, file: File | None = None) -> None:
        """Post one message, with a file, that is not the reply of a turn.

        Raises:
            SurfaceError: it cannot be shown.
        """
        ...

    async def add_reaction(self, emoji: str) -> None:
        """React to the message that the reply answers.

        Args:
            emoji: a Unicode emoji or its short name.

        Raises:
            SurfaceError: the platform does not accept it.
        """
        ...

    def add_queued_reaction(self) -> None:
        """Add the reaction that says that the message waits, unless this process did before."""
        ...

    def assume_queued_reaction(self) -> None:
        """Expect that another process added the reaction."""
        ...

    async def remove_queued_reaction(self) -> None:
        """Remove the reaction, if one was added."""
        ...


class FileCheck(Protocol):
    """Check of whether a file is to be read, by its known size and type.

    Attributes:
        max_bytes: the limit of the size.
    """

    @property
    def max_bytes(self) -> int: ...

    def __call__(self, file: Attachment) -> None:
        """Return if the file is to be read.

        Raises:
            UnreadableFileError: it is not to be read.
        """
        ...


@dataclass(frozen=True, slots=True)
class FetchedFile:
    """File that was downloaded.

    Attributes:
        file: its metadata, completed by the download.
    """

    file: Attachment
    data: bytes


class RateLimits(Protocol):
    """Rate limits of a platform, divided among the workers."""

    @property
    def headroom(self) -> float:
        """Return the smallest free part of all limits, from 0 to 1."""
        ...

    def announce_usage(self) -> LimitUsages:
        """Return this worker's usage, for the other workers."""
        ...

    def apply_peer_usage(self, peers: Sequence[LimitUsages]) -> None:
        """Divide the limits among the workers by their announced usage."""
        ...


class Channel(Protocol):
    """Adapter of a platform.

    Attributes:
        heartbeat_interval: the most seconds between two signs of life of a working connection.
        max_menu_options: the most options of a menu.
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
        """Connect, and return when messages are received.

        Raises:
            SettingsError: the platform refuses the credentials.
        """
        ...

    async def stop(self) -> None:
        """Receive no more messages; replies may still be shown."""
        ...

    def last_event_at(self) -> float:
        """Return the time of the last sign of life, in seconds since the epoch; 0 before the first."""
        ...

    async def reconnect(self) -> None:
        """Drop the connection and begin to open a new one."""
        ...

    def create_surface(self, address: Mapping[str, Any], *, turn_id: str = "") -> Surface:
        """Return the surface of the reply to a message with this address.

        Args:
            turn_id: marks the reply's messages, so that they are found when their ids are lost.
        """
        ...

    def side_message_address(self, address: Mapping[str, Any], name: str) -> Mapping[str, Any]:
        """Return the address of a message below a reply that is not part of the reply.

        Args:
            name: the end of the ids of its buttons, and the `turn_id` of its surface.
        """
        ...

    def reply_address(self, address: Mapping[str, Any], message_id: str) -> Mapping[str, Any]:
        """Return the address of the reply to a side message with this id."""
        ...

    async def get_locale(self, inbound: InboxMessage) -> str:
        """Return the author's locale as the platform names it (`ko-KR`); empty if it is not known."""
        ...

    async def read_message(self, inbound: InboxMessage) -> MessageText:
        """Return the text of a message with names in place of the platform's ids."""
        ...

    async def fetch_file(self, inbound: InboxMessage, file: Attachment, check: FileCheck) -> FetchedFile:
        """Download a file of a message.

        Args:
            check: called again when more is known of the file.

        Raises:
            UnreadableFileError: the file is not available, or not to be read.
        """
        ...

    async def fetch_context(
        self, messages: Sequence[InboxMessage], history: HistoryState | None
    ) -> SurroundingMessages:
        """Return the messages around those of a turn.

        These are the quoted and forwarded messages and, in a thread, the messages of other people up to the newest of
        the turn that the history does not hold.

        Args:
            history: the state of the stored history; None where only one person can write.

        Raises:
            SurfaceError: they cannot be fetched.
        """
        ...
