"""What there is of a turn while it runs here."""

from collections.abc import Sequence
from dataclasses import dataclass

from channels.base import File
from channels.replies.latency import Delays
from channels.replies.reply import Reply
from core.agents.run_record import Clerk
from core.tools.approvals import Approval

#: A whole answer, the files that come with it, and what people are asked for below it.
Answer = tuple[str, Sequence[File], Sequence[Approval]]


@dataclass(slots=True)
class AtWork:
    """What there is of a turn while it runs here.

    Attributes:
        reply: from when it grows.
        clerk: from when its agent is asked.
        is_revised: whether what it answers was edited meanwhile.
        answer: from when it is kept.
    """

    delays: Delays
    reply: Reply | None = None
    clerk: Clerk | None = None
    is_revised: bool = False
    answer: Answer | None = None
