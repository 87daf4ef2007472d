"""Replies and texts as platforms show and read them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import Any, Literal

from aiohttp import web

from core.errors import SurfaceError
from core.messages.identity import clean_name
from core.messages.inbox_message import Attachment

#: Size that each message reserves for a status line under its text, in the unit of the platform's limit.
STATUS_RESERVE = 102

#: The age of a call (`since` of `RateLimiter.acquire`) for a reply that has text and shows none yet.
FIRST_TEXT = float("-inf")

#: The style of a button, by the names that both platforms use; empty for the default.
ButtonStyle = Literal["", "primary", "danger"]

#: The arrival of an HTTP request's headers, in seconds of the event loop's clock.
ARRIVED_AT = web.RequestKey("arrived_at", float)

#: The relation of a context message to a message of the turn: sent before it, quoted or forwarded by it, or the subject
#: of its prompt.
ContextKind = Literal["before", "quoted", "forwarded", "about"]


class Priority(IntEnum):
    """Priorities of calls to a platform under its rate limits, most urgent first.

    Attributes:
        PROGRESS: the default, such as the first call of a reply, a full message of it, or a lookup.
        STREAM_UPDATE: shows new text of a growing reply. It waits for a slot only in `Executor.acquire_slot`;
            `Caller.call` drops it if it has no slot and none is free, or if the platform responds with 429.
        BACKFILL: fetches missed messages, or posts for a turn that no person's message began; waits for all other
            calls.
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
        options: the options of a menu, empty for a button. Choosing an option counts as a press of that `Button`.
        url: the page that a press opens in the browser; empty for any other button.
    """

    id: str
    label: str
    style: ButtonStyle = ""
    options: "tuple[Button, ...]" = ()
    url: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class File:
    """File attached to a reply; its name is unique in the reply, and `alt` is the alternative text of an image."""

    name: str
    data: bytes
    alt: str = ""


class ToolCallState(Enum):
    """State of a tool call, with the values of Slack's task cards; `WAITING` is for a person's decision."""

    RUNNING = "in_progress"
    WAITING = "pending"
    DONE = "complete"
    FAILED = "error"


@dataclass(frozen=True, slots=True)
class ShownToolCall:
    """Tool call of a reply; its line is Markdown."""

    line: str
    state: ToolCallState = ToolCallState.RUNNING


@dataclass(frozen=True, slots=True)
class Plan:
    """Chunks, buttons and files of a reply, as the platform is to show them.

    Attributes:
        chunks: one per platform message, in order; buttons and files belong to the last one.
        is_growing: whether more text will be added to the last chunk.
        status: the status line of the running tool in Markdown, which the last chunk's text includes; empty for none.
        elapsed: the suffix of the last chunk's text with the seconds since new text or status arrived; empty before
            `SILENCE_SECONDS` (see `channels.replies.reply`), and for a reply that has text but no status line.
    """

    chunks: Sequence[Chunk]
    priority: Priority
    buttons: Sequence[Button] = ()
    files: Sequence[File] = ()
    is_growing: bool = False
    status: str = ""
    elapsed: str = ""
    tool_calls: Sequence[ShownToolCall] = ()

    @property
    def is_final(self) -> bool:
        return self.priority in FINAL_PRIORITIES


class FileRefusedError(SurfaceError):
    """The platform shows the text of a reply, but refuses the files with these names."""

    def __init__(self, message: str, names: Sequence[str]) -> None:
        super().__init__(message)
        self.names = tuple(names)


@dataclass(frozen=True, slots=True)
class MessageText:
    """Text of a user's message, with display names in place of the platform's ids.

    Attributes:
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
        """
        speaker = clean_name(speaker)
        note = f"[{speaker} forwarded a message to you]" if is_forward else f"[{speaker} mentioned you without a text]"
        text = text or ("" if attachments else note)
        return cls(text, speaker, is_one_to_one, clean_name(bot_name), time_zone=time_zone, locale=locale)


@dataclass(frozen=True, slots=True)
class ContextMessage:
    """Message that a turn does not answer, but that its prompt quotes for the model.

    Attributes:
        event_key: the `InboxMessage.event_key` of the turn's message that quotes, forwards or asks about this one;
            empty for the kind `before`.
        is_thread_start: whether the turn's thread was started on this message.
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
