"""What a run of the agent says while it runs, in the words of this house and not of ADK's."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from core.sessions.history import HistoryWindow
from core.tools.adk_confirmations import ConfirmationRequest
from core.usage.meter import ModelCall, Usage

StreamEventType = Literal[
    "history", "text_delta", "step_reset", "tool_past", "tool_start", "tool_end", "file", "error", "done"
]


@dataclass(frozen=True, slots=True)
class StreamEvent:
    """One thing that happened. What it took (`calls`, `seconds`) makes it no other one.

    Attributes:
        type: `history`: what of the conversation is sent to the model.
            `text_delta`: `text` goes behind what the reply says so far.
            `step_reset`: the reply says `text` now, whatever it said before: a step's final text differs from
            what was streamed of it, or the step starts over.
            `tool_past`: an earlier attempt at the run has called a tool; `data` are the arguments. With an `error`,
            that call has failed.
            `tool_start`, `tool_end`: a tool began or ended; `data` are its arguments or its result, and `seconds` how
            long it took, if that is known. `text` is what is shown while it runs, with the names of arguments in
            braces; empty if its name is to do.
            `file`: a file was made, which goes to the user with the reply; `data` are its `name` and its `version`.
            `error`: with a `call_id`, that call failed and the run goes on; without, the run has failed
            with `error` and this is the last event.
            `done`: the run has ended well; `text` is the whole reply. The last event. With `asks`, it goes on when
            people have decided those.
        calls: of the last event: every model call of the run, also those that failed, and those of agents that ran as
            tools; `usage` is what they come to. What an earlier attempt at the run has made is among them.
    """

    type: StreamEventType
    text: str = ""
    tool: str = ""
    call_id: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)
    error: Exception | None = None
    usage: Usage = field(default_factory=Usage)
    confirmations: tuple[ConfirmationRequest, ...] = ()
    calls: tuple[ModelCall, ...] = field(default=(), compare=False)
    seconds: float | None = field(default=None, compare=False)
    history: HistoryWindow | None = None
