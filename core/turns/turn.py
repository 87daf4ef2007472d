"""A claimed turn: its messages, its reply and its cancel reason."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

from core.errors import UnreadableRowError
from core.messages.inbox_message import InboxMessage
from core.turns.queries import RerunKind
from core.usage.meter import UsageMeter

TurnKind = Literal["message", "decision"] | RerunKind

#: The prefix of a file among the ids of a reply's messages; the file's id and name follow.
FILE_PREFIX = "file:"


class CancelReason(StrEnum):
    """Reason to cancel a turn.

    Attributes:
        RESET: a person reset the session, which deletes its history.
        MESSAGE_DELETED: the authors deleted all messages that the turn answers.
        SHUTDOWN: this process stops; another worker continues the turn.
        LEASE_LOST: another worker claimed the turn, so that this one may not write to it any more.
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
        generation: the number of the session's generation, which counts up with each reset.
        messages: the inbox messages that the turn answers, oldest first; at least one.
        kind: `message`; `retry`, `regenerate` or `revise` for a rerun; `decision` if the turn continues a run after
            people decided its approvals or answered its questions.
        origin: the id of the first turn that answered the messages; the reply and the stored ADK events have this id.
        run: of a `decision` turn and its reruns, the id of the run that they continue; None if that is `origin`.
        model: the full name of the model that was chosen for the session; None for the agent's default.
        claim_number: the number of this claim of the turn, from 1. A write with an older number fails (fencing token).
        attempt: 1, and one more for each worker that died while it ran the turn.
        is_resumed: whether the turn was claimed before.
        may_have_queued_reaction: whether the messages may have the reaction for waiting messages on the platform.
        message_ids: the platform's ids of the messages that show the reply, in their order, then those of its files.
        text: the stored final text; None before it is stored.
        partial_text: the text that the reply showed when the former worker handed the turn back; else empty.
        cancel: the reason to cancel the turn, as stored at the claim; None if it was not cancelled then.
        may_answer_question: False if the session certainly has no question of an agent to a person.
        may_have_followers: False if certainly no other message of the session waited when the turn was claimed.
        fault: a stored row that the turn needs cannot be read, so that the turn only shows this error.
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
    message_ids: tuple[str, ...] = ()
    text: str | None = None
    partial_text: str = ""
    cancel: CancelReason | None = None
    may_answer_question: bool = field(default=True, compare=False)
    may_have_followers: bool = field(default=True, compare=False)
    fault: UnreadableRowError | None = None
    meter: UsageMeter = field(default_factory=UsageMeter, compare=False, repr=False)

    def __post_init__(self) -> None:
        self.meter.turn = self.id

    @property
    def run_id(self) -> str:
        """The id under which ADK's events of the run are stored."""
        return self.run or self.origin

    @property
    def is_addressed(self) -> bool:
        """True if a message of the turn mentions the bot, replies to it, or is a direct message."""
        return any(message.is_addressed for message in self.messages)

    @property
    def is_triggered(self) -> bool:
        """True if no message of a person began the turn."""
        return self.newest_message.trigger is not None

    @property
    def newest_message(self) -> InboxMessage:
        """The last message of `messages`; the reply is shown at the address of this one."""
        return self.messages[-1]
