"""Interface of a local Slack or Discord for its users, the same for both."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import Protocol

from chatrig.client.forms import ClientField, ClientForm, FormValues

NO_FILES: Mapping[str, bytes] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class PlatformUser:
    id: str
    name: str


class ThreadSupport(Enum):
    """Kinds of channels by the messages in them that can have threads.

    Attributes:
        NONE: no message (Discord DMs).
        OPTIONAL: a message may have a thread.
        ALWAYS: each message starts a conversation of its own in its thread (Slack DMs, forums).
    """

    NONE = "none"
    OPTIONAL = "some"
    ALWAYS = "all"


@dataclass(frozen=True, slots=True)
class ClientLocation:
    """Channel, DM with the bot, or a thread of one of them.

    Locations are compared by `channel` and `thread` only.

    Attributes:
        channel: the platform's id of the channel; for a thread, that of its channel.
        thread: the id of the thread's first message; None outside threads.
        name: the displayed name (`#general`, `@bot`); for a thread, its first words.
        is_dm: whether only one user and the bot are there.
        thread_support: the messages that can have threads; for a thread, that of its channel.
    """

    channel: str
    thread: str | None = None
    name: str = field(default="", compare=False)
    is_dm: bool = field(default=False, compare=False)
    thread_support: ThreadSupport = field(default=ThreadSupport.OPTIONAL, compare=False)


@dataclass(frozen=True, slots=True)
class ClientReaction:
    emoji: str
    count: int


@dataclass(frozen=True, slots=True)
class ClientMessage:
    """Snapshot of a message as a user sees it.

    Attributes:
        id: the platform's id, unique within the channel.
        channel: the platform's id of the channel; of a message in a thread, that of the thread's channel.
        author: the displayed name.
        sent_at: seconds since the epoch.
        markdown: the text with file names as CommonMark, without buttons.
        plain_text: the text without markup, with file names, menus and button labels.
        thread: the id of the thread's first message; None for that message and outside threads.
        is_broadcast: whether a reply in a thread is also shown in the channel.
        revision: the number of changes since the message was posted.
        is_edited: whether the platform shows "(edited)".
        ephemeral_to: the id of the only user who sees the message; None for a message to all.
        is_pending: whether the text is incomplete: a live stream of Slack, or a deferred response of Discord.
        reply_to: the message to which this one replies outside of threads, without its own `reply_to`.
        reply_count: the number of replies in the message's own thread.
        newest_reply: the newest message in that thread; None without replies.
        buttons: the platform's button ids by label.
        links: the addresses of link buttons by label. Slack's are in `buttons`, too: the app learns of a click.
        menus: the menus and pickers.
    """

    id: str
    channel: str
    author: str
    is_from_bot: bool
    sent_at: float
    markdown: str
    plain_text: str
    thread: str | None = None
    is_broadcast: bool = False
    revision: int = 0
    is_edited: bool = False
    ephemeral_to: str | None = None
    is_pending: bool = False
    reply_to: "ClientMessage | None" = None
    reactions: tuple[ClientReaction, ...] = ()
    reply_count: int = 0
    newest_reply: "ClientMessage | None" = None
    buttons: Mapping[str, str] = field(default_factory=dict)
    links: Mapping[str, str] = field(default_factory=dict)
    menus: tuple[ClientField, ...] = ()
    has_files: bool = False


class ClientEventKind(Enum):
    POSTED = "posted"
    UPDATED = "updated"
    DELETED = "deleted"
    REACTED = "reacted"


@dataclass(frozen=True, slots=True)
class ClientEvent:
    """Change of a message.

    Attributes:
        message: the message after the change or, if it was deleted, before the deletion. Its `reply_count` is 0, and
            its `newest_reply` None.
    """

    kind: ClientEventKind
    message: ClientMessage


class ActionRefusedError(Exception):
    """Refusal of a user's action; the error's text is shown to the user."""


class ClientPlatform(Protocol):
    """Local Slack or Discord as its users see and use it.

    The data is that of the simulator; each method reads it or acts as a user.
    """

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
        """True while the bot is connected to the platform."""
        ...

    async def wait_until_connected(self, seconds: float) -> bool:
        """Wait until the bot is connected; return False if it is not within `seconds`."""
        ...

    @property
    def people(self) -> Sequence[PlatformUser]: ...

    @property
    def channels(self) -> Sequence[ClientLocation]:
        """All channels, also those that only some users can see; no DMs and threads."""
        ...

    def get_dm(self, person: PlatformUser) -> ClientLocation:
        """Return the DM of a user and the bot; create it if it does not exist."""
        ...

    def list_threads(self, person: PlatformUser) -> Sequence[ClientLocation]:
        """Return the threads that a user can see, the one with the newest reply first.

        Slack: the threads in channels that the user cannot see are included.
        """
        ...

    def list_messages(self, place: ClientLocation, person: PlatformUser) -> Sequence[ClientMessage]:
        """Return the messages of a location, oldest first, as a user sees them there.

        Ephemeral messages to other users are left out. It is not checked that the user can see the location.
        Of the replies in threads, only broadcast ones are messages of the channel. A thread's first message is also a
        message of the thread.
        """
        ...

    async def post_message(
        self, person: PlatformUser, place: ClientLocation, text: str, files: Mapping[str, bytes] = NO_FILES
    ) -> ClientMessage:
        """Post a message as a user, and return it; `@name` mentions a user or the bot.

        Args:
            place: channel, DM or thread; a thread that does not exist yet is started. In a forum, the message starts a
                post.
            files: bytes by file name.

        Raises:
            ActionRefusedError: the platform does not accept the message there. Discord: also for files that would start
                a post.
        """
        ...

    async def edit_message(self, person: PlatformUser, message: ClientMessage, text: str) -> None:
        """Replace the text of a user's own message.

        Raises:
            ActionRefusedError: another user wrote the message, or it is deleted.
        """
        ...

    async def delete_message(self, person: PlatformUser, message: ClientMessage) -> None:
        """Delete a user's own message.

        Raises:
            ActionRefusedError: another user wrote the message, or it is deleted.
        """
        ...

    @property
    def menu_entries(self) -> Sequence[str]:
        """Names of the bot's entries in the context menu of each message.

        These are Slack's message shortcuts and Discord's message commands.
        """
        ...

    async def use_menu_entry(self, person: PlatformUser, message: ClientMessage, entry: str, text: str) -> None:
        """Select an entry of the bot in a message's context menu.

        Args:
            entry: a name in `menu_entries`.
            text: the value for each input of the modal that the bot opens, which is then submitted. Discord: for text
                inputs only. With "", the modal stays open; Slack raises as well. Without a modal, Slack ignores the
                text.

        Raises:
            ActionRefusedError: the message is deleted, or the bot did not accept the form. Slack: also if the bot did
                not respond, or opened a modal and `text` is "". Discord: also for a text without a modal, or an entry
                that does not exist.
            KeyError: Slack: the entry does not exist.
        """
        ...

    async def run_command(self, person: PlatformUser, place: ClientLocation, name: str, text: str) -> None:
        """Run the slash command `/name text` as a user in a channel, DM or thread.

        If the bot does not respond, the platform posts its error message there.

        Raises:
            ActionRefusedError: the command does not exist, or cannot be used there. Discord: also for a wrong option.
        """
        ...

    async def click_button(self, person: PlatformUser, message: ClientMessage, button: str) -> None:
        """Click a button of a message as a user.

        If the bot does not respond, Discord posts its error message, and Slack raises.

        Args:
            button: an id in `ClientMessage.buttons`.

        Raises:
            ActionRefusedError: the message or button does not exist. Slack: also if the bot did not respond.
        """
        ...

    async def select_values(
        self, person: PlatformUser, message: ClientMessage, menu: str, values: Sequence[str]
    ) -> None:
        """Select options, or a date or time, in a menu of a message as a user.

        If the bot does not respond, Discord posts its error message, and Slack raises.

        Args:
            menu: the id of the menu.
            values: values of the options, or one date or time as HTML's inputs write it.

        Raises:
            ActionRefusedError: the menu does not exist or accept the values. Slack: also if the bot did not respond.
        """
        ...

    def find_form(self, person: PlatformUser) -> ClientForm | None:
        """Return the form that is open for a user, the top one of several.

        It is None if no form is open.
        """
        ...

    async def submit_form(self, person: PlatformUser, form: str, values: FormValues) -> None:
        """Submit an open form as a user.

        Slack: if the bot refuses entries, or a required one is empty, the form stays open, and its fields have the
        errors.

        Args:
            form: the id of the form.
            values: entries by field id; the other fields have their present entries.

        Raises:
            ActionRefusedError: the form is closed, an entry does not fit its field, or the bot did not respond.
        """
        ...

    def close_form(self, person: PlatformUser, form: str) -> None:
        """Close a form of a user without submitting it.

        Slack: the bot gets `view_closed` if the modal has `notify_on_close`.

        Args:
            form: the id of the form.

        Raises:
            ActionRefusedError: the form is closed already, or another one covers it.
        """
        ...

    async def wait_for_change(self) -> None:
        """Wait until a message, a form or anything else that users see may have changed."""
        ...

    def changes(self) -> AsyncGenerator[ClientEvent, None]:
        """Yield each change of a message from this call on, in order.

        Changes of each user's ephemeral messages are included. The generator ends with the simulator.
        """
        ...


def shorten_text(text: str, length: int = 40) -> str:
    """Return a text as one line of at most `length` characters, cut with an ellipsis.

    Line ends and several spaces become one space.
    """
    words = " ".join(text.split())
    return words if len(words) <= length else f"{words[: length - 1].rstrip()}…"
