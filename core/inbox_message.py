"""Messages to the bot as the core sees them, whatever platform they came from."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Literal

import regex  # type: ignore[import-untyped]  # it comes without types
from pydantic import TypeAdapter

from core.identity import BOT_PREFIX, UNKNOWN_LOCATION, Actor, Location

#: Characters that are invisible or look like others: controls, default ignorables, spaces of other widths, two blanks.
INVISIBLE = regex.compile(
    r"[\p{C}\p{Default_Ignorable_Code_Point}\p{Zl}\p{Zp}\p{Zs}\u2800\U0001D159--[ \n\u3000]]", regex.VERSION1
)


#: Messages without a mention that are for the bot in a conversation that it has joined: none, those of the last author
#: that it answered, or all.
ReplyWithoutMention = Literal["never", "author", "everyone"]


class InboxOutcome(StrEnum):
    """Reason why no turn answers an inbox message.

    Attributes:
        RESET: it was a reset.
        DROPPED: it waited when its session was reset.
        STOPPED: it waited when a person stopped the bot.
        DELETED: its author deleted it.
        UNREADABLE: its row cannot be parsed.
        SUPERSEDED: a reset or retry that came too late.
        COMMAND: it was another command; the row's `kind` is the name.
        RATE_LIMITED: its author or place sent too many messages.
        UNADDRESSED: it was for other people.
    """

    RESET = "reset"
    DROPPED = "dropped"
    STOPPED = "stopped"
    DELETED = "deleted"
    UNREADABLE = "unreadable"
    SUPERSEDED = "superseded"
    COMMAND = "command"
    RATE_LIMITED = "rate_limited"
    UNADDRESSED = "unaddressed"


@dataclass(frozen=True, slots=True)
class Attachment:
    """A file of an inbox message, which is not downloaded yet.

    Attributes:
        name: the file name that its sender chose.
        mime_type: as the platform says; None if it says none.
        size: in bytes, as the platform says; 0 if it says none.
        source: where the adapter gets the bytes, in its own format (JSON).
    """

    name: str
    mime_type: str | None
    size: int
    source: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class InboxMessage:
    """A message that asks the bot for an answer.

    Attributes:
        event_key: the same for each delivery of the message, on every path, and for no other.
        session_id: the session that it belongs to.
        place: the person or channel of the session, stable over its sessions: ADK's `user_id`.
        channel: the name of the adapter that received it, and that shows the reply.
        address: where the reply is shown, in the adapter's own format (JSON).
        author: the platform's id of the author; of a bot, after `BOT_PREFIX`.
        text: the text without the mention of the bot.
        sent_at: when the platform got it, in seconds since the epoch: the order within the session.
        attachments: the files of the message.
        references: the messages that it forwards or replies to, in the adapter's own format, and those that it is a
            question about (JSON): see `channels.intake.context.about`.
        actor: the author with roles; None if the roles are unknown; see `actor_or_author`.
        location: the location of the message.
        is_addressed: whether it mentions the bot, replies to it, or is a direct message. An agent may leave other
            messages without an answer.
    """

    event_key: str
    session_id: str
    place: str
    channel: str
    address: Mapping[str, Any]
    author: str
    text: str
    sent_at: float
    attachments: tuple[Attachment, ...] = ()
    references: tuple[Mapping[str, Any], ...] = ()
    actor: Actor | None = None
    location: Location = UNKNOWN_LOCATION
    is_addressed: bool = True

    @property
    def actor_or_author(self) -> Actor:
        """The author; without roles if nothing more is known."""
        return self.actor or Actor(self.channel, self.author)

    @property
    def location_names(self) -> tuple[str, ...]:
        """The names by which rules refer to the location: see `Location.get_names`."""
        return self.location.get_names(self.channel)

    @property
    def is_bot(self) -> bool:
        """True if the author is a bot."""
        return self.author.startswith(BOT_PREFIX)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Any) -> "InboxMessage":
        """Return the message in the output of `to_json`.

        Raises:
            ValueError: it is something else.
        """
        return _INBOUND.validate_python(data)


_INBOUND = TypeAdapter(InboxMessage)


def storable_text(text: str) -> str:
    """Return a text without NUL, and with U+FFFD for each lone surrogate.

    Databases and models reject these characters.
    """
    return text.replace("\0", "").encode("utf-16", "surrogatepass").decode("utf-16", "replace")
