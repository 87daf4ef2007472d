"""Faults that a test or the page injects into the local Discord."""

from collections.abc import Collection
from dataclasses import dataclass

from sandbox.discord.api.limits import Scope
from sandbox.fault_queue import FaultKind, FaultQueue


@dataclass(frozen=True, slots=True, eq=False)
class DiscordFault:
    """One fault of one REST call."""

    kind: FaultKind
    status: int = 500
    code: int = 0
    seconds: float = 0
    scope: Scope = "user"
    has_via_header: bool = True


class DiscordFaults:
    """Pending faults, by route; each call takes the oldest fault of its route.

    Attributes:
        routes: the known routes, as Discord documents them: `POST /channels/{channel}/messages`.
        latency: delay of each request, response and event, in real seconds.
    """

    def __init__(self, routes: Collection[str]) -> None:
        self.routes = routes
        self._pending = FaultQueue[DiscordFault]()
        self._handshake_refusals = 0
        self._resume_refusals = 0
        self.latency = 0.0

    def fail(self, route: str, times: int = 1, *, status: int = 500, code: int = 0) -> None:
        """Refuse the next calls with an HTTP status and a Discord error code."""
        self._add(route, times, DiscordFault("fail", status=status, code=code))

    def rate_limit(
        self, route: str, retry_after: float, times: int = 1, *, scope: Scope = "user", has_via_header: bool = True
    ) -> None:
        """Refuse the next calls with 429.

        Args:
            retry_after: seconds until the client may try again.
            has_via_header: False imitates Cloudflare in front of Discord: no `Via` header and no JSON body.
        """
        self._add(
            route, times, DiscordFault("rate_limit", seconds=retry_after, scope=scope, has_via_header=has_via_header)
        )

    def lose_response(self, route: str, times: int = 1) -> None:
        """Let the next calls take effect, and close their connections without a response."""
        self._add(route, times, DiscordFault("lose_response"))

    def delay(self, route: str, seconds: float, times: int = 1) -> None:
        """Delay the next calls by this many real seconds."""
        self._add(route, times, DiscordFault("delay", seconds=seconds))

    def refuse_handshakes(self, times: int) -> None:
        """Answer the next WebSocket handshakes with 503."""
        self._handshake_refusals = times

    def refuse_resumes(self, times: int) -> None:
        """Answer the next attempts to resume with an invalid session; missed events are lost."""
        self._resume_refusals = times

    def set_latency(self, seconds: float) -> None:
        """Delay each request, response and event by this many real seconds; 0 ends it."""
        self.latency = seconds

    def clear(self) -> None:
        """Remove all pending faults."""
        self._pending.clear()
        self._handshake_refusals = self._resume_refusals = 0
        self.latency = 0.0

    def cancel(self, kind: FaultKind) -> None:
        """Remove the pending faults of this kind."""
        self._pending.cancel(kind)

    def has_pending(self, kind: FaultKind) -> bool:
        """Return whether a fault of this kind is pending."""
        return self._pending.has_pending(kind)

    def take(self, route: str) -> DiscordFault | None:
        """Remove and return the next fault of a route."""
        return self._pending.take(route)

    def take_handshake_refusal(self) -> bool:
        """Return whether to refuse this handshake, and count it."""
        self._handshake_refusals, refused = max(0, self._handshake_refusals - 1), self._handshake_refusals > 0
        return refused

    def take_resume_refusal(self) -> bool:
        """Return whether to refuse this attempt to resume, and count it."""
        self._resume_refusals, refused = max(0, self._resume_refusals - 1), self._resume_refusals > 0
        return refused

    def _add(self, route: str, times: int, fault: DiscordFault) -> None:
        if route not in self.routes:
            raise ValueError(f"there is no route {route}")
        self._pending.add([route], times, fault)
