"""A turn, as the worker that runs it sees it."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

from core.inbox_message import InboxMessage
from core.turns.queries import RerunKind
from core.usage.meter import UsageMeter

TurnKind = Literal["message", "decision"] | RerunKind


class CancelReason(StrEnum):
    """Reason to cancel a turn.

    Attributes:
        MESSAGE_DELETED: the authors deleted all messages that the turn answers.
        LEASE_LOST: another worker claimed the turn.
    """

    RESET = "reset"
    STOP = "stop"
    MESSAGE_DELETED = "message_deleted"
    SHUTDOWN = "shutdown"
    LEASE_LOST = "lease_lost"


@dataclass(frozen=True, slots=True)
class Turn:
    """One run of the agent.

    Attributes:
        id: short enough for a user to quote.
        messages: all messages that waited at the first claim.
        kind: `message`, or how the turn repeats or continues another one.
        origin: the first turn that answered the messages; the reply and the stored events have its id.
        run: the id under which the run stores events, if it continues another turn.
        model: the full name of the session's model; None for the default.
        agent: the name of the agent.
        claim_number: how often the turn was claimed.
        attempt: one more than the leases that expired while a worker had the turn.
        is_resumed: whether it was claimed before.
        may_have_queued_reaction: whether its messages may have the reaction that says that they wait.
        chunks: the platform's ids of the reply's messages.
        text: the final text, once it is stored.
        partial_text: the text that the reply shows when a worker hands the turn back.
        cancel: the reason to cancel the turn, if there is one.
        is_damaged: whether its stored history cannot be read.
        meter: counts what the run uses of models.
    """

    id: str
    session_id: str
    generation: int
    messages: tuple[InboxMessage, ...]
    kind: TurnKind
    origin: str
    run: str | None = None
    model: str | None = None
    agent: str = ""
    claim_number: int = field(default=1, compare=False)
    attempt: int = 1
    is_resumed: bool = False
    may_have_queued_reaction: bool = field(default=False, compare=False)
    chunks: tuple[str, ...] = ()
    text: str | None = None
    partial_text: str = ""
    cancel: CancelReason | None = None
    is_damaged: bool = False
    meter: UsageMeter = field(default_factory=UsageMeter, compare=False, repr=False)

    def __post_init__(self) -> None:
        self.meter.turn = self.id

    @property
    def is_addressed(self) -> bool:
        """Return whether a message of the turn is addressed to the bot."""
        return any(message.is_addressed for message in self.messages)

    @property
    def newest_message(self) -> InboxMessage:
        """The message that the reply answers."""
        return self.messages[-1]
