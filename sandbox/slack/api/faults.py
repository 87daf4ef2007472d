"""What goes wrong, on request."""

from collections.abc import Collection
from dataclasses import dataclass

from sandbox.fault_queue import FaultKind, FaultQueue


@dataclass(frozen=True, slots=True, eq=False)
class SlackFault:
    """One thing that goes wrong with one call: two that are asked for are two, though they be alike."""

    kind: FaultKind
    status: int = 500
    error: str | None = None
    seconds: float = 0


class SlackFaults:
    """Faults to come. Each method's are used up in the order in which they were asked for, one a call.

    The methods' names are Slack's (`chat.postMessage`); `response_url` stands for posts to one, and `upload` for the
    sending of a file's bytes, `download` for their being fetched. Of several methods it is the first that is called.
    """

    def __init__(self) -> None:
        self._pending = FaultQueue[SlackFault]()
        self._handshake_refusals = 0
        self.latency = 0.0

    def fail(
        self, method: str | Collection[str], times: int = 1, *, status: int = 500, error: str | None = None
    ) -> None:
        """Refuse without effect: with this HTTP status, or (`error`) with 200 and that Slack error."""
        self._add(method, times, SlackFault("fail", status=status, error=error))

    def rate_limit(self, method: str | Collection[str], retry_after: int, times: int = 1) -> None:
        """Refuse without effect: 429, and `Retry-After` with these seconds."""
        self._add(method, times, SlackFault("rate_limit", seconds=retry_after))

    def lose_response(self, method: str | Collection[str], times: int = 1) -> None:
        """Take effect, then close the connection with no answer."""
        self._add(method, times, SlackFault("lose_response"))

    def delay(self, method: str | Collection[str], seconds: float, times: int = 1) -> None:
        """Take effect that much later (real seconds)."""
        self._add(method, times, SlackFault("delay", seconds=seconds))

    def refuse_handshakes(self, times: int) -> None:
        """Answer the next `n` WebSocket handshakes with 500. Their tickets are used up nevertheless."""
        self._handshake_refusals = times

    def set_latency(self, seconds: float) -> None:
        """Let each request, each answer and each envelope take this long (real seconds); 0 ends it."""
        self.latency = seconds

    def clear(self) -> None:
        """Take back all that has not happened yet."""
        self._pending.clear()
        self._handshake_refusals = 0
        self.latency = 0.0

    def cancel(self, kind: FaultKind) -> None:
        """Take back all of this kind that have not happened yet."""
        self._pending.cancel(kind)

    def has_pending(self, kind: FaultKind) -> bool:
        """Whether one of this kind is still to come."""
        return self._pending.has_pending(kind)

    def take(self, method: str) -> SlackFault | None:
        """The fault that this call meets."""
        return self._pending.take(method)

    def take_handshake_refusal(self) -> bool:
        """Whether this handshake is to be refused."""
        if not self._handshake_refusals:
            return False
        self._handshake_refusals -= 1
        return True

    def _add(self, method: str | Collection[str], times: int, fault: SlackFault) -> None:
        self._pending.add([method] if isinstance(method, str) else method, times, fault)
