"""Triggers: the causes of turns that no message of a person begins."""

from dataclasses import dataclass
from typing import Literal

#: A `schedule` of a person, a request to a `hook`, or a finished background `job`. Also the `kind` of the inbox row.
TriggerKind = Literal["schedule", "hook", "job"]

TRIGGER_KINDS: tuple[TriggerKind, ...] = ("schedule", "hook", "job")

#: Seconds after which a turn is late.
LATE_SECONDS = 120.0

#: How a background job ended.
JobOutcome = Literal["done", "failed", "interrupted"]

#: The target of a direct message to the author.
DIRECT = "dm"


@dataclass(frozen=True, slots=True)
class Trigger:
    """Cause of a turn that no message began.

    Attributes:
        id: the id of the schedule or job, or the name of the hook.
        title: one line that people see above the answer, as plain text; of a job, the name of the tool.
        due_at: when the turn was to begin.
        is_plain: whether people see the text of the message as it is, and no agent runs.
        target: `DIRECT`, or the platform's id of the channel in which the turn begins; empty for the message's address.
        agent: the name of the agent; empty for that of the session.
        outcome: of a job, how it ended.
        is_shared: of a job, whether words of several people led to it: then its turn has the rights of nobody.
    """

    kind: TriggerKind
    id: str
    title: str
    due_at: float
    is_plain: bool = False
    target: str = ""
    agent: str = ""
    outcome: JobOutcome = "done"
    is_shared: bool = False
