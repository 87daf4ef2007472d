"""State of a turn while this process runs it, and the latency of its reply."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from channels.base import File
from channels.replies.reply import Reply
from core.agents.run_record import RunRecorder
from core.observability import metrics
from core.tools.human_requests import HumanRequest
from core.turns.turn import Turn

#: A final text, its files, and the approvals that it waits for.
Answer = tuple[str, Sequence[File], Sequence[HumanRequest]]


class ReplyLatency:
    """Records the seconds from the message to the placeholder, the first text and the final text.

    A rerun or a resumed turn is not recorded: its author has seen a reply before.
    """

    def __init__(self, turn: Turn) -> None:
        self._sent_at = turn.newest_message.sent_at
        self._channel = turn.newest_message.channel
        self._pending = ["placeholder", "first_word", "final"] if turn.kind == "message" and not turn.is_resumed else []

    def record_shown(self, has_text: bool) -> None:
        """Record that the reply shows something: text, or the placeholder."""
        self._record("placeholder")
        if has_text:
            self._record("first_word")

    def record_final(self) -> None:
        """Record that the whole reply is shown."""
        self._record("final")

    def _record(self, until: str) -> None:
        if until in self._pending:
            self._pending.remove(until)
            seconds = max(0.0, time.time() - self._sent_at)
            metrics.reply_delays.record(seconds, {"channel": self._channel, "until": until})


@dataclass(slots=True)
class TurnState:
    """State of a turn in this process.

    Attributes:
        reply: None until it is opened.
        clerk: the recorder of the run; None until the agent runs.
        is_revised: whether a message of the turn was edited meanwhile.
        answer: None until it is stored.
    """

    latency: ReplyLatency
    reply: Reply | None = None
    clerk: RunRecorder | None = None
    is_revised: bool = False
    answer: Answer | None = None
