"""Messages, edits and deletions from a platform, as an adapter parsed them."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal

from channels.commands.handlers import parse_command
from channels.commands.syntax import CommandName
from core.messages.inbox_message import InboxMessage

#: Seconds after a message in which an edit can add a mention of the bot.
EDIT_MENTION_WINDOW_SECONDS = 300.0

#: Action of an entry in the menu of a message: it shows the turn report of the answer, or rates the answer.
MenuAction = Literal["why", "good", "bad"]

#: The most seconds of an entry that is handled in its acknowledgement. Slack and Discord wait for 3.
SYNCHRONOUS_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class IncomingMessage:
    """Message of a user, as an adapter parsed it.

    Attributes:
        is_mention: whether it mentions the bot or replies to it, is a direct message, or has `is_free_channel`. The bot
            answers another message only in a session in which it takes part.
        is_free_channel: whether it does not address the bot, but is in a channel where the bot answers all messages,
            unless the session is muted.
        is_late: whether newer messages may have been received before it.
        is_in_answer_thread: whether it is in a thread that was started on an answer of the bot.
        addresses_others: whether its text begins with a mention of other people, a group or everybody.
        command_prefix: the prefix of slash commands, which may be typed as a message too.
        deny_privately: shows only the author a text on why the message is not answered. It is set if the platform
            shows a failure for a missing answer; each refusal is then shown. If None, the author is told once an hour.
    """

    inbound: InboxMessage
    is_mention: bool
    is_free_channel: bool = False
    is_late: bool = False
    is_in_answer_thread: bool = False
    addresses_others: bool = False
    command_prefix: str = ""
    deny_privately: Callable[[str], Awaitable[None]] | None = None

    @property
    def command(self) -> tuple[CommandName, str] | None:
        """The command and its argument; None if the message does not mention the bot, has files, or is no command."""
        if not self.is_mention or self.inbound.attachments:
            return None
        return parse_command(self.inbound.text, self.command_prefix)


@dataclass(frozen=True, slots=True)
class IncomingChange:
    """Edit or deletion of a user's message.

    Attributes:
        inbound: the change, without a text: its event key, its time, and the session of the message.
        text: the new text without the mention of the bot; None if the message was deleted.
        mention: the edited message, if the edit mentions the bot.
        is_late: see `IncomingMessage`.
    """

    inbound: InboxMessage
    changed_key: str
    text: str | None
    mention: IncomingMessage | None = None
    is_late: bool = False


Incoming = IncomingMessage | IncomingChange
