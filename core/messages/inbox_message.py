"""Inbox messages: user messages in one form for all platforms, with their files."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum, auto
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter

from core.messages.identity import BOT_PREFIX, UNKNOWN_LOCATION, Actor, Location, clean_name
from core.messages.trigger import Trigger

#: The key in `InboxMessage.references` of the message that this one asks about.
ABOUT = "about"

#: Characters of a file's name in the prompt.
_MAX_FILE_NAME_LENGTH = 120

#: Messages without a mention that the bot answers in a conversation that it has joined: none, messages of the author
#: who wrote the last message, or all.
ReplyWithoutMention = Literal["never", "author", "everyone"]


class InboxOutcome(StrEnum):
    """Reason why no turn answers an inbox message.

    `inbox.outcome` may also be `core.privacy.deletion_queries.FORGOTTEN_OUTCOME`: the data of the message was deleted.

    Attributes:
        RESET: the message was the command that reset the session.
        DROPPED: the message waited for a turn when its session was reset.
        STOPPED: the message waited for a turn when a person stopped the bot.
        DELETED: the author deleted the message.
        SUPERSEDED: the message asked for a reset, but a turn had claimed a message that was sent later. Or it asked for
            a retry of a turn that got its answer meanwhile.
        COMMAND: the message was another command; the `kind` of the row is the name of the command.
        RATE_LIMITED: the author, or people at the place, had sent too many messages. Only version 0.1.0 stored these.
        UNADDRESSED: the message was for other people.
        DECIDED: the row is a decision or answer by button or form, which counts for the user rate limits. The `kind` of
            the row is the verdict.
        PENDING: a worker handles the row, which is no message, or none yet: see `core.inbox.entries` and
            `core.inbox.triggered`.
        HANDLED: such an entry has ended.
        DENIED: nobody may be answered: the author has left the platform or lost access before the turn could begin.
    """

    RESET = "reset"
    DROPPED = "dropped"
    STOPPED = "stopped"
    DELETED = "deleted"
    SUPERSEDED = "superseded"
    COMMAND = "command"
    RATE_LIMITED = "rate_limited"
    UNADDRESSED = "unaddressed"
    DECIDED = "decided"
    PENDING = "pending"
    HANDLED = "handled"
    DENIED = "denied"


class AcceptResult(Enum):
    """Result of storing a message in the inbox.

    Attributes:
        NEXT: the message is stored; a turn for it begins as soon as a worker is free.
        WAITING: the message is stored, and waits: the session has a running turn or other waiting messages.
        DUPLICATE: a message with this event key was stored before; nothing changes.
    """

    NEXT = auto()
    WAITING = auto()
    DUPLICATE = auto()


@dataclass(frozen=True, slots=True)
class Attachment:
    """A file of an inbox message, which is not downloaded yet.

    Attributes:
        mime_type: the MIME type from the platform.
        size: the size in bytes from the platform; 0 if the platform sent none.
        source: the data by which the adapter downloads the file, such as a URL, in the adapter's own format (JSON).
    """

    name: str
    mime_type: str | None
    size: int
    source: Mapping[str, Any]


def format_file_name(name: str) -> str:
    """Return the name of a file for the prompt: cleaned by `clean_name`, with ( ) in place of [ ]."""
    return clean_name(name, _MAX_FILE_NAME_LENGTH).translate({ord("["): "(", ord("]"): ")"}) or "a file"


def format_file_names(files: Iterable[Attachment]) -> str:
    """Return the names of files for the prompt, as `[files: A, B]`; empty without files."""
    names = ", ".join(format_file_name(file.name) for file in files)
    return f"[files: {names}]" if names else ""


@dataclass(frozen=True, slots=True)
class InboxMessage:
    """A user's message to the bot, as stored in the table `inbox`.

    Attributes:
        event_key: a key that all deliveries of this message have, on every path, and no other message has.
        place: the id of the channel or person of the session; all sessions there have the same place. ADK's `user_id`.
        platform: the name of the platform whose adapter received the message, and shows the reply.
        address: the channel and thread in which the reply is shown, in the adapter's own format (JSON).
        author: the platform's id of the author; for a bot, `BOT_PREFIX` and the id.
        text: the text without the mention of the bot.
        sent_at: the time at which the platform received the message. Messages of a session are answered in this order.
        references: the messages that this one forwards, replies to or asks about, in the adapter's own format (JSON):
            see `channels.intake.context.about_reference`.
        actor: the author with roles; None if the roles are unknown; see `actor_or_author`.
        is_addressed: whether the message mentions the bot, replies to it, or is a direct message. An agent may leave
            other messages without an answer.
        is_in_thread: whether the message is in a thread, which is its session.
        replied_id: the platform's id of the message that this one replies to; empty without one, and on Slack.
        trigger: what began the turn if no person wrote the message.
    """

    event_key: str
    session_id: str
    place: str
    platform: Annotated[str, Field(alias="channel")]  # the key in rows, since version 0.1.0
    address: Mapping[str, Any]
    author: str
    text: str
    sent_at: float
    attachments: tuple[Attachment, ...] = ()
    references: tuple[Mapping[str, Any], ...] = ()
    actor: Actor | None = None
    location: Location = UNKNOWN_LOCATION
    is_addressed: bool = True
    is_in_thread: bool = False
    replied_id: str = ""
    trigger: Trigger | None = None

    @property
    def actor_or_author(self) -> Actor:
        """The author with roles and workspaces, or without them if they are unknown."""
        return self.actor or Actor(self.platform, self.author)

    @property
    def location_names(self) -> tuple[str, ...]:
        """The names of the location in rules of the settings: see `Location.get_names`."""
        return self.location.get_names(self.platform)

    @property
    def forwarded(self) -> list[Mapping[str, Any]]:
        """The messages that this one forwards, of `references`."""
        return [part for part in self.references if "text" in part]

    @property
    def subject(self) -> Mapping[str, Any] | None:
        """The message that this one asks about, of `references`; its files are `attachments`."""
        return next((part[ABOUT] for part in self.references if ABOUT in part), None)

    @property
    def is_prompt(self) -> bool:
        """True if the text is a prompt that this program made: no markup of a platform, and with frames around data."""
        return self.trigger is not None and self.trigger.kind != "schedule"

    @property
    def is_bot(self) -> bool:
        return self.author.startswith(BOT_PREFIX)

    def to_json(self) -> dict[str, Any]:
        data: dict[str, Any] = _MESSAGE_ADAPTER.dump_python(self, by_alias=True)
        return data

    @classmethod
    def from_json(cls, data: Any) -> "InboxMessage":
        """Return the message in a result of `to_json`; raise `ValueError` for other data."""
        return _MESSAGE_ADAPTER.validate_python(data)


_MESSAGE_ADAPTER = TypeAdapter(InboxMessage)


def storable_text(text: str) -> str:
    """Return a text without NUL and lone surrogates, which databases and models reject."""
    return text.replace("\0", "").encode("utf-16", "surrogatepass").decode("utf-16", "replace")
