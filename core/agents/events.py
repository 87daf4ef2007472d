"""Stream events: the output of one run of the agent, without ADK's types."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from core.models.grounding import Source
from core.sessions.history import HistoryWindow
from core.tools.adk_confirmations import ConfirmationRequest
from core.tools.adk_requests import CredentialRequest, QuestionRequest
from core.usage.meter import ModelCall, Usage

StreamEventType = Literal[
    "history", "text_delta", "step_reset", "tool_past", "tool_start", "tool_wait", "tool_end", "file", "error", "done"
]


@dataclass(frozen=True, slots=True)
class StreamEvent:
    """One event of a run of the agent. `==` ignores `calls` and `seconds`.

    Attributes:
        type: the kind of the event, which decides what the other fields mean:
            - `history`: the attribute `history` describes the part of the session that the model gets.
            - `text_delta`: `text` is appended to the reply.
            - `step_reset`: `text` replaces the whole reply, since a step's final text differs from its partial texts,
              or a step or the run starts over.
            - `tool_past`: an earlier attempt at the run called a tool; `data` are the arguments. With an `error`, the
              call failed.
            - `tool_start`, `tool_end`: a tool began or ended; `data` are its arguments or its result. `text` is shown
              while the tool runs, with argument names in braces; empty shows the tool's name.
            - `tool_wait`: a call waits for a person's approval or sign-in; it does not end in this run.
            - `file`: the run saved a file for the user; `data` are its `name` and its `version`.
            - `error`: with a `call_id`, the call failed, its `tool_end` follows, and the run continues. Without one,
              the run failed with `error`, and this is the last event.
            - `done`: the last event: the run succeeded; `text` is the whole reply. With `confirmations`, `questions` or
              `sign_ins`, the run continues when people have decided and answered them.
        tool: the name of the tool; empty for events of no tool.
        call_id: the id of the tool call; empty for events of no call.
        usage: of the last event: the sums of the token counts of `calls`.
        confirmations: of `done`: the tool calls that need a person's approval.
        questions: of `done`: the questions for which the run waits.
        sign_ins: of `done`: the tool calls that need a person's credential.
        sources: of `done`: the web pages that the reply is based on.
        calls: of the last event: all model calls of the run, with failed ones, those of agents that ran as tools, and
            those of earlier attempts.
        seconds: duration of the tool call; None if unknown.
    """

    type: StreamEventType
    text: str = ""
    tool: str = ""
    call_id: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)
    error: Exception | None = None
    usage: Usage = field(default_factory=Usage)
    confirmations: tuple[ConfirmationRequest, ...] = ()
    questions: tuple[QuestionRequest, ...] = ()
    sign_ins: tuple[CredentialRequest, ...] = ()
    sources: tuple[Source, ...] = ()
    calls: tuple[ModelCall, ...] = field(default=(), compare=False)
    seconds: float | None = field(default=None, compare=False)
    history: HistoryWindow | None = None
