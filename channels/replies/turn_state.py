"""Runtime state of a turn while this process answers it, and the latency of its reply."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from channels.base import File
from channels.replies.reply import Reply
from core.agents.run_record import Clerk
from core.observability import metrics
from core.tools.approvals import Approval
from core.turns.turn import Turn

#: A whole answer, the files that come with it, and what people are asked for below it.
Answer = tuple[str, Sequence[File], Sequence[Approval]]


class ReplyLatency:
    """Of one turn's reply: told once for the placeholder, the first word and the final text, from when the message was
    sent that it answers. Who asks for the same once more, or whose answer is taken up from another worker, has seen
    something of it before: nothing is told of that.
    """

    def __init__(self, turn: Turn) -> None:
        self._sent_at = turn.newest_message.sent_at
        self._channel = turn.newest_message.channel
        self._pending = ["placeholder", "first_word", "final"] if turn.kind == "message" and not turn.is_resumed else []

    def record_shown(self, has_text: bool) -> None:
        """Something is shown of it: text, or what stands in its place."""
        self._record("placeholder")
        if has_text:
            self._record("first_word")

    def record_final(self) -> None:
        """All of it is shown."""
        self._record("final")

    def _record(self, until: str) -> None:
        if until in self._pending:
            self._pending.remove(until)
            seconds = max(0.0, time.time() - self._sent_at)
            metrics.delays.record(seconds, {"channel": self._channel, "until": until})


@dataclass(slots=True)
class TurnState:
    """What there is of a turn while it runs here.

    Attributes:
        reply: from when it grows.
        clerk: from when its agent is asked.
        is_revised: whether what it answers was edited meanwhile.
        answer: from when it is kept.
    """

    latency: ReplyLatency
    reply: Reply | None = None
    clerk: Clerk | None = None
    is_revised: bool = False
    answer: Answer | None = None
