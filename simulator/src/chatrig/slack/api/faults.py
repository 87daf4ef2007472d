"""Faults that tests and the simulator's page inject into the local Slack's API."""

from collections.abc import Collection
from dataclasses import dataclass

from chatrig.fault_queue import FaultKind, FaultQueue


@dataclass(frozen=True, slots=True, eq=False)
class SlackFault:
    """Fault of one Web API call, compared by identity.

    Attributes:
        status: of a `fail`: the HTTP status.
        error: of a `fail`: Slack's error code, sent with HTTP 200; None to send `status`.
        seconds: of a `rate_limit`: the `Retry-After`; of a `delay`: real seconds.
    """

    kind: FaultKind
    status: int = 500
    error: str | None = None
    seconds: float = 0


class SlackFaults:
    """Faults that tests inject; a call gets the first pending fault of its method.

    Methods have Slack's names (`chat.postMessage`). `response_url` is a post to a response URL; `upload` and
    `download` transfer the content of a file. A fault for several methods goes to the first of them that is called.
    A `delay` has no effect on a file transfer, and a lost response none on a download.

    Attributes:
        latency: delay of each request, response and envelope, but not of file transfers, in real seconds.
    """

    def __init__(self) -> None:
        self._pending = FaultQueue[SlackFault]()
        self._handshake_refusals = 0
        self.latency = 0.0

    def fail(
        self, method: str | Collection[str], times: int = 1, *, status: int = 500, error: str | None = None
    ) -> None:
        """Reject the next `times` calls of a method with an error.

        Args:
            method: name of the method; with several, their next `times` calls together.
            status: the HTTP status of the response.
            error: Slack's error code, sent with HTTP 200 instead of `status`; None for none. File transfers ignore it.
        """
        self._add(method, times, SlackFault("fail", status=status, error=error))

    def rate_limit(self, method: str | Collection[str], retry_after: int, times: int = 1) -> None:
        """Reject the next `times` calls of a method with HTTP 429.

        Args:
            method: name of the method; with several, their next `times` calls together.
            retry_after: seconds in the header `Retry-After`.
        """
        self._add(method, times, SlackFault("rate_limit", seconds=retry_after))

    def lose_response(self, method: str | Collection[str], times: int = 1) -> None:
        """Run the next `times` calls of a method, but close their connections unanswered.

        Args:
            method: name of the method; with several, their next `times` calls together.
        """
        self._add(method, times, SlackFault("lose_response"))

    def delay(self, method: str | Collection[str], seconds: float, times: int = 1) -> None:
        """Run the next `times` calls of a method after a delay in real seconds.

        Args:
            method: name of the method; with several, their next `times` calls together.
        """
        self._add(method, times, SlackFault("delay", seconds=seconds))

    def refuse_handshakes(self, times: int) -> None:
        """Reject the next `times` WebSocket handshakes with HTTP 500.

        The ticket of a rejected handshake cannot be used again.
        """
        self._handshake_refusals = times

    def set_latency(self, seconds: float) -> None:
        """Delay each request, response and envelope by real seconds; 0 ends the delays."""
        self.latency = seconds

    def clear(self) -> None:
        """Cancel all pending faults and handshake refusals; set the latency to 0."""
        self._pending.clear()
        self._handshake_refusals = 0
        self.latency = 0.0

    def cancel(self, kind: FaultKind) -> None:
        """Cancel all pending faults of this kind, of all methods."""
        self._pending.cancel(kind)

    def has_pending(self, kind: FaultKind) -> bool:
        """Return whether a fault of this kind is pending."""
        return self._pending.has_pending(kind)

    def take(self, method: str) -> SlackFault | None:
        """Remove and return the next fault of a method; None if it has none."""
        return self._pending.take(method)

    def take_handshake_refusal(self) -> bool:
        """Return whether to reject the present WebSocket handshake.

        If so, the number of handshakes to reject is reduced by one.
        """
        if not self._handshake_refusals:
            return False
        self._handshake_refusals -= 1
        return True

    def _add(self, method: str | Collection[str], times: int, fault: SlackFault) -> None:
        self._pending.add([method] if isinstance(method, str) else method, times, fault)
