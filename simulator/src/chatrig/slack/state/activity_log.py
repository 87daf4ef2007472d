"""Log of API calls and envelopes, which also publishes the visible changes."""

from dataclasses import dataclass
from time import monotonic
from typing import Any, Literal

from chatrig.slack.state.workspace import WorkspaceChange
from chatrig.subscriptions import ChangePublisher


@dataclass(eq=False, slots=True)
class SlackCallRecord:
    """Record of one HTTP request of the bot to the local Slack.

    It is a call of the Web API, a post to a `response_url`, or the transfer of a file (`upload`, `download`). For the
    transfer of a file, the fields after `received_at` keep their defaults, except `status`.

    Attributes:
        method: the name of the Web API method; `response_url`, `upload` or `download` for the other requests.
        arguments: the arguments by name, without the token and `client_secret`.
        status: the HTTP status; 0 before the response, and for a lost response.
        error: Slack's error code, or one of the simulator for an HTTP error; None for success.
        received_at: seconds on the monotonic clock.
        rate_limited: whether a rate limit (or `SlackFaults.rate_limit`) rejected the call.
        response: the JSON body of the response, also of a lost one; None without one.
        remaining: (remaining calls, limit) of the method's fullest rate-limit window; None without limits.
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
    """Record of a delivery of an envelope to the app; a redelivery has the same `id`.

    Attributes:
        attempt: 0 for the first delivery, then the number of the retry.
        reason: Slack's reason for the retry; "" for the first delivery.
        sent_at: seconds on the monotonic clock.
        acknowledged_at: seconds on the monotonic clock; None before an acknowledgement.
        response: the payload of the acknowledgement; None without one.
    """

    id: str
    type: Literal["events_api", "slash_commands", "interactive"]
    payload: dict[str, Any]
    sent_at: float
    attempt: int = 0
    reason: str = ""
    acknowledged_at: float | None = None
    response: dict[str, Any] | None = None


class SlackActivityLog(ChangePublisher[WorkspaceChange]):
    """Log of all API calls and envelopes, and publisher of the changes of messages."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[SlackCallRecord] = []
        self.envelopes: list[EnvelopeRecord] = []

    def record_call(self, method: str, arguments: dict[str, Any]) -> SlackCallRecord:
        """Add a call that was received now to the log, and return its record.

        The caller sets the record's fields for the response.
        """
        call = SlackCallRecord(method, arguments, monotonic())
        self.calls.append(call)
        self.notify()
        return call
