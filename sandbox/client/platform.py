"""Interface of a local platform for its users; the same for every platform."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import Protocol

NO_FILES: Mapping[str, bytes] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class PlatformUser:
    id: str
    name: str


class ThreadSupport(Enum):
    """Messages of a place that can have threads."""

    NONE = "none"
    SOME = "some"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class ClientLocation:
    """A channel, the direct messages with the bot, or a thread of one of them.

    Attributes:
        channel: the platform's id of the channel, for a thread that of its channel.
        thread: for a thread, the id of its first message.
        name: the displayed name (`#general`, `@parley`); for a thread, its first words.
        is_dm: whether only one user and the bot are there.
        thread_support: the messages that can have threads; for a thread, that of its channel.
    """

    channel: str
    thread: str | None = None
    name: str = field(default="", compare=False)
    is_dm: bool = field(default=False, compare=False)
    thread_support: ThreadSupport = field(default=ThreadSupport.SOME, compare=False)


@dataclass(frozen=True, slots=True)
class ClientReaction:
    emoji: str
    count: int


@dataclass(frozen=True, slots=True)
class ClientMessage:
    """A message as a user sees it.

    Attributes:
        id: the platform's id, unique within the channel.
        thread: for a reply in a thread, the id of the thread's first message.
        sent_at: seconds since the epoch.
        markdown: the text as CommonMark.
        plain_text: the text without markup.
        revision: the number of changes since the message was posted.
        is_edited: whether the platform shows "(edited)".
        ephemeral_to: the id of the only user who sees it.
        is_pending: whether the platform itself shows that the text is still to come.
        reply_to: the message that it replies to outside of threads, without that one's own `reply_to`.
        reply_count: the number of replies in its thread.
        newest_reply: the newest reply in its thread.
        buttons: the platform's button ids by label.
        has_files: whether it has files.
    """

    id: str
    channel: str
    author: str
    is_from_bot: bool
    sent_at: float
    markdown: str
    plain_text: str
    thread: str | None = None
    revision: int = 0
    is_edited: bool = False
    ephemeral_to: str | None = None
    is_pending: bool = False
    reply_to: "ClientMessage | None" = None
    reactions: tuple[ClientReaction, ...] = ()
    reply_count: int = 0
    newest_reply: "ClientMessage | None" = None
    buttons: Mapping[str, str] = field(default_factory=dict)
    has_files: bool = False


class ClientEventKind(Enum):
    POSTED = "posted"
    UPDATED = "updated"
    DELETED = "deleted"
    REACTED = "reacted"


@dataclass(frozen=True, slots=True)
class ClientEvent:
    """A change of a message; `message` is its new state, or its last one if it was deleted."""

    kind: ClientEventKind
    message: ClientMessage


class ActionRefusedError(Exception):
    """Refusal of a user's action; the text is for the user."""


class ClientPlatform(Protocol):
    """A local platform for its users."""

    @property
    def name(self) -> str:
        """The platform's name (`Slack`)."""
        ...

    @property
    def bot_name(self) -> str:
        """The bot's name without `@`."""
        ...

    @property
    def is_connected(self) -> bool:
        """True while the bot is connected."""
        ...

    async def wait_until_connected(self, seconds: float) -> bool:
        """Wait until the bot is connected; False after a timeout."""
        ...

    @property
    def people(self) -> Sequence[PlatformUser]: ...

    @property
    def channels(self) -> Sequence[ClientLocation]:
        """The channels that everybody can see."""
        ...

    def get_dm(self, person: PlatformUser) -> ClientLocation:
        """Return the direct messages of a user with the bot."""
        ...

    def list_threads(self, person: PlatformUser) -> Sequence[ClientLocation]:
        """Return the threads that a user can see, the one with the newest reply first."""
        ...

    def list_messages(self, place: ClientLocation, person: PlatformUser) -> Sequence[ClientMessage]:
        """Return a place's messages for a user, oldest first; a thread includes its first one."""
        ...

    async def post_message(
        self, person: PlatformUser, place: ClientLocation, text: str, files: Mapping[str, bytes] = NO_FILES
    ) -> ClientMessage:
        """Post a message as typed; `@name` mentions a user or the bot.

        Args:
            place: a thread that does not exist yet is started.
            files: bytes by file name.

        Raises:
            ActionRefusedError: the user cannot post there.
        """
        ...

    async def edit_message(self, person: PlatformUser, message: ClientMessage, text: str) -> None:
        """Edit a user's own message.

        Raises:
            ActionRefusedError: another user wrote it, or it is deleted.
        """
        ...

    async def delete_message(self, person: PlatformUser, message: ClientMessage) -> None:
        """Delete a user's own message.

        Raises:
            ActionRefusedError: another user wrote it, or it is deleted.
        """
        ...

    @property
    def menu_entries(self) -> Sequence[str]:
        """The bot's entries in the menu of each message."""
        ...

    async def use_menu_entry(self, person: PlatformUser, message: ClientMessage, entry: str, text: str) -> None:
        """Use an entry of a message's menu.

        Args:
            text: the input for the form that the bot opens, if any.

        Raises:
            ActionRefusedError: the entry does not exist, the bot did not respond, or the text is missing.
        """
        ...

    async def run_command(self, person: PlatformUser, place: ClientLocation, name: str, text: str) -> None:
        """Run the command `/name text`.

        Raises:
            ActionRefusedError: the command does not exist, or not in this place.
        """
        ...

    async def click_button(self, person: PlatformUser, message: ClientMessage, button: str) -> None:
        """Click a button of a message.

        Args:
            button: its id.

        Raises:
            ActionRefusedError: the button does not exist, or the bot did not respond.
        """
        ...

    def changes(self) -> AsyncGenerator[ClientEvent, None]:
        """Yield all events from this call on."""
        ...


def shorten_text(text: str, length: int = 40) -> str:
    """Return the first words of a text on one line."""
    words = " ".join(text.split())
    return words if len(words) <= length else f"{words[: length - 1].rstrip()}…"
