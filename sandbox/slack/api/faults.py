"""Faults that tests inject into the local Slack."""

from collections.abc import Collection
from dataclasses import dataclass

from sandbox.fault_queue import FaultKind, FaultQueue


@dataclass(frozen=True, slots=True, eq=False)
class SlackFault:
    """Fault of one call, compared by identity.

    Attributes:
        status, error: of a `fail`: the HTTP status, or Slack's error code with HTTP 200.
        seconds: of a `rate_limit`: the `Retry-After`; of a `delay`: real seconds.
    """

    kind: FaultKind
    status: int = 500
    error: str | None = None
    seconds: float = 0


class SlackFaults:
    """Faults that tests inject; each call takes the first one that is pending for its method.

    Methods have Slack's names (`chat.postMessage`). `response_url` is a post to a response URL; `upload` and
    `download` transfer the content of a file. With several methods, the first one called gets the fault.

    Attributes:
        latency: delay of each request, response and envelope, in real seconds.
    """

    def __init__(self) -> None:
        self._pending = FaultQueue[SlackFault]()
        self._handshake_refusals = 0
        self.latency = 0.0

    def fail(
        self, method: str | Collection[str], times: int = 1, *, status: int = 500, error: str | None = None
    ) -> None:
        """Reject the next `times` calls with an HTTP status or, if given, with HTTP 200 and a Slack `error`."""
        self._add(method, times, SlackFault("fail", status=status, error=error))

    def rate_limit(self, method: str | Collection[str], retry_after: int, times: int = 1) -> None:
        """Reject the next `times` calls with HTTP 429 and `Retry-After` in seconds."""
        self._add(method, times, SlackFault("rate_limit", seconds=retry_after))

    def lose_response(self, method: str | Collection[str], times: int = 1) -> None:
        """Run the next `times` calls, but close their connections without a response."""
        self._add(method, times, SlackFault("lose_response"))

    def delay(self, method: str | Collection[str], seconds: float, times: int = 1) -> None:
        """Run the next `times` calls after a delay in real seconds."""
        self._add(method, times, SlackFault("delay", seconds=seconds))

    def refuse_handshakes(self, times: int) -> None:
        """Reject the next `times` WebSocket handshakes with HTTP 500; their tickets are used up."""
        self._handshake_refusals = times

    def set_latency(self, seconds: float) -> None:
        """Delay each request, response and envelope by real seconds; 0 for none."""
        self.latency = seconds

    def clear(self) -> None:
        """Cancel all pending faults and the latency."""
        self._pending.clear()
        self._handshake_refusals = 0
        self.latency = 0.0

    def cancel(self, kind: FaultKind) -> None:
        """Cancel all pending faults of this kind."""
        self._pending.cancel(kind)

    def has_pending(self, kind: FaultKind) -> bool:
        """Return whether a fault of this kind is pending."""
        return self._pending.has_pending(kind)

    def take(self, method: str) -> SlackFault | None:
        """Remove and return the next fault of this method; None without one."""
        return self._pending.take(method)

    def take_handshake_refusal(self) -> bool:
        """Return whether to reject this handshake, and count it."""
        if not self._handshake_refusals:
            return False
        self._handshake_refusals -= 1
        return True

    def _add(self, method: str | Collection[str], times: int, fault: SlackFault) -> None:
        self._pending.add([method] if isinstance(method, str) else method, times, fault)
