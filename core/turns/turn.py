"""One turn, as the worker has it that runs it."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

from core.inbox_message import InboxMessage
from core.turns.queries import RerunKind
from core.usage.meter import UsageMeter

TurnKind = Literal["message", "approval"] | RerunKind


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
    """One run.

    Attributes:
        id: short enough to be told to a user, who can quote it to an operator.
        messages: what it answers: all that waited when it was claimed for the first time, as it was said.
        kind: whether it is the first to answer its messages, or in which way it does so once more.
        origin: the turn that was the first to answer its messages, under whose id the reply is found and what the
            run has stored.
        run: under which it stores, if it goes on with what another turn had begun.
        model: the one that was chosen for its session, by its full name; none for the default.
        agent: the name of the one that answers.
        claim: how often it was claimed.
        attempt: one more than the leases that expired while a worker had it.
        is_resumed: whether it was claimed before.
        has_waited: whether its messages may bear the sign that they wait, given by whichever process.
        chunks: the platform's ids of the reply's messages as far as they stand.
        text: the final text, once it is kept.
        said: what is shown of another text, where the worker before has handed the turn back.
        cancel: why it is to be ended, if it is.
        is_damaged: whether of what is kept of it not all can be read that it takes to run it.
        meter: counts what its run asks of models.
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
    def newest_message(self) -> InboxMessage:
        """The newest of its messages: the one that the reply answers."""
        return self.messages[-1]
