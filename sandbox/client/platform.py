"""What a person sees of a platform, and does there; the same for every platform."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import Protocol

#: No files come along.
NO_FILES: Mapping[str, bytes] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class PlatformUser:
    id: str
    name: str


class ThreadSupport(Enum):
    """Which messages of a place have threads."""

    NONE = "none"
    SOME = "some"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class ClientLocation:
    """Where one speaks: a channel, the direct line to the bot, or a thread of one of them.

    Attributes:
        channel: the platform's id of the channel, for a thread of the one that it belongs to.
        thread: the id of the thread, which is that of its first message, if it is a thread.
        name: what people call it, its sign included (`#general`, `@parley`); a thread has its opening words.
        direct: whether only one person and the bot are there.
        threads: whether one can answer a message here in a thread, or it is done with each (for a thread: there
            where it belongs).
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
    """A message as it stands now.

    Attributes:
        id: the platform's, unique within the channel.
        thread: the id of the first message of the thread that it is a reply in.
        sent_at: seconds since the epoch.
        text: Markdown.
        plain: the same in plain letters.
        revision: how often it was changed since it was posted.
        edited: whether the platform says "(edited)" beside it.
        only_for: the id of the one person who sees it.
        pending: whether the platform itself says that the text is yet to come.
        reply_to: the message that it refers to, beside any thread; without that one's own.
        replies: how many messages its thread holds beside it.
        newest: the newest of them.
        buttons: the platform's ids of its buttons, by what is on them.
        has_files: whether files came with it.
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
    """Something changed: `message` is how it stands after that (before it, if it was deleted)."""

    kind: ClientEventKind
    message: ClientMessage


class ActionRefusedError(Exception):
    """The platform does not do what the person asked for; the text is what it tells the person."""


class ClientPlatform(Protocol):
    """A sandbox, as the people in it see it."""

    @property
    def name(self) -> str:
        """What the platform is called (`Slack`)."""
        ...

    @property
    def bot_name(self) -> str:
        """The bot's name, without a sign."""
        ...

    @property
    def is_connected(self) -> bool:
        """Whether the bot hears what is said."""
        ...

    async def wait_until_connected(self, seconds: float) -> bool:
        """Wait until the bot hears what is said; False if it does not."""
        ...

    @property
    def people(self) -> Sequence[PlatformUser]: ...

    @property
    def channels(self) -> Sequence[ClientLocation]:
        """The places that everyone shares."""
        ...

    def get_dm(self, person: PlatformUser) -> ClientLocation:
        """Where the person speaks with the bot alone."""
        ...

    def list_threads(self, person: PlatformUser) -> Sequence[ClientLocation]:
        """The threads that the person can see, the one with the newest reply first."""
        ...

    def list_messages(self, place: ClientLocation, person: PlatformUser) -> Sequence[ClientMessage]:
        """What the person sees in the place, oldest first; a thread begins with its first message."""
        ...

    async def post_message(
        self, person: PlatformUser, place: ClientLocation, text: str, files: Mapping[str, bytes] = NO_FILES
    ) -> ClientMessage:
        """Say it as it was typed; `@name` mentions whoever has that name. The first words of a thread begin it.

        Args:
            files: what comes along, by name.

        Raises:
            RefusedError: one cannot speak there (any more).
        """
        ...

    async def edit_message(self, person: PlatformUser, message: ClientMessage, text: str) -> None:
        """Let one's own message say something else, as it was typed.

        Raises:
            RefusedError: it is gone, or somebody else's.
        """
        ...

    async def delete_message(self, person: PlatformUser, message: ClientMessage) -> None:
        """Delete one's own message.

        Raises:
            RefusedError: it is gone, or somebody else's.
        """
        ...

    @property
    def menu_entries(self) -> Sequence[str]:
        """What the bot has in the menu of each message."""
        ...

    async def use_menu_entry(self, person: PlatformUser, message: ClientMessage, entry: str, text: str) -> None:
        """Choose an entry of a message's menu.

        Args:
            text: what is filled in, where the bot then asks for something.

        Raises:
            RefusedError: there is no such entry, nobody has heard, or what it asks for is missing.
        """
        ...

    async def run_command(self, person: PlatformUser, place: ClientLocation, name: str, text: str) -> None:
        """Use the command `/name text`.

        Raises:
            RefusedError: there is no such command, or not in this place.
        """
        ...

    async def click_button(self, person: PlatformUser, message: ClientMessage, button: str) -> None:
        """Press a button of a message.

        Args:
            button: its id.

        Raises:
            RefusedError: it is not there any more, or nobody has heard.
        """
        ...

    def changes(self) -> AsyncGenerator[ClientEvent, None]:
        """Everything that happens from this call on."""
        ...


def shorten_text(text: str, length: int = 40) -> str:
    """The first words of a text, on one line."""
    words = " ".join(text.split())
    return words if len(words) <= length else f"{words[: length - 1].rstrip()}…"
