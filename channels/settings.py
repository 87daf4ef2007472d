"""Settings of all platforms: replies, attachments, context and backfill."""

from collections.abc import Set
from dataclasses import dataclass, field
from typing import Literal, get_args

#: Most messages of a reply; a longer text goes into a file.
MAX_MESSAGES = 5

#: Most files of a message that the model reads.
MAX_FILES = 5

#: Most messages that a backfill answers.
MAX_BACKFILL_MESSAGES = 100

#: Default for the tokens of other people's messages that a turn may have.
CONTEXT_MAX_TOKENS = 4_000

#: Buttons under a finished answer. Discord has the ratings in the menu of the message.
ExtraButton = Literal["regenerate", "feedback"]
EXTRA_BUTTONS: frozenset[ExtraButton] = frozenset(get_args(ExtraButton))


@dataclass(frozen=True, slots=True)
class AttachmentLimits:
    """Limits of the attachments that the model reads.

    For a file beyond a limit, the model gets only its name and the reason. `max_files` are those of a message;
    `seconds` is the longest wait of a turn for the downloads of all its files.
    """

    max_bytes: int = 10 * 2**20
    max_files: int = MAX_FILES
    seconds: float = 20.0


@dataclass(frozen=True, slots=True)
class ReplySettings:
    """Limits of a turn and its reply.

    Attributes:
        time_limit: the most seconds of one run of the agent; a longer run is cancelled, and the turn ends as failed.
        max_messages: the most messages of a reply. They show the start of a longer text, and a file has the whole.
        max_attempts: the most attempts of a turn whose workers died; then it ends as failed.
    """

    time_limit: float = 600.0
    max_messages: int = MAX_MESSAGES
    max_attempts: int = 3
    extra_buttons: Set[ExtraButton] = EXTRA_BUTTONS
    attachment_limits: AttachmentLimits = field(default_factory=AttachmentLimits)


@dataclass(frozen=True, slots=True)
class BackfillLimits:
    """Limits of the backfill (answering messages that were missed while disconnected).

    Attributes:
        hours: the most hours since a missed message was sent; older ones stay unanswered. 0 turns the backfill off.
        messages: the most messages that are answered after one disconnection, in all channels of a platform together.
            Of a channel that exceeds the rest of the limit, the oldest messages are dropped.
    """

    hours: float = 24.0
    messages: int = MAX_BACKFILL_MESSAGES
