"""Automation context: lets tools begin later turns."""

from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import dataclass

from core.messages.identity import User
from core.messages.inbox_message import InboxMessage
from core.messages.trigger import DIRECT
from core.turns.automation.job_runner import JobRunner
from core.turns.automation.jobs import ToolInvocation
from core.turns.automation.schedules import ScheduleStore


@dataclass(slots=True)
class AutomationContext:
    """The running turn, as the cause of later turns that its tools begin.

    Attributes:
        message: the newest message of the turn.
        origin: the `Turn.origin`.
        generation: the number of the session's generation.
        speakers: the people whose words are in the run.
        time_zone: the IANA name of the time zone of the message's author; empty if the platform does not tell.
        can_post: whether the bot can post in the conversation later.
        has_schedules: whether a tool of the turn has made a schedule.
    """

    message: InboxMessage
    origin: str
    generation: int
    speakers: Sequence[User]
    time_zone: str
    can_post: bool
    schedules: ScheduleStore
    jobs: JobRunner
    has_schedules: bool = False

    @property
    def is_shared(self) -> bool:
        """True if words of several people, or of nobody known, are in the run."""
        return len(self.speakers) != 1

    @property
    def job_target(self) -> str:
        """The `Trigger.target` of a job's result: this conversation, or else a direct message to the author."""
        return "" if self.can_post else DIRECT


_current: ContextVar[AutomationContext | None] = ContextVar("automation", default=None)
_call: ContextVar[ToolInvocation | None] = ContextVar("tool_call", default=None)


def find_automation() -> AutomationContext | None:
    """Return the automation context of the running turn; None outside of a turn of Slack or Discord."""
    return _current.get()


def set_current_automation(context: AutomationContext | None) -> None:
    """Set the automation context of this asyncio task and of the tasks that it starts."""
    _current.set(context)


def find_call() -> ToolInvocation | None:
    """Return the running tool call; None outside of a tool, and in a session that is not stored."""
    return _call.get()


def set_current_call(call: ToolInvocation | None) -> None:
    """Set the tool call of this asyncio task and of the tasks that it starts."""
    _call.set(call)
