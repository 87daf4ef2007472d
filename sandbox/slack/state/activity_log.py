"""What happened in the sandbox, in the order it did: calls, envelopes and changes, for whoever watches."""

from dataclasses import dataclass
from time import monotonic
from typing import Any, Literal

from sandbox import subscriptions as watch
from sandbox.slack.state.workspace import WorkspaceChange


@dataclass(eq=False, slots=True)
class SlackCallRecord:
    """One call of the Web API, one post to a `response_url` (its method is `response_url`), or one sending of a file's
    bytes (`upload`).

    Attributes:
        status: the HTTP status that was answered; 0 as long as none was, and for a reply that was lost.
        error: what Slack put into `error`, `ratelimited` included; None for a call that succeeded.
        at: when it came, on the monotonic clock, in seconds.
        rate_limited: whether a rate limit (or `SlackFaults.rate_limit`) refused it.
        reply: the body that was answered, or would have been.
        budget: what was left, of how many, in the scarcest of the windows that it counts in.
    """

    method: str
    arguments: dict[str, Any]
    received_at: float
    status: int = 0
    error: str | None = None
    rate_limited: bool = False
    response: dict[str, Any] | None = None
    remaining: tuple[int, int] | None = None


@dataclass(eq=False, slots=True)
class EnvelopeRecord:
    """One sending of one Socket Mode envelope; a redelivery is another one with the same `id`.

    Attributes:
        type: `events_api`, `slash_commands` or `interactive`.
        attempt: 0 for the first delivery, then what `retry_attempt` said.
        reason: what `retry_reason` said.
        sent_at, acknowledged_at: on the monotonic clock, in seconds.
        response: the payload that came with the acknowledgement.
    """

    id: str
    type: Literal["events_api", "slash_commands", "interactive"]
    payload: dict[str, Any]
    sent_at: float
    attempt: int = 0
    reason: str = ""
    acknowledged_at: float | None = None
    response: dict[str, Any] | None = None


Subscription = watch.Subscription[WorkspaceChange]


class SlackActivityLog(watch.ChangeFeed[WorkspaceChange]):
    """Keeps what happened, and wakes whoever waits for something to happen."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[SlackCallRecord] = []
        self.envelopes: list[EnvelopeRecord] = []

    def record_call(self, method: str, arguments: dict[str, Any]) -> SlackCallRecord:
        call = SlackCallRecord(method, arguments, monotonic())
        self.calls.append(call)
        self.notify()
        return call
