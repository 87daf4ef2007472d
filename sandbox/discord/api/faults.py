"""What goes wrong, on request."""

from collections.abc import Collection
from dataclasses import dataclass

from sandbox.discord.api.limits import Scope
from sandbox.fault_queue import FaultKind, FaultQueue


@dataclass(frozen=True, slots=True, eq=False)
class DiscordFault:
    """One thing that goes wrong with one call."""

    kind: FaultKind
    status: int = 500
    code: int = 0
    seconds: float = 0
    scope: Scope = "user"
    has_via_header: bool = True


class DiscordFaults:
    """Faults to come. Each route's are used up in the order in which they were asked for, one a call.

    `routes` are those that there are, named as Discord documents them: `POST /channels/{channel}/messages`.
    """

    def __init__(self, routes: Collection[str]) -> None:
        self.routes = routes
        self._pending = FaultQueue[DiscordFault]()
        self._handshake_refusals = 0
        self._resume_refusals = 0
        self.latency = 0.0

    def fail(self, route: str, times: int = 1, *, status: int = 500, code: int = 0) -> None:
        """Refuse without effect, with this HTTP status and this code of Discord's."""
        self._add(route, times, DiscordFault("fail", status=status, code=code))

    def rate_limit(
        self, route: str, retry_after: float, times: int = 1, *, scope: Scope = "user", has_via_header: bool = True
    ) -> None:
        """Refuse without effect: 429, for so many seconds.

        Without `via` it is Cloudflare that refuses, in front of Discord: the header of that name is missing, and
        the body is no JSON.
        """
        self._add(
            route, times, DiscordFault("rate_limit", seconds=retry_after, scope=scope, has_via_header=has_via_header)
        )

    def lose_response(self, route: str, times: int = 1) -> None:
        """Take effect, then close the connection with no answer."""
        self._add(route, times, DiscordFault("lose_response"))

    def delay(self, route: str, seconds: float, times: int = 1) -> None:
        """Take effect that much later (real seconds)."""
        self._add(route, times, DiscordFault("delay", seconds=seconds))

    def refuse_handshakes(self, times: int) -> None:
        """Answer the next `n` WebSocket handshakes with 503."""
        self._handshake_refusals = times

    def refuse_resumes(self, times: int) -> None:
        """Answer the next `n` attempts to resume with an invalid session; what came meanwhile is lost to it."""
        self._resume_refusals = times

    def set_latency(self, seconds: float) -> None:
        """Let each request, each answer and each event take this long (real seconds); 0 ends it."""
        self.latency = seconds

    def clear(self) -> None:
        """Take back all that has not happened yet."""
        self._pending.clear()
        self._handshake_refusals = self._resume_refusals = 0
        self.latency = 0.0

    def cancel(self, kind: FaultKind) -> None:
        """Take back all of this kind that have not happened yet."""
        self._pending.cancel(kind)

    def has_pending(self, kind: FaultKind) -> bool:
        """Whether one of this kind is still to come."""
        return self._pending.has_pending(kind)

    def take(self, route: str) -> DiscordFault | None:
        """The fault that this call meets."""
        return self._pending.take(route)

    def take_handshake_refusal(self) -> bool:
        """Whether this handshake is to be refused."""
        self._handshake_refusals, refused = max(0, self._handshake_refusals - 1), self._handshake_refusals > 0
        return refused

    def take_resume_refusal(self) -> bool:
        """Whether this attempt to resume is to be refused."""
        self._resume_refusals, refused = max(0, self._resume_refusals - 1), self._resume_refusals > 0
        return refused

    def _add(self, route: str, times: int, fault: DiscordFault) -> None:
        if route not in self.routes:
            raise ValueError(f"there is no route {route}")
        self._pending.add([route], times, fault)
