"""Settings of all channels: replies, attachments, context and backfill."""

from collections.abc import Set
from dataclasses import dataclass, field
from typing import Literal, get_args

#: Default for the messages of a reply; a longer text goes into a file.
MOST_MESSAGES = 5

#: Default for the tokens of other people's messages that a turn may have.
CONTEXT_MAX_TOKENS = 4_000

#: Buttons under a finished answer.
Extra = Literal["regenerate", "feedback", "why"]
EXTRAS: frozenset[Extra] = frozenset(get_args(Extra))


@dataclass(frozen=True, slots=True)
class Allowance:
    """Limits of the attachments that are read.

    Attributes:
        most_bytes: bytes of a file.
        most_files: files of a message.
        seconds: how long an answer waits for the files of a turn.
    """

    most_bytes: int = 10 * 2**20
    most_files: int = 5
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
    most_messages: int = MOST_MESSAGES
    most_attempts: int = 3
    extras: Set[Extra] = EXTRAS
    allowance: Allowance = field(default_factory=Allowance)


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits of the backfill.

    Attributes:
        hours: age of the oldest message that is fetched; 0 turns the backfill off.
        messages: newest messages of each place that are answered.
    """

    hours: float = 24.0
    messages: int = 100
