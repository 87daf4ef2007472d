"""Settings of all channels: replies, attachments, context and backfill."""

from collections.abc import Set
from dataclasses import dataclass, field
from typing import Literal, get_args

#: Default for the messages of a reply; a longer text goes into a file.
MAX_MESSAGES = 5

#: Default for the tokens of other people's messages that a turn may have.
CONTEXT_MAX_TOKENS = 4_000

#: Buttons under a finished answer. Discord has the ratings in the menu of the message.
ExtraButton = Literal["regenerate", "feedback"]
EXTRA_BUTTONS: frozenset[ExtraButton] = frozenset(get_args(ExtraButton))


@dataclass(frozen=True, slots=True)
class AttachmentLimits:
    """Limits of the attachments that are read.

    Attributes:
        max_bytes: bytes of a file.
        max_files: files of a message.
        seconds: seconds that an answer waits for the files of a turn.
    """

    max_bytes: int = 10 * 2**20
    max_files: int = 5
    seconds: float = 20.0


@dataclass(frozen=True, slots=True)
class ReplySettings:
    """Limits of a turn and its reply.

    Attributes:
        time_limit: seconds that a run of the agent may take.
        most_messages: messages of a reply; a longer text goes into a file.
        most_attempts: attempts at a turn whose workers die.
        extras: buttons under a finished answer.
        allowance: limits of the attachments that are read.
    """

    time_limit: float = 600.0
    max_messages: int = MAX_MESSAGES
    max_attempts: int = 3
    extras: Set[ExtraButton] = EXTRA_BUTTONS
    attachment_limits: AttachmentLimits = field(default_factory=AttachmentLimits)


@dataclass(frozen=True, slots=True)
class BackfillLimits:
    """Limits of the backfill.

    Attributes:
        hours: age of the oldest message that is fetched; 0 turns the backfill off.
        messages: newest messages of each place that are answered.
    """

    hours: float = 24.0
    messages: int = 100
