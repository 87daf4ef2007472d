"""State of a turn in the process that runs it, and the latency of its reply."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from channels.base import File
from channels.replies.reply import Reply
from core.agents.run_record import RunRecorder
from core.observability import metrics
from core.tools.human_requests import HumanRequest
from core.turns.automation.context import AutomationContext
from core.turns.turn import Turn

#: A final text, its files, and the approvals and questions that people are to decide.
Answer = tuple[str, Sequence[File], Sequence[HumanRequest]]


class ReplyLatency:
    """Records in a metric the seconds from a user's message to stages of its reply.

    The stages are the placeholder, the first text and the final text. Reruns, resumed turns and turns after a decision
    are not recorded: their authors have seen a reply before. The seconds count from the turn's newest message.
    """

    def __init__(self, turn: Turn) -> None:
        self._sent_at = turn.newest_message.sent_at
        self._platform = turn.newest_message.platform
        self._pending = ["placeholder", "first_text", "final"] if turn.kind == "message" and not turn.is_resumed else []

    def record_shown(self, has_text: bool) -> None:
        """Record that the placeholder is shown now, or the first text; only the first call of each does something."""
        self._record("placeholder")
        if has_text:
            self._record("first_text")

    def record_final(self) -> None:
        self._record("final")

    def _record(self, until: str) -> None:
        if until in self._pending:
            self._pending.remove(until)
            seconds = max(0.0, time.time() - self._sent_at)
            metrics.reply_delays.record(seconds, {"platform": self._platform, "stage": until})


@dataclass(slots=True)
class TurnState:
    """State of a turn while this process runs it.

    Attributes:
        reply: None until it is opened.
        recorder: None until the agent runs.
        automation: None until the agent runs.
        is_revised: whether a user edited a message of the turn since the turn was claimed.
        notice: the sentence on messages that were left out; empty for none.
        answer: None until the final text is stored.
    """

    latency: ReplyLatency
    reply: Reply | None = None
    recorder: RunRecorder | None = None
    automation: AutomationContext | None = None
    is_revised: bool = False
    notice: str = ""
    answer: Answer | None = None
