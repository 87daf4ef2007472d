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
        RESET: a person reset the session.
        STOP: a person or an operator stopped the turn.
        MESSAGE_DELETED: the authors deleted all messages that the turn answers.
        SHUTDOWN: this process ends; another worker continues the turn.
        LEASE_LOST: another worker claimed the turn.
    """

    RESET = "reset"
    STOP = "stop"
    MESSAGE_DELETED = "message_deleted"
    SHUTDOWN = "shutdown"
    LEASE_LOST = "lease_lost"


@dataclass(frozen=True, slots=True)
class Turn:
    """One run of the agent for one or more inbox messages, as claimed by a worker.

    Attributes:
        id: ten hexadecimal digits: short enough for a user to quote.
        generation: the life of the session, counted up by each reset.
        messages: all messages that waited at the first claim, oldest first.
        kind: `message`; `retry`, `regenerate` or `revise` for a rerun; `decision` when people decided what a run
            asked.
        origin: the first turn that answered the messages; the reply and the stored events have its id.
        run: of a `decision` turn and its reruns, the id of the run that they continue; None if the id is `origin`.
        model: the full name of the model that was chosen for the session; None for the agent's default.
        agent: the name of the agent.
        claim_number: the number of this claim, from 1: the fencing token of its writes.
        attempt: 1, and one more for each worker that died while it had the turn.
        is_resumed: whether a worker had claimed it before.
        may_have_queued_reaction: whether its messages may have the reaction that shows that they wait.
        chunks: the platform's ids of the messages that show the reply.
        text: the final text, once it is stored; None before.
        partial_text: the text that the reply shows so far, from the worker that handed the turn back.
        cancel: the reason to cancel the turn; None if it is not cancelled.
        is_damaged: whether its stored history cannot be read: the reply then says so.
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
        """True if one of its messages is addressed to the bot.

        Such a message mentions the bot, replies to it, or is a direct message.
        """
        return any(message.is_addressed for message in self.messages)

    @property
    def newest_message(self) -> InboxMessage:
        """The last of `messages`: the reply is shown at its address."""
        return self.messages[-1]
